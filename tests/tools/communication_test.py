"""Compiled programs send the bytes that the formulas of their sharding give."""

import pytest

from promptrl_jax.tools import volumes
from tests import scripts
from tests.experiments import commands

COMPILED = """
import dataclasses, json
import jax
jax.config.update('jax_platforms', 'cpu')
jax.config.update('jax_num_cpu_devices', 8)
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P
from promptrl_jax.models import transformer
from promptrl_jax.tools import collectives, communication, programs
from promptrl_jax.tools.programs import Batch
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.testing import tiny
from promptrl_jax.training.supervised import learner as supervised
from promptrl_jax.training.supervised.config import SupervisedConfig
from promptrl_jax.training.supervised.packing import PackedRows

ROWS, T = 16, 8
# Heads, hidden units and vocabulary divide by eight.
WIDE = dataclasses.replace(
  tiny.CONFIG, vocab_size=304, num_layers=3, num_heads=8, num_kv_heads=8,
  mlp_size=64, tie_embeddings=False)


def mesh_of(axis, n):
  sizes = [n if name == axis else 1 for name in mesh_lib.AXES]
  return Mesh(np.array(jax.devices()[:n]).reshape(sizes), mesh_lib.AXES,
              axis_types=(AxisType.Auto,) * 3)


def report(lowered, mesh):
  instructions = collectives.read(lowered.compile().as_text())
  return [collectives.sent(instructions, mesh),
          all(x.is_exact for x in instructions)]


def train(n):
  mesh = mesh_of('data', n)
  settings = SupervisedConfig(
    steps=8, rows=ROWS, row_length=T, lr=0.01, muon_lr=0.02, warmup=2,
    weight_decay=0.0, prompt_weight=0.25, max_grad_norm=1.0)
  learner = supervised.make_learner(tiny.CONFIG, settings, mesh)
  ints = jax.ShapeDtypeStruct((ROWS, T), jnp.int32)
  batch = PackedRows(
    ints, ints, ints, jax.ShapeDtypeStruct((ROWS, T), bool),
    jax.ShapeDtypeStruct((ROWS, T), jnp.float32))
  state = jax.eval_shape(learner.init, jax.random.key(0))
  return report(learner.step_fn.lower(state, batch), mesh)


def update(axis, n, remat=False, tied=False):
  # Two micro-batches of 8 rows, 8 places each, 8 of 16 tokens predicted.
  mesh = mesh_of(axis, n)
  config = dataclasses.replace(WIDE, remat=remat, tie_embeddings=tied)
  batch = Batch(16, 8, 8)
  volumes = communication.count(config, mesh, batch, 2)
  params = transformer.shapes(config)
  size = lambda tree: 4 * sum(x.size for x in jax.tree.leaves(tree))
  layers = params['params']['layers']
  kernels = {k: v for k, v in layers.items() if not k.endswith('norm')}
  return {
    'sent': {x.axis: x.compiled for x in volumes},
    'formula': communication.formula(config, mesh, axis, batch, 2),
    'is_exact': all(x.is_exact for x in volumes),
    'batch': sum(
      x.nbytes for x in jax.tree.leaves(programs.update_batch(batch))),
    'kernels': size(kernels),
    'outside': 2 * 4 * config.vocab_size * config.hidden_size,
    'params': size(params),
    'activations': 4 * 8 * 16 * config.hidden_size}


def search(n):
  mesh = mesh_of('data', n)
  rows = NamedSharding(mesh, P('data'))

  def grow(x):
    return jax.lax.while_loop(lambda x: jnp.sum(x) < 9.0, lambda x: x * 2, x)

  x = jax.ShapeDtypeStruct((8,), jnp.float32, sharding=rows)
  return report(jax.jit(grow).lower(x), mesh)


results = {
  'params': tiny.CONFIG.num_params,
  'embedding': tiny.CONFIG.vocab_size * tiny.CONFIG.hidden_size}
for n in (1, 2, 4, 8):
  results[f'train {n}'] = train(n)
  for axis in mesh_lib.AXES:
    results[f'{axis} {n} 0'] = update(axis, n)
for axis in ('fsdp', 'tensor'):
  results[f'{axis} 2 1'] = update(axis, 2, remat=True)
results['tied fsdp 2'] = update('fsdp', 2, tied=True)
results['search'] = search(8)
print(json.dumps(results))
"""


@pytest.fixture(scope='module')
def compiled():
  """Compiled bytes by program."""
  return scripts.found(COMPILED, timeout=900)


def assert_sends(result, axis, n, expected, slack=0.0):
  sent, is_exact = result
  assert is_exact
  assert sent.keys() <= {axis} and (n > 1) == bool(sent)
  assert abs(sent.get(axis, 0.0) - expected) <= slack, (sent, expected)


DEVICES = 1, 2, 4, 8
# Devices, and whether layers are computed again.
SPLIT = *((n, 0) for n in DEVICES), (2, 1)


@pytest.mark.slow
@pytest.mark.parametrize('n', DEVICES)
def test_data_parallel_training_sums_gradients(compiled, n):
  # A tied embedding has two gradients, of the look-up and of the projection,
  # and the compiler sums each over the devices before it adds them.
  gradients = 4 * (compiled['params'] + compiled['embedding'])
  # The loss, its parts and their denominators are a few numbers more.
  assert_sends(
    compiled[f'train {n}'], 'data', n, volumes.data(gradients, n), slack=64
  )


def assert_update_sends(result, axis, n, expected):
  """Checks the formula, and the compiled bytes up to batch and metrics.

  The rows of the batch are sent once, to deal them to micro-batches.
  """
  assert result['formula'] == expected
  dealt = volumes.all_reduce(result['batch'], n)
  sent = result['sent'].get(axis, 0.0)
  assert result['is_exact'] and result['sent'].keys() <= {axis}
  assert (n > 1) == (sent > 0)
  assert 0 <= sent - expected <= dealt + 512, (sent, expected)


@pytest.mark.slow
@pytest.mark.parametrize('n', DEVICES)
def test_the_update_of_a_language_model_sums_gradients(compiled, n):
  result = compiled[f'data {n} 0']
  expected = volumes.data(result['params'], n, micro_batches=2)
  assert_update_sends(result, 'data', n, expected)


@pytest.mark.slow
@pytest.mark.parametrize(('n', 'remat'), SPLIT)
def test_over_fsdp_it_fetches_parameters_and_sums_gradients(compiled, n, remat):
  result = compiled[f'fsdp {n} {remat}']
  layers = volumes.fsdp(
    result['kernels'], result['kernels'], n, gathers=1 + remat, scatters=False
  )
  # Embedding and projection are outside of the loop over layers: they are
  # gathered once for all micro-batches. Norms are replicated.
  rest = result['params'] - result['kernels']
  expected = 2 * (layers + volumes.all_reduce(rest, n)) + volumes.all_gather(
    result['outside'], n
  )
  assert_update_sends(result, 'fsdp', n, expected)


@pytest.mark.slow
@pytest.mark.parametrize(('n', 'remat'), SPLIT)
def test_over_tensor_it_sums_activations(compiled, n, remat):
  result = compiled[f'tensor {n} {remat}']
  layers = volumes.tensor(result['activations'], 3, n, remat=bool(remat))
  # Half of the tokens are predicted from, each with four numbers of a softmax.
  predicted = 8 * 8
  outside = result['activations'] * 3 // 2 + 4 * 4 * predicted
  expected = 2 * (layers + volumes.all_reduce(outside, n))
  assert_update_sends(result, 'tensor', n, expected)


@pytest.mark.slow
def test_a_tied_embedding_is_gathered_once_and_has_two_gradients(compiled):
  result = compiled['tied fsdp 2']
  assert_update_sends(result, 'fsdp', 2, result['formula'])
  untied = compiled['fsdp 2 0']
  fewer = volumes.all_gather(untied['outside'] // 2, 2)
  assert result['formula'] == untied['formula'] - fewer


@pytest.mark.slow
def test_a_loop_of_unknown_length_is_not_exact(compiled):
  sent, is_exact = compiled['search']
  # At least, the condition runs twice, and each run has a sum.
  assert not is_exact and sent == {'data': 2 * 2 * 4 * 7 / 8}


@pytest.mark.parametrize('n', [1, 2, 8])
def test_formulas_of_parallelism_relate_as_they_should(n):
  assert volumes.fsdp(100, 100, n) == 1.5 * volumes.data(100, n)
  assert volumes.fsdp(100, 100, n, scatters=False) == 2 * volumes.data(100, n)
  again = volumes.tensor(100, 2, n, remat=True)
  assert again == 1.25 * volumes.tensor(100, 2, n) == 10 * volumes.data(100, n)


def run(*flags):
  return commands.run('promptrl_jax.tools.communication', *flags)


@pytest.mark.slow
def test_the_command_prints_a_row_for_each_axis_of_a_mesh():
  done = run(
    '--model=tests/golden/causal/llama2',
    '--mesh=data=2,fsdp=2',
    '--rows=8',
    '--prompt=8',
    '--new_tokens=8',
  )
  assert done.returncode == 0, done.stderr[-2000:]
  heading, columns, *rows = done.stdout.splitlines()
  assert '8 rows of 8 + 8 tokens in 2 micro-batches' in heading
  assert columns.split() == ['mesh', 'axis', 'compiled', 'formula', 'MB']
  # No formula covers a mesh that splits two axes.
  assert rows
  assert {row.split()[0] for row in rows} == {'data=2,fsdp=2'}
  assert {row.split()[3] for row in rows} == {'-'}


@pytest.mark.slow
def test_an_encoder_decoder_is_refused_in_one_line():
  done = run('--model=tests/golden/encoder_decoder/codet5p')
  assert done.returncode == 1
  assert done.stderr.splitlines()[-1].startswith('error: ')
  assert 'expected a decoder-only model' in done.stderr
  assert 'Traceback' not in done.stderr
