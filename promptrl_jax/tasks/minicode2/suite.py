"""The frozen suite that ships with the package.

`python -m promptrl_jax.tasks.minicode2.suite` generates the file again from the
grammar; a test asserts that it is byte for byte the same.
"""

from __future__ import annotations

import pathlib

from promptrl_jax.tasks.frozen import FrozenSuite
from promptrl_jax.tasks.minicode2 import generate

# What learns to choose or write prompts is trained on `policy`.
SUITE = FrozenSuite(
  pathlib.Path(__file__).parent / 'minicode2.jsonl.gz',
  generate.generate,
  {'train': 'policy'}
  | {split: split for split in generate.SPLITS if split != 'policy'},
)

if __name__ == '__main__':
  SUITE.freeze()
