"""The tasks that a config asks for; no flags, so that experiments share it."""

from __future__ import annotations

from promptrl_jax.tasks import mbpp, splits
from promptrl_jax.tasks.minicode import suite


def load_tasks(data):
  """Tasks of the three splits, checked for leaks between them."""
  if data.protocol not in splits.PROTOCOLS:
    raise ValueError(
      f'data.protocol={data.protocol!r}: expected one of {splits.PROTOCOLS}'
    )
  limits = {
    'train': data.train_limit,
    'validation': data.validation_limit,
    'test': data.test_limit,
  }
  parts = {}
  for split, limit in limits.items():
    if data.name == 'minicode':
      loaded = suite.load(split)
    elif data.name == 'mbpp':
      loaded = mbpp.load(split, data.path or None)
    else:
      raise ValueError(f'data.name={data.name!r}: expected minicode or mbpp')
    parts[split] = loaded[:limit] if limit else loaded
  splits.check_no_leak(parts)
  return parts


def describe(data):
  """Name and hash of the data set, for the header of a report."""
  if data.name == 'minicode':
    return f'minicode {suite.digest()}'
  return f'mbpp {mbpp.digest(data.path or None)}'
