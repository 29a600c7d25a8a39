"""Tables in Markdown."""

import pytest

from promptrl_jax.evaluation import markdown


@pytest.mark.parametrize(
  ('align', 'rule'),
  [
    ('lr', '|---|---:|---:|'),
    ('r', '|---:|---:|---:|'),
    ('llr', '|---|---|---:|'),
    ('rrlr', '|---:|---:|---|'),
  ],
)
def test_last_side_holds_for_all_columns_that_follow(align, rule):
  text = markdown.table([{'a': 1, 'b': 2, 'c': 3}], align)
  assert text.splitlines() == ['| a | b | c |', rule, '| 1 | 2 | 3 |']


def test_rows_are_printed_under_the_headings_of_the_first():
  rows = [{'name': 'direct', 'B': 1}, {'B': 16, 'name': '', 'more': 2}]
  assert markdown.table(rows) == (
    '| name | B |\n|---|---:|\n| direct | 1 |\n|  | 16 |'
  )


def test_without_rows_there_is_no_table():
  assert markdown.table([]) == ''


def test_value_ends_no_cell_and_no_row():
  text = markdown.table([{'text': 'a|b\n\nc', 'n': 1}])
  assert text.splitlines()[2:] == [r'| a\|b c | 1 |']


def test_missing_value_is_an_error():
  with pytest.raises(KeyError, match='b'):
    markdown.table([{'a': 1, 'b': 2}, {'a': 1}])


def test_shares_are_printed_in_percent():
  row = {'mean': 0.25, 'gain': 0.0149, 'low': -0.5, 'high': 1.0}
  assert markdown.interval(row) == '25.0 [-50.0, 100.0]'
  assert markdown.interval(row, 'gain', '+') == '+1.5 [-50.0, +100.0]'
  assert markdown.points(0.0149) == '1.5'
  assert markdown.points(0.0149, '+') == '+1.5'
