import numpy as np
import pytest

from promptrl_jax.evaluation import instruction_report
from promptrl_jax.evaluation.instruction_report import Scores


def rows(*values):
  return [np.array(v, float) for v in values]


def test_units_are_tasks_or_the_examples_of_one_task():
  np.testing.assert_allclose(
    instruction_report.units(rows([1, 0], [1, 1, 0, 1])), [0.5, 0.75]
  )
  np.testing.assert_allclose(instruction_report.units(rows([1, 0])), [1, 0])


def test_gains_are_paired_with_the_initial_instructions():
  base = rows(*[[0, 0, 1, 0]] * 12)
  better = rows(*[[1, 1, 1, 0]] * 12)
  table = instruction_report.summarise(
    {
      'initial': Scores(base, base),
      'same': Scores(base, base),
      'better': Scores(better, better),
    },
    resamples=200, seed=0,
  )  # fmt: skip
  assert table['better']['gain'] == pytest.approx(
    {'mean': 0.5, 'low': 0.5, 'high': 0.5}
  )
  assert table['same']['p'] == 1.0
  # All twelve differences of one sign: 2 / 2**12, times two comparisons.
  assert table['better']['p'] == pytest.approx(4 / 2**12)
  text = instruction_report.markdown(table)
  assert '| better | 75.0 | 75.0 [75.0, 75.0] | +50.0 [+50.0, +50.0] |' in text


def test_without_a_test_split_there_is_dev_alone():
  table = instruction_report.summarise(
    {'initial': Scores(rows([1, 0])), 'x': Scores(rows([1, 1]))}, 10, 0
  )
  assert table == {'initial': {'dev': 0.5}, 'x': {'dev': 1.0}}
  assert '| x | 100.0 | - | - | - |' in instruction_report.markdown(table)


def test_groups_are_means_over_their_tasks():
  scores = Scores([], rows([1, 0], [1, 1], [0, 0]))
  table = instruction_report.by_group({'initial': scores}, ['b', 'a', 'b'])
  assert table == {'initial': {'a': 1.0, 'b': 0.25}}
  assert '| initial | 100.0 | 25.0 |' in (
    instruction_report.group_markdown(table)
  )
