"""Tables and figures of a run that trains controller and rewriter in turns."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from promptrl_jax.evaluation import curves, markdown, output, plots, report
from promptrl_jax.evaluation.cells import Cell, write_csv

_PANELS = {
  'eval/validation_pass': 'Validation, greedy: pass@1, mean over budgets',
  'controller/rollout/solved_rate': 'Controller: training episodes solved',
  'rewriter/reward/mean': 'Rewriter: reward of sampled rewrites',
  'rewriter/train/kl': 'Rewriter: KL to the reference, nats per token',
}


def write(
  workdir: pathlib.Path,
  cells: Sequence[Cell],
  header: Mapping[str, Any],
  costs: Mapping[str, Sequence[Mapping[str, int]]],
  subject: str,
  resamples: int,
) -> str:
  """Writes results and figures; returns the report, Markdown.

  `workdir` holds `trace.jsonl` and a folder per arm and seed; `costs` is what
  training took, by arm and seed; the others are compared with `subject`.
  """
  summary = report.summarise(cells, subject=subject, resamples=resamples)
  text = report.to_markdown(summary, header) + '\n' + cost_table(costs)
  report.write_results(
    workdir, {'header': header, 'training': costs, **summary}, text
  )
  write_csv(workdir / 'results.csv', cells)
  plots.solved_at_budget(workdir / 'solved_at_b.png', summary)
  curves.draw(
    workdir / 'curves.png',
    {
      arm: [
        list(output.read_jsonl(workdir / arm / f'seed_{seed}/metrics.jsonl'))
        for seed in header['seeds']
      ]
      for arm in costs
    },
    _PANELS,
    'budget/coder_calls',
    'coder calls in training',
  )
  trace = output.read_jsonl(workdir / 'trace.jsonl')
  output.draw_actions(workdir, filter(output.of_subject(cells, subject), trace))
  return text


def cost_table(costs: Mapping[str, Sequence[Mapping[str, int]]]) -> str:
  """What the training of each arm took, mean over seeds, as Markdown."""
  names = list(next(iter(costs.values()))[0])
  rows = [
    {'arm': arm}
    | {name: f'{np.mean([row[name] for row in of]):,.0f}' for name in names}
    for arm, of in costs.items()
  ]
  return f'## Training\n\n{markdown.table(rows)}\n'
