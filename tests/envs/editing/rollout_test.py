"""Trajectories of whole episodes."""

import numpy as np

from promptrl_jax.envs.editing import rollout
from promptrl_jax.strategies import policies


def collect(env, problems, action='keep', budgets=None):
  policy = policies.fixed(action, env.config.actions)
  return rollout.collect(env, policy, problems, [0] * len(problems), budgets)


def test_every_episode_ends_once_and_nothing_follows(make_env, problems):
  env = make_env(budget=3)
  played = collect(env, problems, 'semantic')
  ends = (played.terminated | played.truncated) & played.mask
  assert (ends.sum(axis=0) == 1).all()
  for row in range(8):
    last = int(np.flatnonzero(ends[:, row])[0])
    assert played.mask[:, row].tolist() == [t <= last for t in range(8)]


def test_budgets_are_per_episode(make_env, problems):
  env = make_env()
  played = collect(env, problems[:3], 'resample', [1, 2, 5])
  assert played.mask.sum(axis=0).tolist() == [1, 2, 5]


def test_next_values_are_those_of_the_following_observation(make_env, problems):
  env = make_env(budget=4)
  names = env.config.actions

  def policy(observations, masks, step):
    count = len(observations)
    return rollout.Decision(
      np.full(count, names.index('resample'), np.int32),
      np.zeros(count, np.float32),
      np.full(count, step, np.float32),
    )

  played = rollout.collect(env, policy, problems[:1], [0])
  assert played.values[:4, 0].tolist() == [0, 1, 2, 3]
  assert played.next_values[:3, 0].tolist() == [1, 2, 3]
  assert played.next_values[3, 0] == env.config.max_steps  # the last look


def test_lost_episodes_have_no_valid_step(make_env, problems):
  env = make_env()
  original = env.runner._pool

  class HalfBroken:
    def run(self, programs):
      from promptrl_jax.execution.program import ProgramResult

      lost = ProgramResult('infra_error', None, ())
      return [lost, *original.run(programs[1:])]

  env.runner._pool = HalfBroken()
  played = collect(env, problems[:2], budgets=[1, 1])
  assert played.mask.sum(axis=0).tolist() == [0, 1]


def test_random_actions_are_available_ones_and_depend_on_the_seed():
  masks = np.tile([True, False, True, False], (500, 1))
  first = policies.uniform(0)(None, masks, 0).actions
  assert set(first) == {0, 2}
  assert abs((first == 0).mean() - 0.5) < 0.1
  again = policies.uniform(0)(None, masks, 0).actions
  other = policies.uniform(1)(None, masks, 0).actions
  assert (first == again).all() and (first != other).any()
