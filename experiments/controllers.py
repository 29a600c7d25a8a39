"""Controllers of one seed: how they, and the bandits beside them, are trained.

`train` is the loop of the main job. A policy whose training has ended lies in
one file, `seed_0/ppo.npz`, and is read from there.
"""

from __future__ import annotations

import dataclasses
import io

import jax
import numpy as np
import tqdm

from promptrl_jax.envs.editing.env import EditingEnv
from promptrl_jax.evaluation.play import Entrant, Game
from promptrl_jax.execution.memo import MemoPool
from promptrl_jax.files import write_atomically
from promptrl_jax.llm.attempt import CODER, REWRITER
from promptrl_jax.rl import bandits
from promptrl_jax.strategies import policies
from promptrl_jax.strategies.base import OverOperators
from promptrl_jax.tasks import splits
from promptrl_jax.training import run as run_lib
from promptrl_jax.training import solvable as solvable_lib
from promptrl_jax.training.controller import bandit, cloning
from promptrl_jax.training.controller.learner import make_learner
from promptrl_jax.training.controller.solvable import solvable_problems

_BANDITS = {
  'bandit': bandit.Kind(),
  'bandit_mc': bandit.Kind(monte_carlo=True),
}
_THOMPSON = {'thompson': bandit.Kind(monte_carlo=True, thompson=True)}


def names(config):
  """Names of all that is trained."""
  return *variants(config), *at_prices(config), *bandit_kinds(config)


def played_names(config, folder):
  """Names of what `learn` reads from a finished run, without training.

  A bandit is played if that run has one for each seed.
  """
  seeds = range(config.seed, config.seed + config.seeds)
  kinds = [
    name
    for name in bandit_kinds(config)
    if all((folder / f'seed_{seed}' / f'{name}.npz').exists() for seed in seeds)
  ]
  return *variants(config), *at_prices(config), *kinds


def at_prices(config):
  """Names of the controller at all prices that it plays at."""
  return map(at_price_name, config.eval.token_prices)


def at_price_name(price):
  """The name under which the controller plays at a price of 1,000 tokens."""
  return f'ppo_at_{price:g}'


def bandit_kinds(config):
  """The bandits that are trained, by name."""
  found = dict(_BANDITS) if config.eval.bandits else {}
  return found | (_THOMPSON if config.eval.thompson else {})


def learn(
  config, line_up, pool, tasks, searched, seed, folder, mode, checkpoint
):
  """Policies of one seed, trained or read, with the calls of their training."""
  models = line_up.backends
  if not (config.controller.worlds or config.spend.is_limited):
    # Nothing is asked for twice, but by a run that goes on: that only costs
    # where a server answers.
    models = {
      role: cached.backend if getattr(config, role).is_free else cached
      for role, cached in models.items()
    }
  env = EditingEnv(
    models[CODER],
    models[REWRITER],
    MemoPool(pool) if config.controller.worlds else pool,
    config.editing,
    config.ask,
    config.ppo.gamma,
    line_up.options,
  )
  problems = [
    splits.reveal_for_training(task, config.data.protocol)
    for task in tasks['train']
  ]
  selected = 0  # calls that chose the problems
  if config.controller.solvable_by and mode == 'train':
    problems, selected = solvable(config, env, problems, folder)
  learned = {}
  for name, settings in variants(config).items():
    learner = make_learner(settings, config.ppo, config.editing, seed)
    place = folder if name == 'ppo' else folder / name
    path = folder / f'{name}.npz'
    if mode == 'train' and not path.exists():
      paid = selected
      if settings.clone and not run_lib.is_started(place):
        learner, cost = cloned(config, learner, env, problems, searched, seed)
        paid += cost
      train(config, learner, env, line_up, problems, tasks, seed, place, paid)
      # A choice by outcome would teach a control what its returns do not.
      which = 'last' if settings.shuffle_rewards else 'best'
      params, calls = restore(learner, place, which)
      save(path, jax.tree.leaves(params), calls)
    if checkpoint == 'best' and path.exists():
      params, calls = read(path, learner.initial.params)
    else:
      params, calls = restore(learner, place, checkpoint)
    policy = policies.controller(learner.act_greedy, params, seed)
    learned[name] = OverOperators(policy, config.editing), calls
    if name == 'ppo':
      for price in config.eval.token_prices:
        at_price = OverOperators(policy, config.editing, price)
        learned[at_price_name(price)] = at_price, calls
  _, calls = learned['ppo']
  played = played_names(config, folder.parent)
  for name, kind in bandit_kinds(config).items():
    path = folder / f'{name}.npz'
    if mode == 'eval' and name not in played:
      continue  # Nothing is trained, and nothing is written here.
    learned[name] = train_bandit(
      config, env, problems, seed, path, calls, kind, selected
    )
  return learned


def variants(config):
  """Settings of the controllers that are trained, by name."""
  named = {'ppo': config.controller}
  if config.eval.shuffled:
    # From scratch: a start from the lists would not be a control.
    named['ppo_shuffled'] = dataclasses.replace(
      config.controller, shuffle_rewards=True, clone=False
    )
  return named


def solvable(config, env, problems, folder):
  """The problems that random operators solve, and the calls this cost."""
  return solvable_lib.keep(
    folder,
    problems,
    lambda: solvable_problems(
      env,
      problems,
      config.controller.solvable_by,
      max(config.controller.budgets),
      lambda worlds: tqdm.tqdm(worlds, desc='solvable', unit='world'),
    ),
  )


def cloned(config, learner, env, problems, searched, seed):
  """The learner, starting from the best lists, and the calls that this cost."""
  played, calls = cloning.demonstrate(
    env, problems, searched.best, config.clone, seed
  )
  params = cloning.clone(
    learner.network, learner.initial.params, played, config.clone
  )
  initial = dataclasses.replace(learner.initial, params=params)
  learner = dataclasses.replace(learner, initial=initial)
  return learner, searched.calls + calls


def train(config, learner, env, line_up, problems, tasks, seed, folder, paid):
  """Trains one controller to the end, from its last checkpoint if any."""
  settings = run_lib.RunConfig(
    learner.config.iterations,
    config.validate_every,
    config.checkpoint_every,
    patience=config.patience,
  )
  shown = {'solved': 'rollout/solved_rate'}
  score = lambda state: validate(
    config, env, line_up, tasks, learner, state, seed
  )
  with run_lib.Run(
    folder,
    learner.initial,
    settings,
    name=f'train seed {seed}',
    shown=shown,
    calls=paid,
  ) as training:
    training.validate(score)
    for _ in training.steps():
      rollout, played = learner.sample(training.state, env, problems, seed)
      state, row = learner.update(training.state, rollout)
      training.log(state, row | played)
      training.validate(score)


def validate(config, env, line_up, tasks, learner, state, seed):
  """pass@1 of the greedy policy on validation, mean over all budgets.

  All controllers are validated in the same worlds, so that a cache has most.
  """
  policy = policies.controller(learner.act_greedy, state.params, seed)
  strategy = OverOperators(policy, env.config)
  results = line_up.run_all(
    [
      Game(
        Entrant.of(strategy),
        tasks['validation'],
        config.data.protocol,
        budget,
        world,
      )
      for budget in config.eval.budgets
      for world in range(config.seed, config.seed + config.validate_seeds)
    ]
  )
  return float(np.mean([result.passed.mean() for result in results]))


def restore(learner, folder, which):
  """Parameters of a checkpoint, and the calls of the training so far."""
  state, _ = run_lib.restore(folder, learner.initial, which)
  _, totals = run_lib.restore(folder, learner.initial, 'last')
  return state.params, totals.calls


def save(path, arrays, calls):
  """Writes what was learned to one file, with the calls of its training."""
  content = io.BytesIO()
  np.savez(content, *arrays, calls=calls)
  write_atomically(path, content.getvalue())


def read(path, template):
  """What `save` wrote, as a tree like `template`, and the calls."""
  leaves, structure = jax.tree.flatten(template)
  with np.load(path) as saved:
    calls = int(saved['calls'])
    arrays = [saved[name] for name in saved.files if name != 'calls']
  found, expected = ([np.shape(x) for x in part] for part in (arrays, leaves))
  if found != expected:
    raise ValueError(
      f'{path} holds arrays of the shapes {found}, expected {expected}: other '
      'settings, or another version of this project, made it'
    )
  return structure.unflatten(arrays), calls


def train_bandit(config, env, problems, seed, path, calls, kind, paid=0):
  """A contextual bandit, trained once, and the calls of its training.

  They are as many as `calls`, with those that were paid before the first batch.
  """
  first = bandit.start(env)._replace(calls=paid)
  if not path.exists():
    partial = path.with_suffix('.partial.npz')
    run = first
    if partial.exists():
      (statistics, steps), paid = read(partial, (first.statistics, first.steps))
      run = bandit.Run(statistics, int(steps), paid)
    with tqdm.tqdm(
      total=calls,
      initial=run.calls,
      desc=f'{path.stem} seed {seed}',
      unit='call',
    ) as bar:

      def progress(now, solved):
        bar.set_postfix(solved=f'{solved:.4f}', refresh=False)
        bar.update(now.calls - bar.n)
        if now.steps % config.checkpoint_every == 0:
          save(partial, (*now.statistics, now.steps), now.calls)

      run = bandit.train(
        run,
        env,
        problems,
        config.controller,
        config.bandit,
        seed,
        calls=calls,
        kind=kind,
        progress=progress,
      )
    save(path, [bandits.posterior(run.statistics).theta], run.calls)
    partial.unlink(missing_ok=True)
  weights, paid = read(path, first.statistics.response)
  return OverOperators(policies.linear(weights), env.config), paid
