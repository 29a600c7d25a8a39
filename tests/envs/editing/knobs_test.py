"""Each setting of episodes and of requests changes what an episode is."""

import dataclasses
import re

import pytest

from promptrl_jax.envs.editing import rollout
from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.envs.editing.env import EditingEnv
from promptrl_jax.execution.memo import MemoPool
from promptrl_jax.llm.ask import AskConfig
from promptrl_jax.operators.lexical import LexicalConfig
from promptrl_jax.rewards.tests import StepRewardConfig
from promptrl_jax.strategies import policies
from promptrl_jax.tasks import splits
from promptrl_jax.testing import tiny
from promptrl_jax.testing.scripted import ScriptedBackend

PROBLEMS = [splits.reveal_for_training(t, 'visible1') for t in tiny.tasks(6)]
SHAPED = StepRewardConfig(share_weight=0.5)
LEGACY = StepRewardConfig('legacy')
ASK = AskConfig(template='chat', first_temperature=0.2)

EDITING_CHANGES = {
  'actions': ('keep', 'lexical', 'semantic', 'repair'),
  'budget': 3,
  'max_steps': 2,
  'observation': 'masked',
  'sees_certainty': True,
  'sees_agreement': True,
  'sees_price': True,
  'accumulate': False,
  'lexical': LexicalConfig(probability=1.0),
  'step_reward': LEGACY,
}
SHAPED_CHANGES = {
  'kind': 'legacy',
  'scale': 2.0,
  'share_weight': 0.0,
  'solved_bonus': 2.0,
  'call_cost': 0.1,
  'potential': True,
}
LEGACY_CHANGES = {'success': 2.0, 'penalty': -1.0}
ASK_CHANGES = {
  'template': 'code',
  'instruction': 'Be brief.',
  'first_temperature': 0.0,
  'sample_temperature': 0.1,
  'rewrite_temperature': 0.1,
  'top_p': 0.9,
  'max_tokens': 20,
  'rewrite_max_tokens': 20,
  'stop': ('\n\n',),
}


def coder(request):
  """One wrong program, and a right one in a third of the warm samples.

  The wrong one for the number 1 is right for the argument 5 alone.
  """
  number = int(re.search(r'assert add\(1\) == (\d+)', str(request))[1]) - 1
  is_right = request.temperature > 0.5 and request.seed % 3 == 0
  shift = number if is_right else number + 1
  result = 'x + 1 if x == 5 else 0' if number == 1 else f'x + {shift}'
  return f'```python\ndef add(x):\n  return {result}\n```'


@pytest.fixture(scope='module')
def episodes(pool):
  """Plays episodes under settings: their trace and what a policy saw."""
  memo = MemoPool(pool)

  def play(editing, ask=ASK):
    env = EditingEnv(
      ScriptedBackend(coder),
      ScriptedBackend(lambda r: f'Add a number, {r.seed % 7} or another.'),
      memo,
      editing,
      ask,
    )
    played = rollout.collect(
      env, policies.uniform(1), PROBLEMS, range(len(PROBLEMS))
    )
    return env.trace, played.observations.tolist()

  return play


@pytest.mark.parametrize(
  ('usual', 'knobs', 'set_fn'),
  [
    (EditingConfig(step_reward=SHAPED), EDITING_CHANGES, lambda c: (c, ASK)),
    (
      SHAPED,
      SHAPED_CHANGES,
      lambda c: (EditingConfig(step_reward=c), ASK),
    ),
    (
      LEGACY,
      LEGACY_CHANGES,
      lambda c: (EditingConfig(step_reward=c), ASK),
    ),
    # A statement is rewritten greedily first, and sampled when asked again.
    (ASK, ASK_CHANGES, lambda c: (EditingConfig(accumulate=False), c)),
  ],
  ids=('editing', 'shaped', 'legacy', 'ask'),
)
def test_every_knob_changes_the_episodes(usual, knobs, set_fn, episodes):
  before = episodes(*set_fn(usual))
  assert before == episodes(*set_fn(usual))
  actions = {row['action'] for row in before[0]}
  assert {'keep', 'resample', 'lexical', 'semantic', 'repair'} <= actions
  for name, value in knobs.items():
    other = dataclasses.replace(usual, **{name: value})
    assert episodes(*set_fn(other)) != before, name


def test_no_knob_is_left_out():
  for config, knobs in (
    (EditingConfig, EDITING_CHANGES),
    (StepRewardConfig, SHAPED_CHANGES | LEGACY_CHANGES),
    (AskConfig, ASK_CHANGES),
  ):
    assert {field.name for field in dataclasses.fields(config)} == knobs.keys()
