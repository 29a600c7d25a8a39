"""What a compiled program sends between devices, read from its HLO text.

  found = read(jax.jit(step).lower(*args).compile().as_text())
  sent(found, mesh)  # {'data': 1446880.0}, bytes of one device by mesh axis

Bytes are those of ring algorithms, which move the least: of a buffer of S bytes
in a group of n devices each sends (n - 1) / n * S in an all-gather (S the
result), a reduce-scatter (S the argument) or an all-to-all, twice that in an
all-reduce, and S in a collective-permute.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
import re
from collections.abc import Iterable, Iterator

import numpy as np
from jax.sharding import Mesh

Groups = tuple[tuple[int, ...], ...]

_HEADER = re.compile(r'^(ENTRY )?%?([\w.\-]+) \(.*\) -> .*\{$')
_INSTRUCTION = re.compile(
  r'^\s+(?:ROOT )?%?(?P<name>[\w.\-]+) = (?P<shape>.*?) '
  r'(?P<kind>[a-z][\w\-]*)\((?P<rest>.*)$'
)
_ARRAY = re.compile(r'\b([a-z]\w*)\[([\d,]*)\]')
_CALLED = re.compile(
  r'\b(?:calls|to_apply|true_computation|false_computation)=%?([\w.\-]+)'
)
_BRANCHES = re.compile(r'\bbranch_computations=\{([^}]*)\}')
_LOOP = re.compile(r'\b(condition|body)=%?([\w.\-]+)')
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_GROUPS = re.compile(r'\breplica_groups=\{((?:\{[\d,]*\},?)*)\}')
_IOTA = re.compile(
  r'\breplica_groups=\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?'
)
_MESH = re.compile(
  r'\breplica_groups=mesh\[([^\]]*)\]'
  r'(?:, device_ids=\(\[([\d,]+)\](?:T\(([\d,]+)\))?\))? \{([^}]*)\}'
)
_PAIRS = re.compile(r'\bsource_target_pairs=\{((?:\{\d+,\d+\},?)*)\}')

_KINDS = (
  'all-reduce',
  'all-gather',
  'reduce-scatter',
  'all-to-all',
  'collective-permute',
)
# They communicate, too, but what they send is not in their text.
_UNREADABLE = ('ragged-all-to-all', 'collective-broadcast', 'send', 'recv')
# Computations that these call run as often as the instruction itself.
_CALLERS = ('call', 'fusion', 'conditional', 'async-start')


@dataclasses.dataclass(frozen=True)
class Collective:
  """One communicating instruction.

  Attributes:
    name: of the instruction.
    kind: `all-reduce`, `all-gather`, `reduce-scatter`, `all-to-all` or
      `collective-permute`.
    size: S, bytes of the whole buffer on one device.
    groups: which devices talk with each other, as places in the program's
      device order; for a permutation its pairs.
    times: how often it runs.
    is_exact: False within a loop whose number of trips the compiler does not
      know; it counts as one trip then.
  """

  name: str
  kind: str
  size: int
  groups: Groups
  times: int
  is_exact: bool

  @property
  def sent(self) -> float:
    """Bytes that one device sends in all its runs."""
    count = len(self.groups[0]) if self.groups else 1
    if self.kind == 'collective-permute':
      travels = any(a != b for a, b in self.groups)
      return float(self.size * travels * self.times)
    ways = 2 if self.kind == 'all-reduce' else 1
    return ways * self.size * (count - 1) / count * self.times


def read(text: str) -> tuple[Collective, ...]:
  """All collectives of a program, with how often each runs.

  Every branch of a conditional counts as if it were taken.

  Args:
    text: `compiled.as_text()`.

  Raises:
    ValueError: the text has no entry computation, or an instruction whose
      devices or size cannot be read from it.
  """
  bodies: dict[str, list[re.Match]] = {}
  entry, current = None, None
  for line in text.splitlines():
    if header := _HEADER.match(line):
      current = bodies.setdefault(header[2], [])
      entry = header[2] if header[1] else entry
    elif current is not None and (found := _INSTRUCTION.match(line)):
      current.append(found)
  if entry is None:
    raise ValueError(
      f'no ENTRY computation in {text[:80]!r}...: expected the text of a '
      'compiled program, compiled.as_text()'
    )
  count = math.prod(
    int(number)
    for number in re.findall(
      r'\b(?:num_partitions|replica_count)=(\d+)', text.split('\n', 1)[0]
    )
  )
  return tuple(_walk(bodies, entry, 1, True, count))


def sent(found: Iterable[Collective], mesh: Mesh) -> dict[str, float]:
  """Bytes that one device sends, by the mesh axes that it sends along.

  A name is `data`, or `data+fsdp` for devices that differ in both; `other` for
  groups that are not those of axes, such as a part of one.
  """
  names = _axes(mesh)
  total: dict[str, float] = collections.defaultdict(float)
  for one in found:
    if one.sent:
      key = frozenset(frozenset(group) for group in one.groups)
      total[names.get(key, 'other')] += one.sent
  return dict(total)


def _axes(mesh: Mesh) -> dict[frozenset, str]:
  """The name of each partition of the devices into groups along axes."""
  ids = np.arange(mesh.size).reshape(mesh.devices.shape)
  wide = [i for i, size in enumerate(mesh.devices.shape) if size > 1]
  names = {}
  for length in range(1, len(wide) + 1):
    for axes in itertools.combinations(wide, length):
      groups = _along(ids, axes)
      name = '+'.join(mesh.axis_names[i] for i in axes)
      names[frozenset(frozenset(group) for group in groups)] = name
  return names


def _walk(
  bodies: dict[str, list[re.Match]],
  name: str,
  times: int,
  is_exact: bool,
  count: int,
) -> Iterator[Collective]:
  for found in bodies.get(name, ()):
    kind, rest = found['kind'], found['rest']
    if kind == 'while':
      trips = _TRIPS.search(rest)
      for role, called in _LOOP.findall(rest):
        runs = (int(trips[1]) if trips else 1) + (role == 'condition')
        known = is_exact and trips is not None
        yield from _walk(bodies, called, times * runs, known, count)
    elif kind in _CALLERS:
      called = _CALLED.findall(rest)
      for branches in _BRANCHES.findall(rest):
        called += [branch.strip().lstrip('%') for branch in branches.split(',')]
      for inner in called:
        yield from _walk(bodies, inner, times, is_exact, count)
    elif (base := kind.removesuffix('-start')) in _KINDS:
      groups = _groups(found, base, count)
      yield Collective(
        name=found['name'],
        kind=base,
        size=_size(found, base, len(groups[0])),
        groups=groups,
        times=times,
        is_exact=is_exact,
      )
    elif base in _UNREADABLE:
      raise ValueError(f'{found[0].strip()[:200]}: what it sends is not known')


def _size(found: re.Match, kind: str, group: int) -> int:
  sizes = [_bytes(*array) for array in _ARRAY.findall(found['shape'])]
  if found['kind'] == 'all-gather-start':  # arguments, then results
    sizes = sizes[len(sizes) // 2 :]
  elif found['kind'] == 'collective-permute-start':  # argument, result, context
    sizes = sizes[1:2]
  # The result is the n-th part of what is reduced.
  return sum(sizes) * (group if kind == 'reduce-scatter' else 1)


def _bytes(dtype: str, shape: str) -> int:
  if dtype in ('token', 'opaque'):
    return 0
  bits = 8 if dtype == 'pred' else int(re.findall(r'\d+', dtype)[0])
  return math.ceil(math.prod(_numbers(shape)) * bits / 8)


def _groups(found: re.Match, kind: str, count: int) -> Groups:
  """See `Collective.groups`; `count` is the number of all devices."""
  rest = found['rest']
  if kind == 'collective-permute':
    if pairs := _PAIRS.search(rest):
      return _listed(pairs[1])
  elif listed := _GROUPS.search(rest):
    return _listed(listed[1]) if listed[1] else (tuple(range(count)),)
  elif iota := _IOTA.search(rest):
    ids = _iota(iota[3], iota[4]).reshape(int(iota[1]), int(iota[2]))
    return tuple(map(tuple, ids.tolist()))
  elif meshed := _MESH.search(rest):
    names, sizes = zip(*_pairs(meshed[1]), strict=True)
    chosen = [name.strip().strip("'") for name in meshed[4].split(',')]
    if set(chosen) <= set(names):
      whole = meshed[2] or str(math.prod(sizes))
      ids = _iota(whole, meshed[3]).reshape(sizes)
      return _along(ids, [names.index(name) for name in chosen])
  raise ValueError(
    f'{found[0].strip()[:300]}: which devices take part cannot be read; teach '
    f'{__name__} this form'
  )


def _pairs(text: str) -> list[tuple[str, int]]:
  """`'a'=2,'b'=4` as pairs."""
  return [(n, int(size)) for n, size in re.findall(r"'(\w+)'=(\d+)", text)]


def _listed(text: str) -> Groups:
  return tuple(
    tuple(_numbers(group)) for group in re.findall(r'\{([\d,]*)\}', text)
  )


def _iota(shape: str, order: str | None) -> np.ndarray:
  """0, 1, ... in a shape, with its axes put in another order."""
  sizes = _numbers(shape)
  ids = np.arange(math.prod(sizes)).reshape(sizes)
  return ids.transpose(_numbers(order)) if order else ids


def _along(ids: np.ndarray, axes: Iterable[int]) -> Groups:
  """Groups of devices that differ in `axes` only."""
  axes = list(axes)
  others = [i for i in range(ids.ndim) if i not in axes]
  size = math.prod(ids.shape[i] for i in axes)
  groups = ids.transpose(*others, *axes).reshape(-1, size)
  return tuple(map(tuple, groups.tolist()))


def _numbers(text: str) -> list[int]:
  return [int(number) for number in text.split(',') if number]
