"""Packs completions of unequal length into rows of fixed shape.

A row is a block of prompt tokens and several lanes of completion tokens (see
`models.attention.SharedPrefix`). A prompt lies in a row once, however many of
its completions do: a group of eight completions costs one prompt. Completions
lie one after another in a lane, so that short ones share it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from promptrl_jax.settings import derived


@dataclasses.dataclass(frozen=True)
class PackingConfig:
  """The shape of a row; each shape is compiled once.

  Attributes:
    prompt_size: P, prompt tokens of a row.
    lanes: S, lanes of a row.
    lane_size: C, completion tokens of a lane.
    sequences: Q, most completions of a row.
    row_multiple: empty rows are added up to a multiple of this number:
      minibatches x micro-batches x devices that rows are split over; set by
      `TrainConfig.shaped`.
  """

  prompt_size: int = 256
  lanes: int = 8
  lane_size: int = 64
  sequences: int = 32
  row_multiple: int = derived(1)


@struct.dataclass
class Packed:
  """R rows of T = P + S * C tokens; NumPy arrays on the host, or on devices.

  Attributes:
    tokens: int32 [R, T].
    positions: int32 [R, T], position of each token in its own text.
    segments: int32 [R, T], number within the row, from 1, of the prompt that a
      token belongs to or follows; 0 is padding.
    completions: int32 [R, S, C], number within the row, from 1, of the
      completion that a token belongs to; 0 is padding.
    predictors: int32 [R, S * C], index in the row of the token before.
    places: int32 [R, Q, C], indices of a completion's tokens in S * C.
    mask: bool [R, Q, C], valid tokens of `places`.
    sequence: int32 [R, Q], index of the completion in the batch, or -1.
  """

  tokens: jax.Array
  positions: jax.Array
  segments: jax.Array
  completions: jax.Array
  predictors: jax.Array
  places: jax.Array
  mask: jax.Array
  sequence: jax.Array


class _Row:
  """A row that is being filled."""

  def __init__(self, config: PackingConfig):
    self.free = [config.lane_size] * config.lanes
    self.prompts: dict[int, int] = {}  # prompt -> index of its first token
    self.prompt_end = 0
    self.entries: list[tuple[int, int]] = []  # completion, index in S * C


def pack(
  prompts: Sequence[Sequence[int]],
  completions: Sequence[Sequence[int]],
  owners: Sequence[int],
  config: PackingConfig,
) -> Packed:
  """Packs completions beside their prompts, longest first, best fit.

  `owners` has the index of the prompt that each completion follows; prompts and
  completions are token ids.

  Raises:
    ValueError: a prompt or a completion is empty or does not fit into a row.
  """
  _check(prompts, completions, config)
  rows: list[_Row] = []
  for number in _order(completions, owners):
    size, owner = len(completions[number]), owners[number]
    row, lane = _find(rows, size, owner, len(prompts[owner]), config)
    if owner not in row.prompts:
      row.prompts[owner] = row.prompt_end
      row.prompt_end += len(prompts[owner])
    start = config.lane_size - row.free[lane]
    row.entries.append((number, lane * config.lane_size + start))
    row.free[lane] -= size
  rows += [_Row(config) for _ in range(-len(rows) % config.row_multiple)]
  return _filled(rows, prompts, completions, owners, config)


def part_of(packed: Packed, rows: int, first: int) -> Packed:
  """Returns the rows of one process as its part of a batch of all processes.

  Empty rows are added up to `rows`, the number of every process; `first` is the
  index in the batch of the first completion of this process.
  """
  extra = rows - len(packed.tokens)
  fill = lambda x: np.pad(x, [(0, extra), *[(0, 0)] * (x.ndim - 1)])
  # Padding adds zeros, so completions are counted from 1 meanwhile.
  numbers = np.where(packed.sequence >= 0, packed.sequence + first + 1, 0)
  numbered = dataclasses.replace(packed, sequence=numbers)
  filled = jax.tree.map(fill, numbered)
  return dataclasses.replace(filled, sequence=np.int32(filled.sequence) - 1)


def _order(
  completions: Sequence[Sequence[int]], owners: Sequence[int]
) -> list[int]:
  """Sorts completions by prompt, prompts with most tokens first."""
  tokens: dict[int, int] = {}
  for owner, completion in zip(owners, completions, strict=True):
    tokens[owner] = tokens.get(owner, 0) + len(completion)
  return sorted(
    range(len(completions)),
    key=lambda i: (-tokens[owners[i]], owners[i], -len(completions[i])),
  )


def _find(
  rows: list[_Row],
  size: int,
  owner: int,
  prompt_size: int,
  config: PackingConfig,
) -> tuple[_Row, int]:
  """Returns the fullest lane with room, in a row that has the prompt if any."""
  best, lane_found = None, None
  for row in rows:
    if len(row.entries) == config.sequences:
      continue
    is_new = owner not in row.prompts
    if is_new and row.prompt_end + prompt_size > config.prompt_size:
      continue
    for lane, free in enumerate(row.free):
      if free >= size and (best is None or (is_new, free) < best):
        best, lane_found = (is_new, free), (row, lane)
  if lane_found is None:
    rows.append(_Row(config))
    return rows[-1], 0
  return lane_found


def _filled(
  rows: Sequence[_Row],
  prompts: Sequence[Sequence[int]],
  completions: Sequence[Sequence[int]],
  owners: Sequence[int],
  config: PackingConfig,
) -> Packed:
  """Writes the arrays of rows whose layout is known."""
  r, p, q = len(rows), config.prompt_size, config.sequences
  s, c = config.lanes, config.lane_size
  zeros = lambda *shape: np.zeros((r, *shape), np.int32)
  out: dict[str, Any] = {
    'tokens': zeros(p + s * c),
    'positions': zeros(p + s * c),
    'segments': zeros(p + s * c),
    'completions': zeros(s, c),
    'predictors': zeros(s * c),
    'places': zeros(q, c),
    'mask': np.zeros((r, q, c), bool),
    'sequence': np.full((r, q), -1, np.int32),
  }
  for i, row in enumerate(rows):
    segment = {owner: n for n, owner in enumerate(row.prompts, start=1)}
    for owner, start in row.prompts.items():
      span = slice(start, start + len(prompts[owner]))
      out['tokens'][i, span] = prompts[owner]
      out['positions'][i, span] = np.arange(len(prompts[owner]))
      out['segments'][i, span] = segment[owner]
    for n, (number, start) in enumerate(row.entries):
      owner, size = owners[number], len(completions[number])
      places = start + np.arange(size)
      prompt_size = len(prompts[owner])
      out['tokens'][i, p + places] = completions[number]
      out['positions'][i, p + places] = prompt_size + np.arange(size)
      out['segments'][i, p + places] = segment[owner]
      out['completions'][i].reshape(-1)[places] = n + 1
      out['predictors'][i, places] = p + places - 1
      out['predictors'][i, start] = row.prompts[owner] + prompt_size - 1
      out['places'][i, n, :size] = places
      out['mask'][i, n, :size] = True
      out['sequence'][i, n] = number
  return Packed(**out)


def _check(
  prompts: Sequence[Sequence[int]],
  completions: Sequence[Sequence[int]],
  config: PackingConfig,
) -> None:
  for name, texts, limit in (
    ('prompt', prompts, config.prompt_size),
    ('completion', completions, config.lane_size),
  ):
    for number, ids in enumerate(texts):
      if not 0 < len(ids) <= limit:
        raise ValueError(
          f'{name} {number} has {len(ids)} tokens, expected 1 to {limit}: '
          'sample shorter texts or choose larger rows'
        )


def spread(packed: Packed, values: Any) -> np.ndarray:
  """Lays out values of completions [N, C] or [N] in rows: [R, Q, C] or [R, Q].

  Where there is no completion or token the result is 0.
  """
  values, sequence = np.asarray(values), np.asarray(packed.sequence)
  out = values[np.maximum(sequence, 0)]
  if values.ndim == 1:
    return np.where(sequence >= 0, out, np.zeros_like(out))
  out = out[..., : packed.mask.shape[-1]]
  widths = [(0, 0)] * 2 + [(0, packed.mask.shape[-1] - out.shape[-1])]
  return np.where(packed.mask, np.pad(out, widths), np.zeros((), out.dtype))


def gather(packed: Packed, values: Any, count: int) -> np.ndarray:
  """Reads values of rows [R, Q, C] by completion: [`count`, C], padded by 0."""
  values, sequence = np.asarray(values), np.asarray(packed.sequence)
  out = np.zeros((count, values.shape[-1]), values.dtype)
  valid = sequence >= 0
  out[sequence[valid]] = np.where(packed.mask, values, 0)[valid]
  return out


def of_sequences(packed: Packed, values: jax.Array) -> jax.Array:
  """Reads values of lane tokens [R, S * C] by completion: [R, Q, C]."""
  places = packed.places.reshape(len(packed.places), -1)
  chosen = jnp.take_along_axis(values, jnp.asarray(places), axis=1)
  return chosen.reshape(packed.places.shape)
