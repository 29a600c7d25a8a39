"""The frozen suite that ships with the package.

`python -m promptrl_jax.tasks.minicode.suite` generates the file again from the
families; a test asserts that it is byte for byte the same.
"""

from __future__ import annotations

import pathlib

from promptrl_jax.tasks.frozen import FrozenSuite
from promptrl_jax.tasks.minicode import generate

SUITE = FrozenSuite(
  pathlib.Path(__file__).parent / 'minicode.jsonl.gz',
  generate.generate,
  {split: split for split in ('train', 'validation', 'test', 'ood')},
)

if __name__ == '__main__':
  SUITE.freeze()
