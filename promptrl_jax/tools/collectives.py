"""Bytes that a compiled program sends between devices, read from its HLO text.

  collectives = read(jax.jit(step).lower(*args).compile().as_text())
  sent(collectives, mesh)  # {'data': 1446880.0}: bytes per device and mesh axis

Bytes are counted for ring algorithms, which send the least. In a group of n
devices and for a buffer of S bytes, each device sends (n - 1) / n * S in an
all-gather (S is the result), a reduce-scatter (S is the argument) or an
all-to-all, twice that in an all-reduce, and S in a collective-permute.
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
  *('all-reduce', 'all-gather', 'reduce-scatter', 'all-to-all'),
  'collective-permute',
)
# Collectives whose HLO text does not say how many bytes they send.
_UNREADABLE = ('ragged-all-to-all', 'collective-broadcast', 'send', 'recv')
# Instructions whose called computations run as often as the instruction.
_CALLERS = ('call', 'fusion', 'conditional', 'async-start')


@dataclasses.dataclass(frozen=True)
class Collective:
  """An instruction that exchanges data between devices.

  Attributes:
    kind: `all-reduce`, `all-gather`, `reduce-scatter`, `all-to-all` or
      `collective-permute`.
    size: S, the bytes of the whole buffer on one device.
    groups: groups of devices that exchange data, as indices into the program's
      device order; for a permutation the (source, target) pairs.
    times: number of runs in one run of the program.
    is_exact: False if the instruction is in a loop whose trip count is unknown
      to the compiler; such a loop counts as one trip.
  """

  name: str
  kind: str
  size: int
  groups: Groups
  times: int
  is_exact: bool

  @property
  def sent(self) -> float:
    """Bytes that one device sends in all runs of the instruction."""
    count = len(self.groups[0]) if self.groups else 1
    if self.kind == 'collective-permute':
      moves = any(source != target for source, target in self.groups)
      return float(self.size * moves * self.times)
    passes = 2 if self.kind == 'all-reduce' else 1
    return passes * self.size * (count - 1) / count * self.times


def read(text: str) -> tuple[Collective, ...]:
  """Returns all collectives of a program, from `compiled.as_text()`.

  Every branch of a conditional is counted.

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
    elif current is not None and (match := _INSTRUCTION.match(line)):
      current.append(match)
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


def sent(collectives: Iterable[Collective], mesh: Mesh) -> dict[str, float]:
  """Returns the bytes that one device sends, by axis of the program's mesh.

  The key is `data+fsdp` for groups of devices that differ in both axes, and
  `other` for groups that do not follow the axes.
  """
  names = _axes(mesh)
  total: dict[str, float] = collections.defaultdict(float)
  for collective in collectives:
    if collective.sent:
      key = frozenset(frozenset(group) for group in collective.groups)
      total[names.get(key, 'other')] += collective.sent
  return dict(total)


def _axes(mesh: Mesh) -> dict[frozenset, str]:
  """Names each partition of the devices into groups along mesh axes."""
  ids = np.arange(mesh.size).reshape(mesh.devices.shape)
  split = [i for i, size in enumerate(mesh.devices.shape) if size > 1]
  names = {}
  for length in range(1, len(split) + 1):
    for axes in itertools.combinations(split, length):
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
  """Yields the collectives of a computation and of all that it calls.

  Args:
    bodies: matches of `_INSTRUCTION` by name of the computation.
    name: the computation.
    times: number of its runs.
    is_exact: whether `times` is known.
    count: number of devices of the program.
  """
  for match in bodies.get(name, ()):
    kind, rest = match['kind'], match['rest']
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
      groups = _groups(match, base, count)
      yield Collective(
        name=match['name'],
        kind=base,
        size=_size(match, base, len(groups[0])),
        groups=groups,
        times=times,
        is_exact=is_exact,
      )
    elif base in _UNREADABLE:
      raise ValueError(
        f'{match[0].strip()[:200]}: the bytes that it sends are not in its text'
      )


def _size(match: re.Match, kind: str, group: int) -> int:
  """Returns `Collective.size`; `group` is the number of devices of a group."""
  sizes = [_bytes(*array) for array in _ARRAY.findall(match['shape'])]
  if match['kind'] == 'all-gather-start':  # arguments, then results
    sizes = sizes[len(sizes) // 2 :]
  elif match['kind'] == 'collective-permute-start':  # argument, result, context
    sizes = sizes[1:2]
  # The result of a reduce-scatter is one n-th of its argument.
  return sum(sizes) * (group if kind == 'reduce-scatter' else 1)


def _bytes(dtype: str, shape: str) -> int:
  """Returns the bytes of an array such as `f32[4,8]`."""
  if dtype in ('token', 'opaque'):
    return 0
  bits = 8 if dtype == 'pred' else int(re.findall(r'\d+', dtype)[0])
  return math.ceil(math.prod(_numbers(shape)) * bits / 8)


def _groups(match: re.Match, kind: str, count: int) -> Groups:
  """Returns `Collective.groups`; `count` is the number of all devices."""
  rest = match['rest']
  if kind == 'collective-permute':
    if pairs := _PAIRS.search(rest):
      return _listed(pairs[1])
  elif listed := _GROUPS.search(rest):
    return _listed(listed[1]) if listed[1] else (tuple(range(count)),)
  elif iota := _IOTA.search(rest):
    ids = _iota(iota[3], iota[4]).reshape(int(iota[1]), int(iota[2]))
    return tuple(map(tuple, ids.tolist()))
  elif meshed := _MESH.search(rest):
    # The axes of the mesh: 'a'=2,'b'=4.
    names = re.findall(r"'(\w+)'=", meshed[1])
    sizes = [int(size) for size in re.findall(r'=(\d+)', meshed[1])]
    chosen = [name.strip().strip("'") for name in meshed[4].split(',')]
    if set(chosen) <= set(names):
      shape = meshed[2] or str(math.prod(sizes))
      ids = _iota(shape, meshed[3]).reshape(sizes)
      return _along(ids, [names.index(name) for name in chosen])
  raise ValueError(
    f'{match[0].strip()[:300]}: the groups of devices cannot be read; '
    f'{__name__} needs a pattern for this form'
  )


def _listed(text: str) -> Groups:
  return tuple(
    tuple(_numbers(group)) for group in re.findall(r'\{([\d,]*)\}', text)
  )


def _iota(shape: str, order: str | None) -> np.ndarray:
  """Returns 0, 1, ... in a shape, with its axes transposed to `order`."""
  sizes = _numbers(shape)
  ids = np.arange(math.prod(sizes)).reshape(sizes)
  return ids.transpose(_numbers(order)) if order else ids


def _along(ids: np.ndarray, axes: Iterable[int]) -> Groups:
  """Returns the groups of devices that differ in `axes` only."""
  axes = list(axes)
  others = [i for i in range(ids.ndim) if i not in axes]
  size = math.prod(ids.shape[i] for i in axes)
  groups = ids.transpose(*others, *axes).reshape(-1, size)
  return tuple(map(tuple, groups.tolist()))


def _numbers(text: str) -> list[int]:
  return [int(number) for number in text.split(',') if number]
