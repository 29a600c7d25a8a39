"""The outer loop: order of things, early stop, interrupt."""

import dataclasses
import json

import flax.struct
import jax.numpy as jnp
import pytest

from promptrl_jax.training import checkpoint, loop, metrics


@flax.struct.dataclass
class State:
  step: jnp.ndarray
  value: jnp.ndarray


def iterate(state):
  new = State(state.step + 1, state.value * 2)
  row = {
    'rollout/steps': 10.0, 'budget/calls': 7.0, 'train/loss': float(new.value),
  }  # fmt: skip
  return new, row


CONFIG = loop.LoopConfig(iterations=6, validate_every=3, checkpoint_every=2)
START = State(jnp.int32(0), jnp.float32(1))


def run(folder, callbacks=(), iterate_fn=iterate, state=START, totals=None):
  totals = dict(loop.TOTALS) if totals is None else totals
  with (
    checkpoint.open_checkpoints(folder / 'checkpoints') as checkpoints,
    metrics.MetricWriter(folder, resume_step=int(state.step)) as writer,
  ):
    final = loop.run(
      state, totals, iterate_fn, lambda s: float(s.step), checkpoints, writer,
      CONFIG, callbacks,
    )  # fmt: skip
  return final, totals


def restore(folder):
  with checkpoint.open_checkpoints(folder / 'checkpoints') as checkpoints:
    return checkpoint.restore_checkpoint(checkpoints, START)


def read(folder):
  lines = (folder / 'metrics.jsonl').read_text().splitlines()
  return [json.loads(line) for line in lines]


def test_callbacks_are_called_once_per_iteration(tmp_path):
  seen = []
  run(tmp_path, [lambda step, row, totals: seen.append(step)])
  assert seen == list(range(6))


def test_validations_are_where_they_should_be(tmp_path):
  run(tmp_path)
  validated = [r['step'] for r in read(tmp_path) if 'eval/validation_pass' in r]
  assert validated == [2, 5]


def test_totals_add_up_and_are_checkpointed(tmp_path):
  _, totals = run(tmp_path)
  assert totals == {'best': 6.0, 'env_steps': 60, 'calls': 42}
  assert restore(tmp_path)[1] == totals


def test_stop_ends_cleanly_with_a_scored_checkpoint(tmp_path):
  def stop(step, row, totals):
    if step == 3 - 1 + 2:
      raise loop.Stop

  final, _ = run(tmp_path, [stop])
  assert int(final.step) == 5
  assert int(restore(tmp_path)[0].step) == 5
  assert len(read(tmp_path)) == 5


def test_an_interrupt_leaves_the_last_finished_iteration(tmp_path):
  def interrupted(state):
    if int(state.step) == 5:
      raise KeyboardInterrupt
    return iterate(state)

  with pytest.raises(KeyboardInterrupt):
    run(tmp_path, iterate_fn=interrupted)
  state, totals = restore(tmp_path)
  assert int(state.step) == 5
  final, _ = run(tmp_path, state=state, totals=totals)
  assert float(final.value) == 64.0
  whole = tmp_path / 'whole'
  run(whole)
  assert read(tmp_path) == read(whole)


def test_a_state_that_is_half_consumed_is_not_saved(tmp_path):
  def interrupted(state):
    if int(state.step) == 5:
      state.value.delete()  # as a donated update of one part does
      raise KeyboardInterrupt
    return iterate(state)

  with pytest.raises(KeyboardInterrupt):
    run(tmp_path, iterate_fn=interrupted)
  state, _ = restore(tmp_path)
  assert int(state.step) == 4


def test_settings_are_a_frozen_dataclass():
  with pytest.raises(dataclasses.FrozenInstanceError):
    CONFIG.iterations = 7
