"""What is trained beside controllers, and what is read of a finished run."""

import dataclasses
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from configs.mbpp_ppo import Config, EvalConfig
from experiments import controllers
from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.envs.editing.env import EditingEnv
from promptrl_jax.evaluation.open_loop import Found
from promptrl_jax.evaluation.play import LineUp
from promptrl_jax.llm.attempt import CODER, REWRITER
from promptrl_jax.llm.cache import CachedBackend
from promptrl_jax.tasks import splits
from promptrl_jax.testing import tiny
from promptrl_jax.testing.scripted import ScriptedBackend
from promptrl_jax.training.controller.bandit import Kind
from promptrl_jax.training.controller.config import (
  CloneConfig,
  ControllerConfig,
)
from tests.variants import mostly_slow

CALLS = 60


def test_a_bandit_plays_if_there_is_one_for_each_seed(tmp_path):
  for seed, names in ((3, ('bandit', 'bandit_mc')), (4, ('bandit_mc',))):
    folder = tmp_path / f'seed_{seed}'
    folder.mkdir()
    for name in names:
      (folder / f'{name}.npz').touch()
  played = lambda seeds: controllers.played_names(
    Config(seed=3, seeds=seeds), tmp_path
  )
  assert played(1) == ('ppo', 'bandit', 'bandit_mc')
  assert played(2) == ('ppo', 'bandit_mc')
  assert played(3) == ('ppo',)


@pytest.mark.parametrize('thompson', mostly_slow((False, True), {False}))
def test_a_bandit_goes_on_where_it_was_interrupted(pool, tmp_path, thompson):
  config = Config(
    controller=ControllerConfig(iterations=1, episodes=6, budgets=(1, 3)),
    checkpoint_every=2,
  )
  problems = [splits.reveal_for_training(t, 'visible1') for t in tiny.tasks(8)]
  asked = []

  def train(folder, most):
    """Trains the bandit; the coder breaks down after `most` requests."""
    folder.mkdir(exist_ok=True)
    asked.clear()

    def answer(request):
      asked.append(request)
      if len(asked) > most:
        raise KeyboardInterrupt
      return f'\n  return x + {request.seed % 3}'

    env = EditingEnv(
      ScriptedBackend(answer),
      ScriptedBackend(lambda request: ' Add it, please.'),
      pool,
      EditingConfig(max_steps=3, budget=3),
    )
    path = folder / 'bandit.npz'
    kind = Kind(monte_carlo=True, thompson=thompson)
    controllers.train_bandit(config, env, problems, 0, path, CALLS, kind)
    with np.load(path) as saved:
      return [saved[name] for name in saved.files]

  whole = train(tmp_path / 'whole', CALLS * 9)
  requests = len(asked)
  with pytest.raises(KeyboardInterrupt):
    train(tmp_path / 'killed', requests * 2 // 3)
  assert [path.name for path in (tmp_path / 'killed').iterdir()] == [
    'bandit.partial.npz'
  ]
  resumed = train(tmp_path / 'killed', CALLS * 9)
  assert len(asked) < requests  # what was kept is not asked again
  assert len(whole) == len(resumed) == 2  # weights and calls
  for one, other in zip(whole, resumed, strict=True):
    np.testing.assert_array_equal(one, other)
  assert [path.name for path in (tmp_path / 'killed').iterdir()] == [
    'bandit.npz'
  ]


def test_problems_that_random_operators_solve_are_chosen_once(pool, tmp_path):
  problems = [splits.reveal_for_training(t, 'visible1') for t in tiny.tasks(6)]
  config = Config(controller=ControllerConfig(solvable_by=2, budgets=(1, 3)))

  def env(program):
    coder = ScriptedBackend(lambda request: program)
    rewriter = ScriptedBackend(lambda request: ' Add it, please.')
    return EditingEnv(
      coder, rewriter, pool, EditingConfig(max_steps=3, budget=3)
    )

  first = env('\n  return x + 2')
  kept, calls = controllers.solvable(config, first, problems, tmp_path)
  assert kept == [problems[2]]
  models = first.runner.backends.values()
  assert calls == sum(len(batch) for m in models for batch in m.batches) > 12
  again = env('\n  return None')
  assert controllers.solvable(config, again, problems, tmp_path) == (
    kept,
    calls,
  )
  assert not again.episodes  # read from the file
  with pytest.raises(ValueError, match='solvable_by=2: no episode by random'):
    controllers.solvable(config, again, problems, tmp_path / 'other')
  assert not (tmp_path / 'other').exists()


def test_a_validation_is_the_mean_over_its_budgets_and_seeds():
  played = []

  class Line:
    def run_all(self, games):
      played.extend((game.budget, game.seed) for game in games)
      return [
        SimpleNamespace(passed=np.full(2, game.seed == 4)) for game in games
      ]

  def validate(**changes):
    played.clear()
    config = Config(seed=4, eval=EvalConfig(budgets=(1, 2)), **changes)
    nothing = SimpleNamespace(
      act_greedy=None, params=None, config=config.editing
    )
    return controllers.validate(
      config, nothing, Line(), {'validation': ()}, nothing, nothing, 0
    )

  assert validate() == 1.0 and played == [(1, 4), (2, 4)]
  assert validate(validate_seeds=2) == 0.5
  assert played == [(1, 4), (1, 5), (2, 4), (2, 5)]


@pytest.fixture
def start(pool, tmp_path, monkeypatch):
  """Starts a training: its problems, its parameters and the calls made."""
  coder = ScriptedBackend(lambda request: '\n  return x + 2')
  rewriter = ScriptedBackend(lambda request: ' Add it, please.')
  models = {CODER: CachedBackend(coder), REWRITER: CachedBackend(rewriter)}
  found = Found(best={3: ('resample', 'lexical', 'keep')}, calls=100)
  started = []

  def train(config, learner, env, line_up, problems, tasks, seed, folder, paid):
    leaves = jax.tree.leaves(learner.initial.params)
    started.append(([p.task_id for p in problems], leaves, paid))

  monkeypatch.setattr(controllers, 'train', train)
  monkeypatch.setattr(
    controllers, 'restore', lambda learner, *_: (learner.initial.params, 0)
  )

  def start(**changes):
    config = Config(
      controller=ControllerConfig(budgets=(1, 3), trunk=(4,), head=(4,)),
      clone=CloneConfig(steps=2),
      editing=EditingConfig(max_steps=3, budget=3),
      eval=EvalConfig(bandits=False),
    )
    controller = dataclasses.replace(config.controller, **changes)
    controllers.learn(
      dataclasses.replace(config, controller=controller),
      LineUp(models, pool),
      pool,
      {'train': tiny.tasks(6)},
      found,
      *(0, tmp_path / str(len(started)), 'train', 'best'),
    )
    return started[-1]

  return start


@pytest.mark.slow
def test_a_training_starts_as_the_controller_is_set(start):
  problems, params, paid = start()
  assert len(problems) == 6 and paid == 0
  chosen, same, paid = start(solvable_by=2)
  assert chosen == [problems[2]] and 0 < paid < 100
  jax.tree.map(np.testing.assert_array_equal, same, params)
  every, cloned, paid = start(clone=True)
  assert every == problems and paid > 100  # with the search of the lists
  assert not all(map(np.array_equal, cloned, params))
