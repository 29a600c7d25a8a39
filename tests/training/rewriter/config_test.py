"""Shapes that hold any batch, shared by processes."""

import dataclasses

import pytest

from promptrl_jax.training.rewriter.advantages import AdvantageConfig
from promptrl_jax.training.rewriter.config import LossConfig, TrainConfig
from promptrl_jax.training.rewriter.packing import PackingConfig
from promptrl_jax.training.rewriter.reference import ReferenceConfig
from promptrl_jax.training.rewriter.rollout import RolloutConfig

# 6 prompts x 4 completions in rows of 5: 5 rows for one process, 3 for each of
# two, which have 12 completions.
CONFIG = TrainConfig(
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
  assert shaped.loss.micro_batches == micro_batches
  # A micro-batch takes a row of each part of the mesh.
  assert rows_of_each * processes == micro_batches * shards
  assert rows_of_each * 5 * processes >= 24


def test_prompts_that_processes_cannot_share_are_refused():
  with pytest.raises(ValueError, match=r'rollout\.prompts=6 .* 4 processes'):
    CONFIG.shaped(4, 4)


PAIRS = dataclasses.replace(
  CONFIG,
  advantage=AdvantageConfig('pairs'),
  loss=LossConfig(kind='reinforce'),
)


def test_phases_follow_one_another_and_share_the_rows():
  base, pairs = (dataclasses.replace(c, iterations=10) for c in (CONFIG, PAIRS))
  thirds = dataclasses.replace(base, loss=LossConfig(minibatches=3))
  config = dataclasses.replace(base, switches=((2, thirds), (7, pairs)))
  found = [config.phase(step) for step in range(10)]
  assert found == [0, 0, 1, 1, 1, 1, 1, 2, 2, 2]
  assert config.optimizer_steps == 2 + 5 * 3 + 3
  shaped = config.shaped(2)
  for phase in shaped.phases:
    assert phase.packing == shaped.packing
    rows = 2 * phase.loss.micro_batches * phase.loss.minibatches
    assert rows == shaped.packing.row_multiple == 6


@pytest.mark.parametrize(
  ('switches', 'message'),
  [
    (((0, CONFIG),), r'at the updates \[0\]: expected ascending'),
    (((4, CONFIG), (4, CONFIG)), r'at the updates \[4, 4\]'),
    (((4, dataclasses.replace(CONFIG, remat=True)),), 'changes remat from'),
  ],
)
def test_switches_that_cannot_be_are_refused(switches, message):
  with pytest.raises(ValueError, match=message):
    dataclasses.replace(CONFIG, switches=switches).check()


def test_pairs_need_one_step_of_reinforce():
  for loss in (LossConfig(), LossConfig(kind='reinforce', epochs=2)):
    with pytest.raises(ValueError, match='right for reinforce and one step'):
      dataclasses.replace(PAIRS, loss=loss).check()


def test_the_adapter_is_only_switched_off_where_there_is_one():
  reference = ReferenceConfig('adapter_off')
  with pytest.raises(ValueError, match="'adapter_off' needs parameters='lora'"):
    dataclasses.replace(CONFIG, reference=reference).check()
  dataclasses.replace(CONFIG, reference=reference, parameters='lora').check()
