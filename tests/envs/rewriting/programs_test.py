"""Rewriting one instruction for many programming tasks."""

import numpy as np
import pytest

from promptrl_jax.envs.rewriting.config import RewritingConfig
from promptrl_jax.envs.rewriting.env import RewritingEnv
from promptrl_jax.evaluation.example_rewards import (
  example_rewards,
  with_solvable_examples,
)
from promptrl_jax.llm.ask import AskConfig
from promptrl_jax.tasks import instructions
from promptrl_jax.testing import tiny
from promptrl_jax.testing.scripted import ScriptedBackend

TASK = instructions.for_programs('Write code.', tiny.tasks(6), 'train')
EXAMPLES = TASK.checker.examples
PROGRAMS = {task.statement: task.reference for task in EXAMPLES}


def write(request):
  """Solves every task if it is told to take care, else the first one."""
  text = request.messages[0].content
  (statement,) = [s for s in PROGRAMS if f'# {s}\n' in text]
  solves = 'care' in text or statement == EXAMPLES[0].statement
  return f'{PROGRAMS[statement].split(":", 1)[1] if solves else " pass"}'


@pytest.fixture
def env(pool):
  return RewritingEnv(
    ScriptedBackend(write),
    pool,
    RewritingConfig(reward='score', allow_keep=False),
    AskConfig(template='code'),
  )


def test_the_share_of_solved_tasks_is_the_reward(env):
  result = env.rewards([TASK] * 3, ['Take care.', 'Be quick.', ''], seed=0)
  share = 1 / len(EXAMPLES)
  np.testing.assert_allclose(result.rewards, [1.0, share, 0.0], rtol=1e-6)
  assert result.flags == ('', '', 'empty')
  assert result.calls == 2 * len(EXAMPLES)


def test_the_instruction_and_the_visible_test_are_what_the_model_reads(env):
  requests = env.requests(TASK, 'Take care.')
  assert len(requests) == len(EXAMPLES)
  for request, task in zip(requests, EXAMPLES, strict=True):
    content = request.messages[0].content
    assert content.startswith('# Take care.\n')
    assert f'# {task.tests[0]}' in content
    assert task.tests[1] not in content
    assert content.endswith(task.signature)
    assert '\ndef ' in request.stop


def test_each_task_is_reported(env):
  (rewards,) = example_rewards(env, [TASK], ['Be quick.'])
  assert rewards.tolist() == [1.0] + [0.0] * (len(EXAMPLES) - 1)


def test_hidden_tests_measure_and_all_tests_reward(pool):
  # Each program fails the assertion that it is shown, and passes the others.
  def write_wrong(request):
    return write(request) + ' if x > 1 else None'

  config = RewritingConfig(reward='score', allow_keep=False)
  ask = AskConfig(template='code')
  env = RewritingEnv(ScriptedBackend(write_wrong), pool, config, ask)
  (measured,) = example_rewards(env, [TASK], ['Take care.'])
  assert measured.tolist() == [1.0] * len(EXAMPLES)
  assert env.rewards([TASK], ['Take care.'], seed=0).rewards == [0.0]


def test_examples_that_some_answer_solves_are_kept(env):
  (kept,) = with_solvable_examples(env, [TASK], answers=2)
  assert kept.checker.examples == EXAMPLES[:1]
  assert kept.task_id == TASK.task_id
  hard = instructions.with_examples(TASK, EXAMPLES[1:])
  with pytest.raises(ValueError, match='none of 5 examples is solved'):
    with_solvable_examples(env, [TASK, hard], answers=2)


def test_rewrites_of_a_batch_are_asked_about_the_same_tasks(pool):
  model = ScriptedBackend(write)
  config = RewritingConfig(reward='score', allow_keep=False, examples=2)
  env = RewritingEnv(model, pool, config, AskConfig(template='code'))
  env.rewards([TASK, TASK], ['Take care.', 'Have care.'], seed=3)
  asked = [prompt.split('\n', 1)[1] for prompt in model.prompts]
  assert asked[:2] == asked[2:] and len(asked) == 4
  drawn = instructions.subsample(TASK, 2, 3).checker.examples
  assert all(
    f'# {task.statement}\n' in text
    for task, text in zip(drawn, asked, strict=False)
  )


def test_rewrites_share_the_sampler_seed_of_each_task_and_no_two_tasks_do(pool):
  env = RewritingEnv(
    ScriptedBackend(write),
    pool,
    RewritingConfig(reward='score', allow_keep=False),
    AskConfig(template='code', first_temperature=0.3),
  )
  ones, others, later = (
    [request.seed for request in env.requests(TASK, text, seed)]
    for text, seed in (('Take care.', 1), ('Be quick.', 1), ('Take care.', 2))
  )
  assert ones == others and len(set(ones)) == len(EXAMPLES)
  assert not set(later) & set(ones)
