"""Which prompt comes from which: a forest, as rows that a report draws.

A prompt that was made of several hangs below the first of them; the others are
named in its row. One whose parents are not there any more is a root.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from promptrl_jax.prompts.prompt import Prompt


@dataclasses.dataclass(frozen=True)
class Node:
  """A prompt in a forest.

  Attributes:
    id: its name, unique in the forest.
    parents: ids of those that it was made of, the main one first.
    text: the prompt.
    score: how good it is; None if that is not known.
  """

  id: str
  parents: tuple[str, ...] = ()
  text: str = ''
  score: float | None = None


@dataclasses.dataclass(frozen=True)
class Row:
  """A node at its place in the drawing.

  Attributes:
    node: what stands there.
    depth: 0 for a root.
    branches: for each level above, whether a line goes on there; the last says
      whether the node has younger siblings. Empty for a root.
    crossed: the parents that it does not hang below, also those that are gone.
  """

  node: Node
  depth: int
  branches: tuple[bool, ...] = ()
  crossed: tuple[str, ...] = ()


def of_prompts(prompts: Iterable[Prompt]) -> list[Node]:
  """Returns the nodes of prompts and their ancestors, the oldest first.

  A score is the number that a prompt's metadata has under `score`.
  """
  known: dict[int, Prompt] = {}
  for prompt in prompts:
    for one in reversed(list(prompt.ancestry())):
      known.setdefault(id(one), one)
  names = {key: f'{place}' for place, key in enumerate(known)}
  return [
    Node(
      names[key],
      () if prompt.parent is None else (names[id(prompt.parent)],),
      prompt.text,
      prompt.metadata.get('score'),
    )
    for key, prompt in known.items()
  ]


def ancestors(nodes: Iterable[Node], ids: Iterable[str]) -> list[Node]:
  """Returns the nodes of some ids and all that they come from, in order."""
  table = {node.id: node for node in nodes}
  wanted, ahead = set(), [name for name in ids if name in table]
  while ahead:
    name = ahead.pop()
    if name in table and name not in wanted:
      wanted.add(name)
      ahead += table[name].parents
  return [node for node in table.values() if node.id in wanted]


def forest(nodes: Iterable[Node]) -> list[Row]:
  """Returns all nodes depth first, siblings in the order that they came in.

  Raises:
    ValueError: two nodes have one id, or one is its own ancestor.
  """
  table: dict[str, Node] = {}
  for node in nodes:
    if node.id in table:
      raise ValueError(f'id {node.id!r} occurs twice: expected unique ids')
    table[node.id] = node
  below: dict[str | None, list[Node]] = {}
  hangs: dict[str, str | None] = {}
  for node in table.values():
    main = next((p for p in node.parents if p in table), None)
    hangs[node.id] = main
    below.setdefault(main, []).append(node)
  rows: list[Row] = []
  # A stack and no recursion: a prompt may have thousands of ancestors.
  stack: list[tuple[Node, tuple[bool, ...]]] = [
    (node, ()) for node in reversed(below.get(None, []))
  ]
  while stack:
    node, branches = stack.pop()
    main = hangs[node.id]
    crossed = tuple(p for p in node.parents if p != main)
    rows.append(Row(node, len(branches), branches, crossed))
    children = below.get(node.id, [])
    for place in reversed(range(len(children))):
      goes_on = place < len(children) - 1
      stack.append((children[place], (*branches, goes_on)))
  if len(rows) < len(table):
    drawn = {row.node.id for row in rows}
    lost = next(key for key in table if key not in drawn)
    raise ValueError(f'{lost!r} is an ancestor of its own: expected a forest')
  return rows


def places(rows: Sequence[Row]) -> list[float]:
  """Returns where the nodes of a drawing stand beside each other, [N].

  Leaves have the whole numbers from 0 on, each other node the middle of its
  children, so that no branch lies over another one.

  Args:
    rows: of `forest`.
  """
  beside = [0.0] * len(rows)
  leaf = sum(
    i + 1 == len(rows) or rows[i + 1].depth <= row.depth
    for i, row in enumerate(rows)
  )
  below: dict[int, list[float]] = {}  # places of children by their depth
  for i in reversed(range(len(rows))):
    children = below.pop(rows[i].depth + 1, None)
    if children:
      beside[i] = (min(children) + max(children)) / 2
    else:
      leaf -= 1
      beside[i] = float(leaf)
    below.setdefault(rows[i].depth, []).append(beside[i])
  return beside


def draw(rows: Iterable[Row], width: int = 60) -> str:
  """Draws a forest in plain text, one line a node.

  Args:
    rows: of `forest`.
    width: most characters of a text that are shown.
  """
  lines = []
  for row in rows:
    stem = ''.join('│  ' if goes_on else '   ' for goes_on in row.branches[:-1])
    if row.branches:
      stem += '├─ ' if row.branches[-1] else '└─ '
    score = '' if row.node.score is None else f' {row.node.score:.3f}'
    crossed = f' (with {", ".join(row.crossed)})' if row.crossed else ''
    text = ' '.join(row.node.text.split())
    if len(text) > width:
      text = text[: width - 1] + '…'
    lines.append(f'{stem}{row.node.id}{score}{crossed}: {text}')
  return '\n'.join(lines)
