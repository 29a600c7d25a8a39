"""A run of two processes that is killed ends as one that is not."""

import json

import pytest

from tests.parallel import processes

# The run of every experiment around a small step in which each process scores
# its own rows, as it does with its own pool.
SCRIPT = """
import hashlib, signal
import jax.numpy as jnp
import numpy as np
import optax
from promptrl_jax.parallel import exchange
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.training import state as state_lib
from promptrl_jax.training.run import Run, RunConfig
import pathlib

folder, dies_at, how = ARGS
optimizer = optax.adam(0.1)


def init(key):
  return {'w': jax.random.normal(key, (8, 4)), 'b': jnp.zeros(4)}


def loss(params, inputs, rewards):
  outputs = jnp.tanh(inputs @ params['w'] + params['b'])
  return -jnp.mean(rewards * jax.nn.log_softmax(outputs)[:, 0])


@jax.jit
def update(state, inputs, rewards):
  value, grads = jax.value_and_grad(loss)(state.params, inputs, rewards)
  updates, opt_state = optimizer.update(grads, state.opt_state)
  params = optax.apply_updates(state.params, updates)
  state = state.replace(
    params=params, opt_state=opt_state, step=state.step + 1)
  return state, value


def iterate(state):
  step = int(state.step)
  key = jax.random.wrap_key_data(exchange.to_host(state.key_data))
  inputs = np.asarray(jax.random.normal(jax.random.fold_in(key, step), (8, 8)))
  mine = inputs[exchange.my_rows(8)]
  rewards = np.float32(mine.sum(1) > 0)
  if step == int(dies_at) and jax.process_index() == 1:
    if how == 'raise':
      raise ValueError('the planted error')
    os.kill(os.getpid(), signal.SIGKILL)
  state, value = update(state, *exchange.global_rows((mine, rewards), mesh))
  solved = exchange.gather_rows(rewards).mean()
  return state, {
    'rollout/steps': 8, 'budget/calls': 8, 'train/loss': float(value),
    'rollout/solved_rate': float(solved)}


def score(state):
  return float(jnp.sum(state.params['w']))


with distributed.session(config):
  mesh = mesh_lib.from_text('fsdp=2')
  split = jax.NamedSharding(mesh, jax.P('fsdp'))
  whole = jax.NamedSharding(mesh, jax.P())
  where = jax.tree.map(
    lambda s: split if s.ndim == 2 else whole,
    jax.eval_shape(
      lambda: state_lib.initial_state(init, optimizer, jax.random.key(0))))
  state = jax.jit(
    lambda: state_lib.initial_state(init, optimizer, jax.random.key(0)),
    out_shardings=where)()
  settings = RunConfig(iterations=5, validate_every=4, checkpoint_every=1)
  with Run(pathlib.Path(folder), state, settings, name='test') as run:
    start = int(run.state.step)
    for _ in run.steps():
      run.log(*iterate(run.state))
      run.validate(score)
  state = run.state
  found = hashlib.sha256()
  for leaf in jax.tree.leaves(exchange.to_host(state)):
    found.update(leaf.tobytes())
  print('result', start, int(state.step), found.hexdigest())
"""


def run(folder, dies_at=-1, how='kill'):
  return processes.run(SCRIPT, 2, str(folder), str(dies_at), how)


def results(done):
  """Where each process started and ended, and its parameters' digest."""
  assert not any(d.returncode for d in done), processes.report(done)
  lines = [d.stdout.splitlines()[-1].split() for d in done]
  assert all(line[0] == 'result' for line in lines)
  return [(int(line[1]), int(line[2]), line[3]) for line in lines]


@pytest.fixture(scope='module')
def uninterrupted(tmp_path_factory):
  folder = tmp_path_factory.mktemp('uninterrupted')
  first, second = results(run(folder))
  assert first == second and first[:2] == (0, 5)
  return first[2], (folder / 'metrics.jsonl').read_text()


@pytest.mark.slow
@pytest.mark.parametrize('how', ['kill', 'raise'])
def test_a_run_that_dies_in_its_third_step_ends_like_one_that_does_not(
  uninterrupted, how, tmp_path
):
  died = run(tmp_path, dies_at=2, how=how)
  # The other one noticed by itself: nobody had to kill it.
  assert died[1].returncode == (-9 if how == 'kill' else 1)
  assert died[0].returncode not in (0, -9), processes.report(died)
  rows = (tmp_path / 'metrics.jsonl').read_text().splitlines()
  assert [json.loads(row)['step'] for row in rows] == [0, 1]
  assert not any('result' in d.stdout for d in died)

  digest, lines = uninterrupted
  first, second = results(run(tmp_path))
  # The last save may have been cut off: then the one before it counts.
  assert first == second and first[0] in (1, 2) and first[1:] == (5, digest)
  assert (tmp_path / 'metrics.jsonl').read_text() == lines
