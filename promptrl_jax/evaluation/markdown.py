"""Tables in Markdown, and the intervals in their cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


def table(rows: Sequence[Mapping[str, object]], align: str = 'lr') -> str:
  """Returns a table, without a line end after its last row.

  Args:
    rows: what is printed by heading; all have the headings of the first one.
      Line ends become spaces, and a bar within a value ends no cell. Without
      rows there is no table: the text is empty.
    align: `l` or `r` for each column from the left; the last of them holds for
      all columns that follow.

  Raises:
    KeyError: a row lacks a heading of the first one.
  """
  if not rows:
    return ''
  headings = list(rows[0])
  sides = align.ljust(len(headings), align[-1])[: len(headings)]
  rules = ['---:' if side == 'r' else '---' for side in sides]
  lines = [_line(headings), f'|{"|".join(rules)}|']
  lines += [_line(row[heading] for heading in headings) for row in rows]
  return '\n'.join(lines)


def _line(values: Iterable[object]) -> str:
  cells = (' '.join(str(value).split()) for value in values)
  return '| ' + ' | '.join(cell.replace('|', '\\|') for cell in cells) + ' |'


def interval(row: Mapping[str, float], of: str = 'mean', sign: str = '') -> str:
  """Returns `mean [low, high]` in percent, with one decimal.

  Args:
    row: has the keys `low`, `high` and that of the value between them.
    of: the key of that value.
    sign: `+` where a positive number is printed with its sign.
  """
  value, low, high = (100 * row[key] for key in (of, 'low', 'high'))
  return f'{value:{sign}.1f} [{low:{sign}.1f}, {high:{sign}.1f}]'


def points(share: float, sign: str = '') -> str:
  """Returns a share in percent, with one decimal."""
  return f'{100 * share:{sign}.1f}'
