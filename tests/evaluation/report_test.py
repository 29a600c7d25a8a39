from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from promptrl_jax.evaluation import references, report, statistics, tables

HEADER = {
  'data_hash': 'sha256:12ab',
  'model_hashes': {'coder': '34cd'},
  'seeds': [0, 1, 2],
  'command': 'python -m experiments.evaluate',
}


def _summarise(cells, **options):
  return report.summarise(
    cells, **({'resamples': 200, 'subject': 'ppo'} | options)
  )


def test_summary_totals_equal_the_cells(make_cell):
  cell = make_cell(optimisation_calls=7.0)
  summary = _summarise([cell], subject=None)
  entry = summary['cells'][0]
  assert entry['pass']['mean'] == pytest.approx(cell.passed.sum() / 90)
  assert entry['soft']['mean'] == pytest.approx(cell.soft.mean())
  assert entry['calls'] == pytest.approx(cell.calls.mean())
  assert entry['completion_tokens'] == pytest.approx(
    cell.completion_tokens.mean()
  )
  assert entry['optimisation_calls'] == 7.0
  by_seed = cell.passed.mean(axis=1)
  assert entry['pass']['seed_sd'] == pytest.approx(np.std(by_seed, ddof=1))
  assert entry['pass']['low'] < entry['pass']['mean'] < entry['pass']['high']


def test_calls_that_nobody_counted_are_unknown(make_cell):
  given = [make_cell(optimisation_calls=None), make_cell('direct', seeds=1)]
  entries = tables.cost_table(_summarise(given)).splitlines()[6:]
  assert [row.split(' | ')[-1] for row in entries if row] == [
    'unknown |',
    '0 |',
  ]


def test_summary_is_json_and_repeats(make_cell):
  cells = [make_cell(), make_cell('direct', seeds=1)]
  summary = _summarise(cells)
  assert json.loads(json.dumps(summary, allow_nan=False)) == summary
  assert _summarise(cells) == summary


@pytest.mark.parametrize('outcome', [False, True])
def test_equal_outcomes_still_have_an_interval(make_cell, outcome):
  passed = np.full((3, 30), outcome)
  cell = make_cell(passed=passed, soft=passed.astype(float))
  score = _summarise([cell], subject=None)['cells'][0]['pass']
  expected = statistics.wilson_interval(30 * outcome, 30)
  assert (score['low'], score['high']) == expected


def test_single_runs_are_compared_by_exact_mcnemar(make_cell):
  mine = make_cell(seeds=1, rate=0.8)
  other = make_cell('direct', seeds=1, rate=0.3)
  comparison = _summarise([mine, other])['comparisons'][0]
  exact = statistics.mcnemar_exact(mine.passed[0], other.passed[0])
  assert comparison['pass']['p'] == exact.p
  assert comparison['mcnemar'] == [exact._asdict()]
  assert comparison['pass']['difference'] == pytest.approx(
    (exact.b - exact.c) / 30
  )


def test_families_of_problems_are_the_units_of_a_report(make_cell):
  families = tuple('abcdef'[i // 5] for i in range(30))
  alone = [make_cell(rate=0.8), make_cell('random', rate=0.3)]
  together = [dataclasses.replace(x, families=families) for x in alone]
  by_problem, by_family = (
    _summarise(x)['comparisons'][0]['pass'] for x in (alone, together)
  )
  assert by_family['difference'] == by_problem['difference']
  assert by_family['p'] >= 2 / 2**6 > by_problem['p']
  first, second = (_summarise(x)['cells'][0]['pass'] for x in (alone, together))
  assert (first['low'], first['high']) != (second['low'], second['high'])
  single = make_cell(seeds=1, families=families)
  entry = _summarise([single], subject=None)['cells'][0]
  assert entry['pass']['interval'] == 'bootstrap'


def test_several_seeds_are_compared_over_problems(make_cell):
  mine, other = make_cell(rate=0.8), make_cell('random', rate=0.3)
  comparison = _summarise([mine, other])['comparisons'][0]
  assert len(comparison['mcnemar']) == 3
  assert comparison['pass']['p'] == statistics.permutation_test(
    mine.passed, other.passed, permutations=200
  )
  assert comparison['pass']['beats']


def test_comparisons_keep_to_one_budget_and_are_adjusted_together(make_cell):
  rates = {'ppo': 0.8, 'direct': 0.3, 'random': 0.6, 'bandit': 0.7}
  cells = [
    make_cell(name, budget=budget, rate=rate)
    for name, rate in rates.items()
    for budget in (2, 4)
  ]
  cells.append(make_cell('direct', budget=8))
  comparisons = _summarise(cells)['comparisons']
  assert len(comparisons) == 6
  for metric in ('pass', 'soft'):
    adjusted = statistics.holm([x[metric]['p'] for x in comparisons])
    assert [x[metric]['p_holm'] for x in comparisons] == adjusted.tolist()


def test_only_the_planned_rivals_are_compared(make_cell):
  cells = [make_cell(x, rate=0.6) for x in ('ppo', 'direct', 'bandit')]
  comparisons = _summarise(cells, rivals=['bandit'])['comparisons']
  assert [x['other'] for x in comparisons] == ['bandit']
  with pytest.raises(ValueError, match=r"\['codet'\]"):
    _summarise(cells, rivals=['bandit', 'codet'])


def test_equal_strategies_do_not_beat_each_other(make_cell):
  comparison = _summarise([make_cell(), make_cell('twin')])['comparisons'][0]
  for metric in ('pass', 'soft'):
    assert comparison[metric]['difference'] == 0.0
    assert comparison[metric]['p'] == 1.0
    assert not comparison[metric]['beats']


def test_cells_of_mixed_protocols_are_refused(make_cell):
  cells = [make_cell(), make_cell('direct', protocol='oracle')]
  with pytest.raises(ValueError, match=r"\['oracle', 'visible1'\] in one"):
    _summarise(cells)


@pytest.mark.parametrize(
  ('second', 'message'),
  [
    ({'strategy': 'ppo'}, 'given twice'),
    ({'strategy': 'direct', 'problems': 29}, 'task ids of'),
    ({'strategy': 'direct', 'seeds': 2}, '3 and 2 seeds'),
    ({'strategy': 'direct', 'budget': 8}, 'no budget at which'),
  ],
)
def test_cells_that_do_not_belong_together_are_refused(
  make_cell, second, message
):
  with pytest.raises(ValueError, match=message):
    _summarise([make_cell(), make_cell(**second)])


def test_markdown_shows_scores_costs_tests_and_origin(make_cell):
  cells = [make_cell(rate=0.8), make_cell('direct', seeds=1, rate=0.3)]
  cells.append(make_cell(budget=8, rate=0.8))
  summary = _summarise(cells)
  text = report.to_markdown(summary, HEADER | {'device': 'cpu'})
  for part in (
    '- protocol: visible1',
    '- budget: 4, 8 model calls per problem',
    '- seeds: 0, 1, 2',
    '- data hash: `sha256:12ab`',
    '- model hashes: coder `34cd`',
    '- command: `python -m experiments.evaluate`',
    '- device: cpu',
    '### pass@1, hidden tests',
    '### soft-pass@1, hidden tests',
    '### ppo against its rivals',
  ):
    assert part in text
  score = summary['cells'][0]['pass']
  assert f'| ppo | {100 * score["mean"]:.1f} [' in text
  assert 'oracle' not in text
  assert references.LABEL not in text


def test_oracle_tables_are_labelled_and_never_called_pass_at_1(make_cell):
  cells = [make_cell(x, protocol='oracle') for x in ('ppo', 'direct')]
  text = report.to_markdown(_summarise(cells), HEADER)
  headings = [line for line in text.splitlines() if line.startswith('#')]
  labelled = [line for line in headings if tables.ORACLE_LABEL in line]
  assert len(labelled) == 4
  assert 'pass@1' not in text
  assert 'at most 4 tries' in text


@pytest.mark.parametrize(
  ('header', 'message'),
  [
    ({'data_hash': ''}, r"lacks \['data_hash'\]"),
    ({'seeds': [0]}, 'lists 1 seeds'),
    ({'protocol': 'blind'}, "header says protocol 'blind'"),
  ],
)
def test_a_header_that_cannot_be_right_is_refused(make_cell, header, message):
  summary = _summarise([make_cell()], subject=None)
  with pytest.raises(ValueError, match=message):
    report.to_markdown(summary, HEADER | header)


def test_every_published_row_names_its_source(make_cell):
  summary = _summarise([make_cell()], subject=None)
  published = references.PROMIS_MBPP
  text = report.to_markdown(summary, HEADER, references=published)
  ours, theirs = text.split('### References')
  assert references.LABEL not in ours
  rows = [line for line in theirs.splitlines() if line.startswith('| ')][1:]
  assert len(rows) == len(published) == 15
  assert all(references.LABEL in row for row in rows)
  assert '57.58' in theirs
  assert '57.58' not in ours


def test_published_numbers_golden_values():
  scores = {
    (x.strategy, x.model.split()[0]): (x.strict, x.soft)
    for x in references.PROMIS_MBPP
  }
  assert scores['direct generation', 'CodeLlama-7b-Instruct'] == (41.91, 48.82)
  assert scores['EPiC', 'CodeT5+'] == (41.89, 54.20)
  assert scores['Reflexion', 'CodeLlama-7b-Instruct'] == (52.70, 63.60)
  assert scores['PPO agent (PROMIS)', 'DeepSeek-Coder'] == (85.50, 88.20)


def test_results_are_written_whole_or_not_at_all(tmp_path, make_cell):
  summary = _summarise([make_cell()], subject=None)
  paths = report.write_results(tmp_path / 'run', summary, '# Results\n')
  assert json.loads(paths[0].read_text()) == summary
  assert paths[1].read_text() == '# Results\n'
  broken = summary | {'problems': float('nan')}
  with pytest.raises(ValueError):
    report.write_results(tmp_path / 'run', broken, '# Broken\n')
  assert json.loads(paths[0].read_text()) == summary
  assert paths[1].read_text() == '# Results\n'
  assert sorted(x.name for x in (tmp_path / 'run').iterdir()) == [
    'results.json',
    'results.md',
  ]
