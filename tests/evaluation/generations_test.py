"""How prompts evolved, by numbers worked out by hand."""

import json

from promptrl_jax.evaluation import generations


def rows(*best, **measures):
  """Rows of generations 1, 2, ... with this best fitness."""
  blank = dict.fromkeys(generations.MEASURES)
  return [
    {**blank, 'queries': 5 * g, 'generation': g, 'best': value, **measures}
    for g, value in enumerate(best, 1)
  ]


def test_means_go_as_far_as_the_shortest_run():
  one = rows(0.1, 0.2, 0.5, 0.6, variance=0.25)
  two = rows(0.3, 0.2, 0.1, variance=0.75)
  summary = generations.summarise([one, two], threshold=0.5)
  assert [g['generation'] for g in summary['generations']] == [1, 2, 3]
  best = [round(g['best'], 6) for g in summary['generations']]
  assert best == [0.2, 0.2, 0.3]
  last = summary['generations'][-1]
  assert last['variance'] == 0.5 and 'hypervolume' not in last
  assert (
    abs(last['slope'] - (0.2 - 0.1) / 2) < 1e-9
  )  # 0.2 and -0.1 a generation
  assert summary['reached'] == [3, None]
  assert json.loads(json.dumps(summary)) == summary


def test_a_slope_looks_back_over_five_generations():
  slopes = [r['slope'] for r in generations.with_slopes(rows(9, 0, 1, 2, 3, 4))]
  assert slopes[:2] == [0.0, -9.0] and abs(slopes[-1] - 1) < 1e-9


def test_the_table_says_what_was_measured_and_leaves_out_what_stood_still():
  methods = {
    'random': generations.summarise([[], []], 0.4),
    'gpro': generations.summarise(
      [rows(0.1, 0.2, 0.5, hypervolume=0.5), rows(0.3, 0.2, 0.1)], 0.4
    ),
    'nsga2': generations.summarise([rows(0.5, hypervolume=0.5)], 0.4),
  }
  table = generations.to_markdown(methods)
  assert '| method | generations | best | hypervolume | slope |' in table
  assert '| gpro | 3 | 0.200 → 0.300 |  | +0.0500 | 3 (1 of 2) |' in table
  assert '| nsga2 | 1 | 0.500 → 0.500 | 0.500 → 0.500 | +0.0000 |' in table
  assert 'random' not in table
  assert generations.to_markdown({'random': methods['random']}) == ''
