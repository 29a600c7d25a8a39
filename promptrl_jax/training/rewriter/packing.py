"""Sequences of unequal length as rows of fixed shape with little padding.

A row is a block of prompt tokens and several lanes of completion tokens (see
`models.attention.SharedPrefix`). A prompt lies in a row once, however many of
its completions do: the eight completions of a group of GRPO cost one prompt.
Completions lie one after another in a lane, so that short ones share it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct


@dataclasses.dataclass(frozen=True)
class PackingConfig:
  """The shape of a row; each shape is compiled once.

  Attributes:
    prompt_size: P, prompt tokens of a row.
    lanes: S, lanes of a row.
    lane_size: C, completion tokens of a lane.
    sequences: Q, completions of a row at most.
    row_multiple: rows are filled up with empty ones to a multiple of this:
      minibatches x micro-batches x devices that rows are split over.
  """

  prompt_size: int
  lanes: int
  lane_size: int
  sequences: int
  row_multiple: int = 1


@struct.dataclass
class Packed:
  """R rows of T = P + S * C tokens.

  Attributes:
    tokens: int32 [R, T].
    positions: int32 [R, T], of each token in its own text.
    segments: int32 [R, T], the prompt of the row that a token belongs to or
      follows, from 1; 0 is padding.
    completions: int32 [R, S, C], the completion of the row that a token belongs
      to, from 1; 0 is padding.
    predictors: int32 [R, S * C], place in the row of the token before.
    places: int32 [R, Q, C], where the tokens of a completion lie in S * C.
    mask: bool [R, Q, C], which of them there are.
    sequence: int32 [R, Q], the number of the completion in the batch, or -1.
  """

  tokens: Any
  positions: Any
  segments: Any
  completions: Any
  predictors: Any
  places: Any
  mask: Any
  sequence: Any


class _Row:
  """A row that is being filled."""

  def __init__(self, config: PackingConfig):
    self.free = [config.lane_size] * config.lanes
    self.prompts: dict[int, int] = {}  # prompt -> where it starts
    self.prompt_end = 0
    self.seats: list[tuple[int, int]] = []  # completion, place in S * C


def pack(
  prompts: Sequence[Sequence[int]],
  completions: Sequence[Sequence[int]],
  owners: Sequence[int],
  config: PackingConfig,
) -> Packed:
  """Packs completions beside their prompts, longest first, best fit.

  Args:
    prompts: token ids of each prompt.
    completions: token ids of each completion, one or more each.
    owners: the prompt that each completion follows.
    config: the shape of a row.

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
    row.seats.append((number, lane * config.lane_size + start))
    row.free[lane] -= size
  rows += [_Row(config) for _ in range(-len(rows) % config.row_multiple)]
  return _filled(rows, prompts, completions, owners, config)


def part_of(packed: Packed, rows: int, first: int) -> Packed:
  """Rows of one process as its part of a batch of several.

  Args:
    packed: at most `rows` rows.
    rows: of every process; empty ones fill up.
    first: number of its first completion in the batch.
  """
  extra = rows - len(packed.tokens)
  fill = lambda x: np.pad(x, [(0, extra), *[(0, 0)] * (x.ndim - 1)])
  # 0 is no completion once 1 is the first.
  numbers = np.where(packed.sequence >= 0, packed.sequence + first + 1, 0)
  numbered = dataclasses.replace(packed, sequence=numbers)
  filled = jax.tree.map(fill, numbered)
  return dataclasses.replace(filled, sequence=np.int32(filled.sequence) - 1)


def _order(completions, owners) -> list[int]:
  """Completions of one prompt together, prompts with most tokens first."""
  tokens: dict[int, int] = {}
  for owner, completion in zip(owners, completions, strict=True):
    tokens[owner] = tokens.get(owner, 0) + len(completion)
  return sorted(
    range(len(completions)),
    key=lambda i: (-tokens[owners[i]], owners[i], -len(completions[i])),
  )


def _find(rows, size, owner, prompt_size, config) -> tuple[_Row, int]:
  """The fullest lane that has room, of a row that has the prompt if any."""
  best, found = None, None
  for row in rows:
    if len(row.seats) == config.sequences:
      continue
    is_new = owner not in row.prompts
    if is_new and row.prompt_end + prompt_size > config.prompt_size:
      continue
    for lane, free in enumerate(row.free):
      if free >= size and (best is None or (is_new, free) < best):
        best, found = (is_new, free), (row, lane)
  if found is None:
    rows.append(_Row(config))
    return rows[-1], 0
  return found


def _filled(rows, prompts, completions, owners, config) -> Packed:
  r, p, q = len(rows), config.prompt_size, config.sequences
  s, c = config.lanes, config.lane_size
  zeros = lambda *shape: np.zeros((r, *shape), np.int32)
  packed = Packed(
    tokens=zeros(p + s * c),
    positions=zeros(p + s * c),
    segments=zeros(p + s * c),
    completions=zeros(s, c),
    predictors=zeros(s * c),
    places=zeros(q, c),
    mask=np.zeros((r, q, c), bool),
    sequence=np.full((r, q), -1, np.int32),
  )
  for i, row in enumerate(rows):
    segment = {owner: n for n, owner in enumerate(row.prompts, start=1)}
    for owner, start in row.prompts.items():
      where = slice(start, start + len(prompts[owner]))
      packed.tokens[i, where] = prompts[owner]
      packed.positions[i, where] = np.arange(len(prompts[owner]))
      packed.segments[i, where] = segment[owner]
    for n, (number, start) in enumerate(row.seats):
      owner, size = owners[number], len(completions[number])
      places = start + np.arange(size)
      prompt_size = len(prompts[owner])
      packed.tokens[i, p + places] = completions[number]
      packed.positions[i, p + places] = prompt_size + np.arange(size)
      packed.segments[i, p + places] = segment[owner]
      packed.completions[i].reshape(-1)[places] = n + 1
      packed.predictors[i, places] = p + places - 1
      packed.predictors[i, start] = row.prompts[owner] + prompt_size - 1
      packed.places[i, n, :size] = places
      packed.mask[i, n, :size] = True
      packed.sequence[i, n] = number
  return packed


def _check(prompts, completions, config) -> None:
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


def spread(packed: Packed, values: np.ndarray) -> np.ndarray:
  """Values of completions [N, C] or [N] in rows: [R, Q, C] or [R, Q].

  Where there is no completion or token they are 0.
  """
  values = np.asarray(values)
  out = values[np.maximum(packed.sequence, 0)]
  if values.ndim == 1:
    return np.where(packed.sequence >= 0, out, np.zeros_like(out))
  out = out[..., : packed.mask.shape[-1]]
  wide = [(0, 0)] * 2 + [(0, packed.mask.shape[-1] - out.shape[-1])]
  return np.where(packed.mask, np.pad(out, wide), np.zeros((), out.dtype))


def gather(packed: Packed, values: Any, count: int) -> np.ndarray:
  """Values of rows [R, Q, C] by completion: [N, C], 0 where there is none.

  Args:
    packed: the rows.
    values: [R, Q, C].
    count: N, completions of the batch.
  """
  values = np.asarray(values)
  out = np.zeros((count, values.shape[-1]), values.dtype)
  there = packed.sequence >= 0
  out[packed.sequence[there]] = np.where(packed.mask, values, 0)[there]
  return out


def of_sequences(packed: Packed, values: jax.Array) -> jax.Array:
  """Values of lane tokens [R, S * C] by completion: [R, Q, C]."""
  places = packed.places.reshape(len(packed.places), -1)
  chosen = jnp.take_along_axis(values, places, axis=1)
  return chosen.reshape(packed.places.shape)
