"""Shapes of an engine."""

import pytest

from promptrl_jax.sampling.requests import EngineConfig


@pytest.mark.parametrize(
  ('values', 'message'),
  [
    ({'slots': 0}, 'slots=0: expected 1 or more'),
    ({'prompt_lengths': ()}, r'prompt_lengths=\(\): expected one length'),
    (
      {'prompt_lengths': (8, 8)},
      r'prompt_lengths=\(8, 8\): expected ascending',
    ),
    ({'ends': (96, 64)}, r'ends=\(96, 64\): expected ascending lengths'),
    ({'ends': (0, 64)}, r'ends=\(0, 64\): expected ascending lengths'),
  ],
)
def test_shapes_that_make_no_sense_are_refused(values, message):
  with pytest.raises(ValueError, match=message):
    EngineConfig(**values)
