from __future__ import annotations

import csv

import numpy as np
import pytest

from promptrl_jax.evaluation import cells, report


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'soft': np.zeros((3, 29))}, r'soft has shape \(3, 29\), expected \(3, 3'),
    ({'passed': np.zeros(30, bool)}, r'passed must have shape \[seeds'),
    ({'calls': np.zeros((3, 30))}, 'calls has dtype float64, expected int'),
    ({'passed': np.zeros((3, 30))}, 'passed has dtype float64, expected bool'),
    ({'calls': np.full((3, 30), 5)}, r"calls exceeds the budget .*'mini/0'"),
    ({'attempts': np.full((3, 30), -1)}, 'attempts is negative'),
    ({'soft': np.full((3, 30), 42.0)}, 'soft must lie in 0..1'),
    ({'soft': np.full((3, 30), 1.0)}, 'soft disagrees with passed'),
    ({'task_ids': ('a',) * 30}, r"names problems twice: \['a'\]"),
    ({'protocol': 'visible'}, "got 'visible'"),
    ({'budget': 0}, 'budget must be at least 1'),
  ],
)
def test_a_wrong_cell_is_refused_by_the_name_of_its_field(
  make_cell, changes, message
):
  with pytest.raises(ValueError, match=message):
    make_cell(**changes)


def test_cells_with_other_tasks_share_no_table(make_cell):
  first = make_cell()
  moved = tuple(reversed(first.task_ids))
  with pytest.raises(ValueError, match='in another order'):
    cells.check_same_tasks(first, make_cell('direct', task_ids=moved))
  other = ('humaneval/0', *first.task_ids[1:])
  with pytest.raises(ValueError, match=r"second \['humaneval/0'\]"):
    cells.check_same_tasks(first, make_cell('direct', task_ids=other))


def test_cells_of_other_numbers_of_seeds_are_not_paired(make_cell):
  with pytest.raises(ValueError, match='have 3 and 2 seeds'):
    cells.check_paired(make_cell(), make_cell('direct', seeds=2))


def test_a_deterministic_cell_pairs_with_seeds(make_cell):
  cells.check_paired(make_cell(), make_cell('direct', seeds=1))


def test_csv_has_a_row_for_each_task_seed_and_cell(tmp_path, make_cell):
  given = [make_cell(), make_cell('direct', seeds=1), make_cell('random')]
  path = cells.write_csv(tmp_path / 'problems.csv', given)
  with open(path, newline='') as file:
    rows = list(csv.DictReader(file))
  assert len(rows) == 30 * (3 + 1 + 3)
  ppo = [row for row in rows if row['strategy'] == 'ppo']
  assert sum(int(row['pass']) for row in ppo) == given[0].passed.sum()
  assert sum(int(row['calls']) for row in ppo) == given[0].calls.sum()


def test_report_recomputed_from_the_csv_is_equal(tmp_path, make_cell):
  given = [
    make_cell(optimisation_calls=120.5),
    make_cell('direct', seeds=1),
    make_cell(budget=8, optimisation_calls=None),
  ]
  path = cells.write_csv(tmp_path / 'problems.csv', given)
  read = cells.read_csv(path)
  before, after = (
    report.summarise(group, subject='ppo', resamples=50)
    for group in (given, read)
  )
  assert after == before


def test_csv_with_a_lost_row_is_refused(tmp_path, make_cell):
  path = cells.write_csv(tmp_path / 'problems.csv', [make_cell()])
  lines = path.read_text().splitlines()
  path.write_text('\n'.join(lines[:40] + lines[41:]))
  with pytest.raises(ValueError, match='rows are missing'):
    cells.read_csv(path)
