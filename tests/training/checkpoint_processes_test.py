"""Checkpoints that several processes write, read by any number of them."""

import json

import pytest

from tests.parallel import processes
from tests.variants import mostly_slow

SCRIPT = """
import dataclasses, hashlib, json
import jax.numpy as jnp
import numpy as np
import optax
from promptrl_jax.models import pretrained, transformer
from promptrl_jax.parallel import exchange, sharding
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.testing import tiny
from promptrl_jax.training import checkpoint
from promptrl_jax.training import state as state_lib

what, folder, text, mlp_size = ARGS
model = dataclasses.replace(tiny.CONFIG, mlp_size=int(mlp_size))
optimizer = optax.adam(1e-3)


def place(shapes, mesh):
  rules = pretrained.family(model.family).partition
  params = sharding.shardings(shapes.params, rules, mesh)
  whole = jax.NamedSharding(mesh, jax.P())
  moments = optax.tree.map_params(
    optimizer, lambda _, where: where, shapes.opt_state, params,
    transform_non_params=lambda _: whole)
  return state_lib.TrainState(params, moments, whole, whole)


def create(seed, mesh):
  # Random numbers in two dtypes at step 3, without compiling anything.
  def build():
    params = jax.tree.map(
      lambda s: jnp.zeros(s.shape, jnp.bfloat16 if s.ndim == 2 else s.dtype),
      transformer.shapes(model))
    return state_lib.initial_state(
      lambda _: params, optimizer, jax.random.key(seed))

  draw = np.random.default_rng(seed)

  def fill(shape, where):
    values = np.asarray(8 * draw.standard_normal(shape.shape)).astype(
      shape.dtype)
    return jax.make_array_from_callback(
      shape.shape, where, values.__getitem__)

  shapes = jax.eval_shape(build)
  where = place(shapes, mesh)
  state = jax.tree.map(fill, shapes, where)
  three = np.asarray(3, np.int32)
  return state.replace(step=jax.make_array_from_callback(
    (), where.step, three.__getitem__))


def digest(state):
  found = hashlib.sha256()
  for leaf in jax.tree.leaves(exchange.to_host(state)):
    found.update(np.ascontiguousarray(leaf).tobytes())
  return found.hexdigest()


with distributed.session(config):
  mesh = mesh_lib.make_mesh(mesh_lib.parse(text))
  state = create(0 if what == 'save' else 1, mesh)
  found = {'before': digest(state)}
  with checkpoint.open_checkpoints(folder) as checkpoints:
    if what == 'save':
      checkpoint.save_checkpoint(checkpoints, state, {'cursor': 7}, score=0.5)
    else:
      wanted = jax.tree.map(lambda x: x.sharding, state)
      try:
        state, found['extra'] = checkpoint.restore_checkpoint(
          checkpoints, state)
      except ValueError as error:
        found['refused'] = str(error)
      placed = jax.tree.map(lambda x, w: x.sharding == w, state, wanted)
      found['placed'] = all(jax.tree.leaves(placed))
      found['best'] = checkpoints.best_step()
  found['after'] = digest(state)
  split = state.params['params']['layers']['qkv']
  found['share'] = split.addressable_shards[0].data.size / split.size
print(json.dumps(found))
"""


def run(what, folder, count, devices, mesh, mlp_size=48):
  done = processes.run(
    SCRIPT, count, what, str(folder), mesh, str(mlp_size), devices=devices
  )
  assert not any(d.returncode for d in done), processes.report(done)
  return [json.loads(d.stdout.splitlines()[-1]) for d in done]


@pytest.fixture(scope='module')
def written(tmp_path_factory):
  """Written by two processes, each with half of every matrix's rows."""
  folder = tmp_path_factory.mktemp('written')
  return folder, run('save', folder, 2, 2, 'fsdp=2,tensor=2')


def test_each_process_writes_its_own_part(written):
  folder, found = written
  assert {f['share'] for f in found} == {0.25}
  assert len({f['after'] for f in found}) == 1
  parts = sorted(path.name for path in folder.glob('3/state/ocdbt.process_*'))
  assert parts == ['ocdbt.process_0', 'ocdbt.process_1']


@pytest.mark.parametrize(
  ('count', 'devices', 'mesh', 'share'),
  mostly_slow(
    [
      (1, 1, 'data=1', 1.0),
      (1, 4, 'data=2,tensor=2', 0.5),
      (2, 1, 'data=2', 1.0),
      (2, 1, 'tensor=2', 0.5),
    ],
    {(1, 4, 'data=2,tensor=2', 0.5)},
  ),
)
def test_another_number_of_processes_or_mesh_reads_the_same_bits(
  written, count, devices, mesh, share
):
  folder, saved = written
  for found in run('restore', folder, count, devices, mesh):
    assert found['before'] != found['after'] == saved[0]['after']
    assert found['extra'] == {'cursor': 7}
    assert found['placed'] and found['share'] == share
    assert found['best'] == 3


@pytest.mark.slow
def test_what_one_process_wrote_is_read_by_two(tmp_path):
  (saved,) = run('save', tmp_path, 1, 1, 'data=1')
  for found in run('restore', tmp_path, 2, 1, 'fsdp=2'):
    assert found['after'] == saved['after'] and found['share'] == 0.5


@pytest.mark.slow
def test_another_model_is_refused_by_all_processes(written):
  folder, _ = written
  for found in run('restore', folder, 2, 1, 'fsdp=2', mlp_size=64):
    assert 'does not fit this config: state' in found['refused']
    assert '48' in found['refused'] and '64' in found['refused']
    assert found['after'] == found['before']
