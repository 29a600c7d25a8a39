"""Checkpoints: what comes back, and what is never seen."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from promptrl_jax.training.checkpoint import (
  open_checkpoints,
  restore_checkpoint,
  save_checkpoint,
)
from promptrl_jax.training.state import TrainState

REPOSITORY = pathlib.Path(__file__).parents[2]


def at_step(step, value=0.5):
  """Returns a small state with easily told contents."""
  params = {'layer': {'kernel': jnp.full((2, 8), value)}}
  return TrainState(
    params=params,
    opt_state=optax.adam(1e-3).init(params),
    step=jnp.asarray(step, jnp.int32),
    key_data=jax.random.key_data(jax.random.key(7)),
  )


def assert_bitwise_equal(first, second):
  assert jax.tree.structure(first) == jax.tree.structure(second)
  for x, y in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
    assert x.dtype == y.dtype
    assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


def test_restores_into_shapes_without_arrays(tmp_path):
  state = at_step(1)
  with open_checkpoints(tmp_path) as checkpoints:
    save_checkpoint(checkpoints, state, {})
    shapes = jax.eval_shape(lambda: at_step(0))
    restored, _ = restore_checkpoint(checkpoints, shapes)
  assert_bitwise_equal(restored, state)


def test_what_changes_after_the_call_is_saved_as_it_was(tmp_path):
  curve = []
  for step in range(1, 6):
    curve.append(step)
    with open_checkpoints(tmp_path / str(step)) as checkpoints:
      save_checkpoint(checkpoints, at_step(step), {'curve': curve})
      curve.append(0)  # while it is written
      _, extra = restore_checkpoint(checkpoints, at_step(0))
    curve.pop()
    assert extra == {'curve': list(range(1, step + 1))}


def test_typed_keys_and_small_dtypes_come_back(tmp_path):
  state = at_step(1).replace(
    params={
      'key': jax.random.key(3),
      'half': jnp.array([1.5, jnp.nan], jnp.bfloat16),
    }
  )
  with open_checkpoints(tmp_path) as checkpoints:
    save_checkpoint(checkpoints, state, {})
    restored, _ = restore_checkpoint(checkpoints, state)
  key = restored.params['key']
  assert jax.random.uniform(key) == jax.random.uniform(jax.random.key(3))
  assert_bitwise_equal(restored.params['half'], state.params['half'])


def test_the_best_and_the_last_checkpoint_stay(tmp_path):
  with open_checkpoints(tmp_path) as checkpoints:
    for step, score in [(1, 0.2), (2, 0.9), (3, None), (4, 0.4), (5, None)]:
      state = at_step(step, step / 10)
      save_checkpoint(checkpoints, state, {'n': step}, score=score)
  with open_checkpoints(tmp_path, read_only=True) as checkpoints:
    assert sorted(checkpoints.all_steps()) == [2, 5]
    best, extra = restore_checkpoint(checkpoints, state, 'best')
    assert_bitwise_equal(best, at_step(2, 0.2))
    assert extra == {'n': 2}
    last, extra = restore_checkpoint(checkpoints, state, 'last')
    assert_bitwise_equal(last, state)
    assert extra == {'n': 5}


def test_a_killed_process_leaves_no_half_checkpoint(tmp_path):
  script = f"""
    import os
    import time
    import jax.numpy as jnp
    from promptrl_jax.training.checkpoint import (
      open_checkpoints, save_checkpoint)
    from promptrl_jax.training.state import TrainState

    def state(step):
      params = {{'w': jnp.full((8_000_000,), float(step))}}
      return TrainState(
        params, (), jnp.int32(step), jnp.zeros(2, jnp.uint32))

    checkpoints = open_checkpoints({str(tmp_path)!r})
    save_checkpoint(checkpoints, state(1), {{'n': 1}})
    checkpoints.wait_until_finished()
    save_checkpoint(checkpoints, state(2), {{'n': 2}})
    end = time.monotonic() + 30
    while time.monotonic() < end:
      if any('tmp' in name for name in os.listdir({str(tmp_path)!r})):
        break
    os._exit(9)  # while the second save is being written
  """
  environment = os.environ | {'PYTHONPATH': str(REPOSITORY)}
  done = subprocess.run(
    [sys.executable, '-c', textwrap.dedent(script)],
    env=environment,
    capture_output=True,
    text=True,
  )
  assert done.returncode == 9, done.stderr
  assert any('tmp' in path.name for path in tmp_path.iterdir())
  shape = TrainState(
    params={'w': jnp.zeros(8_000_000)},
    opt_state=(),
    step=jnp.int32(0),
    key_data=jnp.zeros(2, jnp.uint32),
  )
  with open_checkpoints(tmp_path) as checkpoints:
    state, extra = restore_checkpoint(checkpoints, shape)
    assert extra == {'n': 1} and state.step == 1
    assert (state.params['w'] == 1.0).all()
    # The step that was lost can be written again.
    save_checkpoint(checkpoints, state.replace(step=state.step + 1), {'n': 2})
    assert restore_checkpoint(checkpoints, shape)[1] == {'n': 2}


def test_an_empty_directory_says_so(tmp_path):
  with (
    open_checkpoints(tmp_path) as checkpoints,
    pytest.raises(FileNotFoundError, match=f'no checkpoint in {tmp_path}'),
  ):
    restore_checkpoint(checkpoints, at_step(0))
  with pytest.raises(FileNotFoundError, match='missing'):
    open_checkpoints(tmp_path / 'missing', read_only=True)
  assert not (tmp_path / 'missing').exists()


def test_best_without_any_score_says_so(tmp_path):
  with open_checkpoints(tmp_path) as checkpoints:
    save_checkpoint(checkpoints, at_step(1), {})
    with pytest.raises(FileNotFoundError, match='with a score'):
      restore_checkpoint(checkpoints, at_step(0), 'best')
    with pytest.raises(ValueError, match='newest'):
      restore_checkpoint(checkpoints, at_step(0), 'newest')


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    (
      lambda x: x[..., :1],
      r'float32\[2, 8\] in the checkpoint, float32\[2, 1\] was',
    ),
    (lambda x: x.astype(jnp.bfloat16), r'bfloat16\[2, 8\] was expected'),
  ],
)
def test_a_state_of_another_config_is_refused_by_name(
  tmp_path, change, message
):
  with open_checkpoints(tmp_path) as checkpoints:
    save_checkpoint(checkpoints, at_step(1), {})
    template = at_step(0)
    template = template.replace(params=jax.tree.map(change, template.params))
    with pytest.raises(ValueError, match=message):
      restore_checkpoint(checkpoints, template)


def test_what_cannot_be_saved_faithfully_is_refused(tmp_path):
  with open_checkpoints(tmp_path) as checkpoints:
    with pytest.raises(TypeError, match='lists instead of tuples'):
      save_checkpoint(checkpoints, at_step(1), {'cursor': (1, 2)})
    with pytest.raises(ValueError, match='score must be finite'):
      save_checkpoint(checkpoints, at_step(1), {}, score=float('nan'))
    save_checkpoint(checkpoints, at_step(4), {})
    with pytest.raises(ValueError, match='step 4 is not newer'):
      save_checkpoint(checkpoints, at_step(4), {})
