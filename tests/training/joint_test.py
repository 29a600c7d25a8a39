"""Controller and rewriter in turns: whose turn, what it costs, resume."""

import functools

import jax
import numpy as np
import pytest

from promptrl_jax import settings
from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.envs.editing.env import EditingEnv
from promptrl_jax.envs.rewriting.config import RewritingConfig
from promptrl_jax.envs.rewriting.env import RewritingEnv
from promptrl_jax.execution import ExecutionPool
from promptrl_jax.llm import load
from promptrl_jax.llm.ask import AskConfig
from promptrl_jax.llm.jax_lm import JaxLM
from promptrl_jax.models import pretrained
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.rewards.guards import GuardsConfig
from promptrl_jax.sampling import EngineConfig, Sampler
from promptrl_jax.tasks.minicode.suite import SUITE
from promptrl_jax.testing.scripted import ScriptedBackend
from promptrl_jax.training import checkpoint, joint
from promptrl_jax.training.controller import learner as controller_lib
from promptrl_jax.training.controller.config import ControllerConfig, PPOConfig
from promptrl_jax.training.rewriter import build
from promptrl_jax.training.rewriter.config import TrainConfig

# Statements that the embedded rewriter knows how to reword.
BY_SIGNATURE = {task.signature: task for task in SUITE.load('train')[:8]}
TASKS = tuple(BY_SIGNATURE.values())
EPISODES, GROUPS, GROUP, NEW_TOKENS = 4, 2, 4, 64


def answer(request):
  """Right for one wording in two, so that rewrites differ in reward."""
  prompt = request.messages[-1].content
  (task,) = [BY_SIGNATURE[name] for name in BY_SIGNATURE if name in prompt]
  body = task.reference.removeprefix(task.signature)
  return body if sum(prompt.encode()) % 2 else '\n  return None'


@functools.cache
def parts(overlap=False):
  """The learners, and the backend that the controller asks for rewrites."""
  mesh = mesh_lib.make_data_mesh()
  model, params, tokenizer = pretrained.load_pretrained(
    load.find('minicode_rewriter')
  )
  config = settings.override(
    TrainConfig(),
    {
      'iterations': 10,
      'packing': {
        'prompt_size': 256,
        'lanes': 4,
        'lane_size': NEW_TOKENS,
        'sequences': 8,
      },
      'rows_per_piece': 1,
      'overlap': overlap,
      'loss': {'importance': 'token' if overlap else 'none'},
      'rollout': {
        'prompts': GROUPS,
        'group': GROUP,
        'new_tokens': NEW_TOKENS,
      },
      'optimizer': {'lr': 3e-4, 'decay': 'constant'},
    },
  )
  start = build.Start('rewriter', model, params, tokenizer)
  learner = build.make_learner(start, config, mesh, 0, prompt_lengths=(256,))
  env = EditingConfig(max_steps=3, budget=4)
  control = controller_lib.make_learner(
    ControllerConfig(10, EPISODES, (2, 4), trunk=(16,), head=(8,)),
    PPOConfig(minibatches=2),
    env,
    seed=0,
  )
  shapes = EngineConfig(prompt_lengths=(256,), new_tokens=NEW_TOKENS)
  sampler = Sampler(model, params, tokenizer, mesh, shapes)
  policy = JaxLM('rewriter', sampler)
  return control, learner, policy, env


class Recorder:
  """Forwards to a rewriter and keeps the parameters that it was given."""

  def __init__(self, policy):
    self.given = []
    self._policy = policy

  def replace_params(self, params):
    self.given.append(np.array(jax.tree.leaves(params)[0]))
    self._policy.replace_params(params)


@pytest.fixture(scope='module')
def pool():
  with ExecutionPool(workers=1) as pool:
    yield pool


def make(pool, config, overlap=False, **guards):
  control, learner, policy, env = parts(overlap)
  coder, recorder = ScriptedBackend(answer), Recorder(policy)
  training = joint.JointTraining(
    config,
    control,
    learner,
    EditingEnv(
      coder, policy, pool, env, AskConfig(rewrite_max_tokens=NEW_TOKENS)
    ),
    RewritingEnv(coder, pool, RewritingConfig(guards=GuardsConfig(**guards))),
    recorder,
    TASKS,
    seed=3,
  )
  return training, coder, recorder


def play(training, state, legs):
  rows = []
  for _ in range(legs):
    state, row = training.iterate(state)
    rows.append({k: v for k, v in row.items() if 'time/' not in k})
  return state, rows


def fresh():
  return joint.initial(*parts()[:2])


def copied(tree):
  return jax.tree.map(np.array, tree)


def equal(first, second):
  pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
  return all(np.array_equal(a, b) for a, b in pairs)


def test_turns_and_marks_by_hand():
  config = joint.JointConfig(100, 30, controller=2, rewriter=1)
  whose = [config.part(i)[0] for i in range(7)]
  assert whose == ['c', 'c', 'r', 'c', 'c', 'r', 'c']
  assert config.legs == 4
  assert [config.mark(leg) for leg in range(4)] == [30, 60, 90, 100]
  alone = joint.JointConfig(100, 30, controller=0, rewriter=2)
  assert {alone.part(i) for i in range(5)} == {'rewriter'}


@pytest.mark.parametrize(
  ('numbers', 'message'),
  [
    ((0, 1, 1, 1), 'calls=0'),
    ((10, 11, 1, 1), 'calls_per_leg=11'),
    ((10, 5, 0, 0), 'a turn of 0 controller and 0 rewriter'),
    ((10, 5, -1, 2), 'a turn of -1 controller'),
  ],
)
def test_settings_that_would_train_nothing_are_refused(numbers, message):
  with pytest.raises(ValueError, match=message):
    joint.JointConfig(*numbers)


@pytest.mark.slow
def test_calls_are_those_that_the_coder_got(pool):
  config = joint.JointConfig(40, 20, 1, 1)
  training, coder, _ = make(pool, config)
  state, rows = play(training, fresh(), config.legs)
  assert int(state.step) == 2
  assert 40 <= int(state.coder_calls) == rows[-1]['budget/coder_calls']
  # The last iteration may pass the mark, by less than all it asks.
  assert int(state.coder_calls) < 40 + max(4 * EPISODES, GROUPS * GROUP)
  turns = [int(state.controller.step), int(state.rewriter.step)]
  assert turns[0] - turns[1] in (0, 1)
  for part, count in zip(('controller', 'rewriter'), turns, strict=True):
    name = f'{part}/rollout/iterations'
    assert sum(row[name] for row in rows) == count
  # Rows that ask the same share an answer, and each counts as a call.
  asked = sum(map(len, coder.batches))
  assert asked <= int(state.coder_calls)
  assert sum(row['budget/calls'] for row in rows) == int(
    state.coder_calls
  ) + int(state.rewriter_calls)


@pytest.mark.slow
@pytest.mark.parametrize('turn', [(1, 0), (0, 1)])
def test_a_part_without_a_turn_stays_as_it_was(pool, turn):
  config = joint.JointConfig(16, 16, *turn)
  training, _, _ = make(pool, config)
  before = copied(fresh())
  state, (row,) = play(training, fresh(), 1)
  learned = [
    not equal(before.controller.params, state.controller.params),
    not equal(before.rewriter.train.params, state.rewriter.train.params),
  ]
  assert learned == [bool(n) for n in turn]
  idle = 'rewriter' if turn[0] else 'controller'
  assert [name for name in row if name.startswith(f'{idle}/')] == [
    f'{idle}/rollout/iterations'
  ]


@pytest.mark.slow
def test_semantic_asks_the_rewriter_as_it_is_by_then(pool):
  learner = parts()[1]
  training, _, recorder = make(pool, joint.JointConfig(48, 48, 1, 1))
  start = learner.decode_params(learner.initial)
  state, row = training.iterate(fresh())
  assert len(recorder.given) == row['controller/rollout/iterations'] >= 2
  assert np.array_equal(recorder.given[0], jax.tree.leaves(start)[0])
  assert not np.array_equal(recorder.given[0], recorder.given[-1])
  assert int(state.rewriter.step) >= 1


@pytest.mark.slow
def test_resume_equals_the_uninterrupted_run_bit_for_bit(pool, tmp_path):
  config = joint.JointConfig(60, 15, 1, 2)
  whole, rows = play(make(pool, config)[0], fresh(), config.legs)
  half, first = play(make(pool, config)[0], fresh(), 2)
  with checkpoint.open_checkpoints(tmp_path) as checkpoints:
    checkpoint.save_checkpoint(checkpoints, half, {})
  with checkpoint.open_checkpoints(tmp_path) as checkpoints:
    half, _ = checkpoint.restore_checkpoint(checkpoints, fresh())
  resumed, second = play(make(pool, config)[0], half, config.legs - 2)
  assert first + second == rows
  assert int(whole.controller.step) > 1 and int(whole.rewriter.step) > 2
  jax.tree.map(np.testing.assert_array_equal, whole, resumed)


def test_a_rewriter_whose_words_are_all_flagged_ends_the_run(pool):
  training, _, _ = make(pool, joint.JointConfig(16, 8, 0, 1), min_words=90)
  with pytest.raises(joint.NoCalls, match='iteration 1 of the rewriter'):
    training.iterate(fresh())


def test_sampling_ahead_is_refused(pool):
  with pytest.raises(ValueError, match='train.overlap=False'):
    make(pool, joint.JointConfig(16, 8, 1, 1), overlap=True)
