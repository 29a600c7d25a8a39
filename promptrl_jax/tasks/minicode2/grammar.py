"""Problems as compositions: which elements are kept, what is made of each, and
what all of them become.

  domain   where elements come from, `numbers` of a list
  filter   which are kept              "greater than $k"     x > $k
  map      what is made of each one    "the squares of"      x * x
  reduce   what all of them become     "the sum of"          sum($v)

A *family* is a domain with a map and a reduce, a *template* a family with its
filters, a *problem* a template with its parameters fixed. In texts and programs
`$name` stands for a parameter.
"""

from __future__ import annotations

import dataclasses
import functools
import random
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

# How every plain statement begins.
PLAIN_FRAME = 'Write a function to find'
Params = Mapping[str, Any]
ElementFn = Callable[[random.Random], Any]


@dataclasses.dataclass(frozen=True)
class Piece:
  """A filter, a map or a reduce.

  Attributes:
    name: unique among the pieces of its kind.
    text: its words in a plain statement.
    story: the same in other words, for statements that tell a story.
    codes: programs, one for each reading of the words. Of a filter: a condition
      on `x`, or a list made of `$source`. Of a map: an expression of `x`. Of a
      reduce: lines on `$v`, the last of which is the result.
    params: the values of each parameter.
    exact: words that leave the first reading alone; empty if there is one.
    kind: type of what a map or reduce gives, `int`, `str` or `list`; `same` is
      that of its input.
  """

  name: str
  text: str
  story: str
  codes: tuple[str, ...]
  params: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)
  exact: str = ''
  kind: str = 'same'

  @property
  def is_loose(self) -> bool:
    """Whether its words have several readings."""
    return len(self.codes) > 1


def piece(
  name: str,
  text: str,
  story: str,
  *codes: str,
  exact: str = '',
  kind: str = 'same',
  **params: Sequence[Any],
) -> Piece:
  """Builds a piece; parameters are named after their letter in the texts."""
  return Piece(name, text, story, codes, params, exact, kind)


@dataclasses.dataclass(frozen=True)
class Domain:
  """Where elements come from.

  Attributes:
    name: unique among the domains.
    argument: name of the function's argument.
    source: expression of the argument that gives the elements.
    element: names of one element in programs, `x` or `k, v`.
    kind: type of an element, `int` or `str`; maps of other kinds change it.
    text: the elements in words, plural.
    place: where they are, in words.
    draw: rng -> one element.
    build: elements -> argument.
    sizes: fewest and most elements of an argument.
    filters, maps, reduces: the pieces; reduces by the kind of their input.
  """

  name: str
  argument: str
  source: str
  element: str
  kind: str
  text: str
  place: str
  draw: ElementFn
  build: Callable[[list[Any]], Any]
  sizes: tuple[int, int]
  filters: tuple[Piece, ...]
  maps: tuple[Piece, ...]
  reduces: Mapping[str, tuple[Piece, ...]]

  def families(self) -> Iterator[tuple[Piece, Piece]]:
    """All pairs of a map and a reduce that fit each other."""
    for each in self.maps:
      kind = self.kind if each.kind == 'same' else each.kind
      for reduce in self.reduces[kind]:
        # A count is the same whatever is made of the elements.
        if reduce.name != 'count' or each is self.maps[0]:
          yield each, reduce


@dataclasses.dataclass(frozen=True)
class Template:
  """A problem up to the values of its parameters.

  Attributes:
    reading: which program of its loose filter is meant.
  """

  domain: Domain
  filters: tuple[Piece, ...]
  map: Piece
  reduce: Piece
  reading: int = 0

  @property
  def family(self) -> str:
    return f'{self.domain.name}_{self.map.name}_{self.reduce.name}'

  @property
  def name(self) -> str:
    """`FAMILY/FILTERS`; readings of one template share it."""
    return f'{self.family}/{"+".join(f.name for f in self.filters)}'

  @property
  def pieces(self) -> tuple[Piece, ...]:
    return (*self.filters, self.map, self.reduce)

  @property
  def is_loose(self) -> bool:
    return any(f.is_loose for f in self.filters)

  @property
  def readings(self) -> int:
    """How many programs its words may mean."""
    return max(len(f.codes) for f in self.filters)

  @property
  def kind(self) -> str:
    """Type of the value, `int`, `str` or `list`."""
    kind = self.domain.kind if self.map.kind == 'same' else self.map.kind
    return kind if self.reduce.kind == 'same' else self.reduce.kind

  @functools.cached_property
  def params(self) -> dict[str, Sequence[Any]]:
    """The values of each parameter."""
    pairs = [pair for p in self.pieces for pair in p.params.items()]
    if len(dict(pairs)) != len(pairs):
      raise ValueError(f'{self.name}: two pieces share a parameter')
    return dict(pairs)

  def statement(self, params: Params, *, exact: bool = False) -> str:
    """The plain statement; an `exact` one leaves the first reading alone."""
    texts = [(exact and f.exact) or f.text for f in self.filters]
    kept = ' and '.join(filter(None, texts))
    words = [
      PLAIN_FRAME,
      self.reduce.text,
      self.map.text,
      f'the {self.domain.text}',
      kept,
      f'in {self.domain.place}.',
    ]
    return fill(' '.join(filter(None, words)), params)

  def program(self, params: Params, name: str, result: str = '$v') -> str:
    """The reference program.

    Args:
      params: values of the parameters.
      name: of the function.
      result: what is returned for the value `$v`.
    """
    domain, lines, values = self.domain, [], self.domain.source
    if values != domain.argument:
      lines.append(f'{domain.text} = {values}')
      values = domain.text
    conditions = [f.codes[self.reading % len(f.codes)] for f in self.filters]
    for code in (c for c in conditions if '$source' in c):
      lines.append(f'kept = {code.replace("$source", values)}')
      values = 'kept'
    if condition := ' and '.join(c for c in conditions if '$source' not in c):
      x = domain.element
      whole = f'({x})' if ',' in x else x
      lines.append(f'kept = [{whole} for {x} in {values} if {condition}]')
      values = 'kept'
    if self.map.codes[0]:
      each = self.map.codes[0]
      lines.append(f'values = [{each} for {domain.element} in {values}]')
      values = 'values'
    *steps, value = self.reduce.codes[0].replace('$v', values).split('\n')
    lines += [*steps, f'return {result.replace("$v", value)}']
    body = ''.join(f'  {line}\n' for line in lines)
    return fill(f'def {name}({domain.argument}):\n{body}', params)

  def accepts(self, params: Params) -> Callable[..., bool]:
    """Whether an element is kept, as a function; True where places decide."""
    codes = [f.codes[self.reading % len(f.codes)] for f in self.filters]
    conditions = [c for c in codes if c and '$source' not in c]
    if not conditions:
      return lambda *element: True
    condition = fill(' and '.join(conditions), params)
    return eval(f'lambda {self.domain.element}: {condition}')


def fill(template: str, params: Params) -> str:
  """Substitutes parameters; an unknown `$name` is an error."""
  values = {key: str(value) for key, value in params.items()}
  return string.Template(template).substitute(values)
