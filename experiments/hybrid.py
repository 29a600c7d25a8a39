"""Prompts that learn from ratings of the answers that they lead to.

  python -m experiments.hybrid --config=configs/hybrid.py:smoke --workdir=W

A population of prompts evolves, an actor picks which of several answers a
person sees, and critics learn what that person likes (GPRO). The person is
simulated and has a known taste, so that the regret of every method is known.
Writes results.json, results.md, regret.png, satisfaction.png, diversity.png and
prompts.json, the last prompts of each run. A run that was interrupted goes on
with the same command.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib

import numpy as np
import tqdm
from absl import app, flags
from ml_collections import config_flags

from configs.hybrid import EVOLVING, Config
from experiments import session
from promptrl_jax.envs.simulated_user import SimulatedUser
from promptrl_jax.evaluation import regret
from promptrl_jax.evolution import diversity, edits
from promptrl_jax.files import write_atomically
from promptrl_jax.llm.load import load_backend
from promptrl_jax.models import sentence_encoder
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.prompts import catalogue
from promptrl_jax.tasks import queries as queries_lib
from promptrl_jax.tools import command
from promptrl_jax.training import workdir as workdir_lib
from promptrl_jax.training.gpro.features import FeatureMap
from promptrl_jax.training.gpro.learner import make_learner
from promptrl_jax.training.gpro.loop import Loop

_CONFIG = config_flags.DEFINE_config_file(
  'config', 'configs/hybrid.py', lock_config=True
)
_WORKDIR = flags.DEFINE_string('workdir', None, 'Where results go.')
flags.mark_flag_as_required('workdir')

_CURVES = ('satisfaction', 'best', 'diversity')  # [T] of each run
_UNSEEN = 200  # answers by which the critics are checked


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {argv[1:]}')
  with command.in_one_line('interrupted: the same command goes on'):
    run(_CONFIG.value, pathlib.Path(_WORKDIR.value))


def run(config, workdir):
  config = session.begin(Config, config)
  backend = load_backend(config.model, mesh_lib.from_text(config.mesh))
  bank = [query.text for query in queries_lib.load(config.split)]
  features = FeatureMap(
    sentence_encoder.load(config.embedding), bank, config.components
  )
  gpro = dataclasses.replace(
    config.gpro, features=features.size, context=features.components
  )
  learner = make_learner(gpro, config.seed)
  workdir_lib.prepare(workdir, 'hybrid', config, {'model': backend.name})

  # --- Runs, one for each method and person -----------------------------------
  people = range(config.seed, config.seed + config.seeds)
  todo = [(name, seed) for name in config.methods for seed in people]
  runs = {name: [] for name in config.methods}
  with tqdm.tqdm(todo, desc='hybrid', unit='run') as bar:
    for name, seed in bar:
      path = workdir / 'runs' / f'{name}_{seed}.json'
      if not path.exists():
        played = play(config, name, seed, learner, backend, features)
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, json.dumps(played).encode())
      runs[name].append(json.loads(path.read_text()))
      last = {
        n: np.mean([r['last'] for r in of]) for n, of in runs.items() if of
      }
      best = max(last, key=last.__getitem__)
      bar.set_postfix_str(f'best {best} {last[best]:.3f}')

  # --- Report -----------------------------------------------------------------
  print(report(config, workdir, runs))


def play(config, method, seed, learner, backend, features):
  """One person's questions under one method; JSON data."""
  name = method.removesuffix(EVOLVING)
  loop_config = dataclasses.replace(
    config.loop, choose=name, evolves=method.endswith(EVOLVING)
  )
  user = SimulatedUser(config.user, seed)
  rng = np.random.default_rng([seed, 3])
  loop = Loop(
    loop_config,
    learner,
    backend,
    features,
    [catalogue.draw(rng) for _ in range(loop_config.population_size)],
    edits.choose_from(catalogue.ALTERNATIVES),
    seed,
    diversity.word_vectors,
  )
  asked = queries_lib.draw(config.split, config.queries, seed)
  curves = {name: [] for name in _CURVES}
  for at, query in enumerate(asked):
    showing = loop.show(query.text)
    rating = user.rate(query, showing.text, at)
    loop.hear(showing.serial, (rating - 1) / 4)
    loop.learn()
    curves['satisfaction'].append(user.satisfaction(query, showing.text, at))
    curves['best'].append(user.best(query, at))
    curves['diversity'].append(
      diversity.jaccard_diversity(loop.population.texts)
    )
  loop.refine(config.refine_below)
  static, best_static = user.best_static(asked)
  return curves | {
    'last': float(np.mean(curves['satisfaction'][-50:])),
    'best_static': best_static,
    'best_prompt': static.render(),
    'correlation': check_critics(config, user, loop, seed),
    'prompts': loop.population.texts,
    'queries': config.queries,
  }


def check_critics(config, user, loop, seed):
  """Correlation of what critics expect of unseen answers with what is true.

  The answers are those of prompts that are drawn anew to questions on topics
  that nobody has asked about.
  """
  rng = np.random.default_rng([seed, 4])
  asked = queries_lib.draw('test', _UNSEEN // 10, seed)
  expected, true = [], []
  for query in asked:
    genomes = [catalogue.draw(rng) for _ in range(10)]
    answers, scores = loop.expect(genomes, query.text)
    expected += scores
    true += [user.satisfaction(query, a, config.queries) for a in answers]
  return float(np.corrcoef(expected, true)[0, 1])


def report(config, workdir, runs):
  """Writes tables and figures; returns the table."""
  arrays = {
    name: {key: np.array([run[key] for run in of]) for key in _CURVES}
    | {'best_static': np.array([run['best_static'] for run in of])}
    for name, of in runs.items()
  }
  summary = regret.summarise(
    arrays,
    subject=config.methods[-1],
    window=min(50, config.queries // 2),
    drift=config.user.drift,
  )
  for name, of in runs.items():
    found = [run['correlation'] for run in of]
    summary['methods'][name]['correlation'] = float(np.mean(found))
  text = regret.to_markdown(summary)
  write_atomically(workdir / 'results.json', json.dumps(summary).encode())
  write_atomically(workdir / 'results.md', text.encode())
  prompts = {name: [run['prompts'] for run in of] for name, of in runs.items()}
  write_atomically(workdir / 'prompts.json', json.dumps(prompts).encode())
  cumulative = {
    name: np.cumsum(of['best'] - of['satisfaction'], axis=1)
    for name, of in arrays.items()
  }
  mean = lambda row: np.convolve(row, np.ones(25) / 25, 'valid')
  smooth = {
    name: np.array([mean(row) for row in of['satisfaction']])
    for name, of in arrays.items()
  }
  drift = config.user.drift
  for file, curves, title, label in (
    ('regret', cumulative, 'What learning has cost', 'cumulative regret'),
    ('satisfaction', smooth, 'Satisfaction, mean of 25', 'satisfaction'),
    (
      'diversity',
      {name: of['diversity'] for name, of in arrays.items()},
      'Diversity of the prompts',
      'Jaccard distance',
    ),
  ):
    regret.draw(workdir / f'{file}.png', curves, title, label, drift=drift)
  return text


if __name__ == '__main__':
  app.run(main)
