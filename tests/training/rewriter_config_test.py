"""Shapes that hold any batch, shared by processes."""

import pytest

from promptrl_jax.training.lm_rollout import RolloutConfig
from promptrl_jax.training.packing import PackingConfig
from promptrl_jax.training.rewriter_config import RewriterConfig

# 6 prompts x 4 completions in rows of 5: 5 rows for one process, 3 for each of
# two, which have 12 completions.
CONFIG = RewriterConfig(
  iterations=1,
  packing=PackingConfig(16, lanes=5, lane_size=8, sequences=5),
  rows_per_piece=1,
  rollout=RolloutConfig(prompts=6, group=4),
)


@pytest.mark.parametrize(
  ('shards', 'processes', 'rows_of_each', 'micro_batches'),
  [(1, 1, 6, 6), (2, 1, 6, 3), (2, 2, 3, 3), (4, 2, 4, 2), (3, 3, 2, 2)],
)
def test_each_process_has_rows_for_its_longest_batch(
  shards, processes, rows_of_each, micro_batches
):
  shaped = CONFIG.shaped(shards, processes)
  assert shaped.packing.row_multiple == rows_of_each
  assert shaped.update.micro_batches == micro_batches
  # A micro-batch takes a row of each part of the mesh.
  assert rows_of_each * processes == micro_batches * shards
  assert rows_of_each * 5 * processes >= 24


def test_prompts_that_processes_cannot_share_are_refused():
  with pytest.raises(ValueError, match=r'rollout\.prompts=6 .* 4 processes'):
    CONFIG.shaped(4, 4)
