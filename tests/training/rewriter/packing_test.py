"""Packed rows hold every completion once, beside its prompt."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptrl_jax.training.rewriter import packing

CONFIG = packing.PackingConfig(prompt_size=8, lanes=2, lane_size=6, sequences=5)


@st.composite
def batches(draw):
  count = draw(st.integers(1, 5))
  ids = iter(range(1, 10_000))
  text = lambda most: [next(ids) for _ in range(draw(st.integers(1, most)))]
  prompts = [text(8) for _ in range(count)]
  owners = draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=12))
  return prompts, [text(6) for _ in owners], owners


@given(batches())
def test_every_completion_is_there_once_after_its_prompt(batch):
  prompts, completions, owners = batch
  packed = packing.pack(prompts, completions, owners, CONFIG)
  found = {}
  for row, slot in zip(*np.nonzero(packed.sequence >= 0), strict=True):
    places = CONFIG.prompt_size + packed.places[row, slot]
    places = places[packed.mask[row, slot]]
    tokens, segments = packed.tokens[row], packed.segments[row]
    number = int(packed.sequence[row, slot])
    found[number] = tokens[places].tolist()
    (segment,) = set(segments[places])
    before = np.flatnonzero(segments[: CONFIG.prompt_size] == segment)
    assert tokens[before].tolist() == prompts[owners[number]]
    # Each token is predicted at the one before it, the first at the prompt.
    predicted = packed.predictors[row, places - CONFIG.prompt_size]
    assert predicted.tolist() == [before[-1], *places[:-1]]
    size = len(before)
    assert packed.positions[row, before].tolist() == list(range(size))
    steps = packed.positions[row, places] - size
    assert steps.tolist() == list(range(len(places)))
  assert found == dict(enumerate(completions))


@given(batches())
def test_values_come_back_from_rows(batch):
  prompts, completions, owners = batch
  packed = packing.pack(prompts, completions, owners, CONFIG)
  shape = len(completions), CONFIG.lane_size
  values = np.random.default_rng(0).normal(size=shape)
  for number, completion in enumerate(completions):
    values[number, len(completion) :] = 0
  rows = packing.spread(packed, values)
  np.testing.assert_array_equal(
    packing.gather(packed, rows, len(completions)), values
  )


def test_a_group_of_eight_costs_its_prompt_once():
  config = packing.PackingConfig(64, lanes=8, lane_size=128, sequences=8)
  prompts = [list(range(64))] * 4
  completions = [list(range(128))] * 32
  owners = [i // 8 for i in range(32)]
  packed = packing.pack(prompts, completions, owners, config)
  assert packed.tokens.shape == (4, 64 + 8 * 128)
  assert (packed.segments > 0).all()


def test_short_completions_share_a_lane():
  rng = np.random.default_rng(0)
  sizes = np.minimum(256, rng.geometric(1 / 40, 256))
  config = packing.PackingConfig(64, lanes=8, lane_size=256, sequences=128)
  owners = [i // 8 for i in range(256)]
  packed = packing.pack(
    [[1] * 8] * 32, [[1] * n for n in sizes], owners, config
  )
  used = (packed.completions > 0).mean()
  assert used > 0.85, f'{1 - used:.0%} of the lanes is padding'


def test_rows_are_filled_up_to_a_multiple():
  config = packing.PackingConfig(8, 2, 6, 5, row_multiple=4)
  packed = packing.pack([[1]], [[2]], [0], config)
  assert packed.tokens.shape[0] == 4
  assert packed.mask[1:].sum() == 0


@pytest.mark.parametrize(
  ('prompts', 'completions', 'message'),
  [
    ([[1] * 9], [[1]], 'prompt 0 has 9 tokens, expected 1 to 8'),
    ([[1]], [[1] * 7], 'completion 0 has 7 tokens, expected 1 to 6'),
    ([[1]], [[]], 'completion 0 has 0 tokens'),
  ],
)
def test_what_does_not_fit_is_named(prompts, completions, message):
  with pytest.raises(ValueError, match=message):
    packing.pack(prompts, completions, [0], CONFIG)


@given(batches(), st.integers(0, 3), st.integers(0, 50))
def test_rows_become_a_part_of_a_larger_batch(batch, extra, first):
  packed = packing.pack(*batch, CONFIG)
  rows = len(packed.tokens)
  part = packing.part_of(packed, rows + extra, first)
  assert (part.sequence[rows:] == -1).all() and not part.mask[rows:].any()
  assert (part.segments[rows:] == 0).all()
  there = packed.sequence >= 0
  np.testing.assert_array_equal(
    part.sequence[:rows], np.where(there, packed.sequence + first, -1)
  )
  for name in ('tokens', 'positions', 'completions', 'places', 'mask'):
    filled, kept = getattr(part, name), getattr(packed, name)
    np.testing.assert_array_equal(filled[:rows], kept)
    assert filled.dtype == kept.dtype


def test_no_completion_becomes_empty_rows():
  part = packing.part_of(packing.pack([], [], [], CONFIG), 2, first=6)
  assert part.tokens.shape == (2, 20) and not part.mask.any()
  assert (part.sequence == -1).all()
