"""What a comparison of `experiments.hybrid` leaves: tables, curves, lineage."""

from __future__ import annotations

import json

import numpy as np

from promptrl_jax.evaluation import generations, lineage_report, regret
from promptrl_jax.evolution.population import from_plain
from promptrl_jax.files import write_atomically
from promptrl_jax.training.metrics import MetricWriter

CURVES = ('satisfaction', 'best', 'diversity')  # [T] of each run
_LINEAGE = 'Where the prompts come from'


def write(config, workdir, runs):
  """Writes tables and figures; returns the table."""
  arrays = {
    name: {key: np.array([run[key] for run in of]) for key in CURVES}
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
  summary['evolution'] = {
    name: generations.summarise(
      [run['generations'] for run in of], config.threshold
    )
    for name, of in runs.items()
  }
  tables = (
    regret.to_markdown(summary),
    generations.to_markdown(summary['evolution']),
  )
  text = '\n'.join(filter(None, tables))
  write_atomically(workdir / 'results.json', json.dumps(summary).encode())
  write_atomically(workdir / 'results.md', text.encode())
  prompts = {name: [run['prompts'] for run in of] for name, of in runs.items()}
  write_atomically(workdir / 'prompts.json', json.dumps(prompts).encode())
  report_lineage(workdir, runs[config.methods[-1]][0])
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
  draw_fitness(workdir / 'fitness.png', runs)
  write_curves(workdir / 'curves', runs)
  return text


def draw_fitness(path, runs):
  """Draws what critics expect of the prompts, over generations, if any."""
  shortest = {
    name: min(len(run['generations']) for run in of)
    for name, of in runs.items()
  }
  curves = {
    f'{name}, {key}': np.array(
      [[r[key] for r in run['generations'][:count]] for run in runs[name]]
    )
    for name, count in shortest.items()
    if count
    for key in ('best', 'mean')
  }
  if curves:
    title, label = 'Fitness of the prompts', 'expected satisfaction'
    regret.draw(path, curves, title, label, over='generations')


def write_curves(folder, runs):
  """Writes each run for TensorBoard, over its questions."""
  for name, of in runs.items():
    for i, run in enumerate(of):
      rows = [
        {f'eval/{key}': run[key][at] for key in CURVES}
        for at in range(run['queries'])
      ]
      for row in generations.with_slopes(run['generations']):
        rows[row['queries'] - 1] |= {
          f'eval/generation_{key}': value
          for key, value in row.items()
          if value is not None and key != 'queries'
        }
      with MetricWriter(folder / f'{name}_{i}') as writer:
        for step, row in enumerate(rows, 1):
          writer.write_scalars(step, row)


def report_lineage(workdir, run):
  """Writes what the last prompts of a run come from."""
  members = lineage_report.report(
    workdir,
    from_plain(run['population']),
    from_plain(run['history']).individuals,
    {
      name: lineage_report.Usage(len(heard), tuple(heard))
      for name, heard in run['usage'].items()
    },
    _LINEAGE,
  )
  lineage_report.draw(workdir / 'lineage.png', members, _LINEAGE)
