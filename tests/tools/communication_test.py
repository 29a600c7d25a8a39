"""Bytes read from HLO text are those counted by hand and by the formulas."""

import functools

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from promptrl_jax.tools import communication, volumes
from tests import scripts

# An instruction of every kind, in both and asynchronous forms; sizes are worked
# out below.
TEXT = """HloModule jit_step, is_scheduled=true, num_partitions=8

%sum (a: f32[], b: f32[]) -> f32[] {
  ROOT %add = f32[] add(%a, %b)
}

%body.1 (p: (s32[], f32[4])) -> (s32[], f32[4]) {
  %reduced = f32[4]{0} all-reduce(%x), channel_id=1, \
replica_groups={{0,1},{2,3},{4,5},{6,7}}, to_apply=%sum
  ROOT %inner = (s32[], f32[4]{0}) while(%t), condition=%cond.2, body=%body.2
}

%cond.1 (p: (s32[], f32[4])) -> pred[] {
  ROOT %gathered = pred[8]{0} all-gather(%x), replica_groups=[1,8]<=[8]
}

%body.2 (p: (s32[], f32[4])) -> (s32[], f32[4]) {
  %scattered = bf16[4]{0} reduce-scatter(%x), \
replica_groups=[2,4]<=[4,2]T(1,0), to_apply=%sum
}

%cond.2 (p: (s32[], f32[4])) -> pred[] {
  ROOT %less = pred[] compare(%a, %b), direction=LT
}

%branch (p: f32[4]) -> f32[4] {
  ROOT %moved = f32[4,4]{1,0} collective-permute(%x), \
source_target_pairs={{0,1},{1,0},{2,2}}
}

%wrapped (p: f32[4]) -> f32[4] {
  ROOT %all = (f32[2]{0}, /*index=1*/f32[2]{0}) all-to-all(%x, %y), \
replica_groups=mesh['a'=4,'b'=2], device_ids=([2,2,2]T(0,2,1)) {'b'}
}

ENTRY %main (p: f32[4]) -> f32[4] {
  %start = (f32[2]{0}, f32[16]{0}) all-gather-start(%x), replica_groups={}
  %done = f32[16]{0} all-gather-done(%start)
  %loop = (s32[], f32[4]{0}) while(%t), condition=%cond.1, body=%body.1, \
backend_config={"known_trip_count":{"n":"3"},"x":1}
  %choice = f32[4]{0} conditional(%i, %p), branch_computations={%branch}
  %later = ((f32[4]{0}), f32[4]{0}) async-start(%p), calls=%wrapped
  ROOT %end = f32[4]{0} all-reduce(%x), replica_groups={{0}}, to_apply=%sum, \
metadata={op_name="body=%body.1"}
}
"""

COMPILED = """
import dataclasses, json, sys
import jax
jax.config.update('jax_platforms', 'cpu')
jax.config.update('jax_num_cpu_devices', 8)
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P
from promptrl_jax.models import transformer
from promptrl_jax.tools import communication
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.testing import tiny
from promptrl_jax.training.rewriter import policy as lm_policy
from promptrl_jax.training.rewriter import update as lm_update
from promptrl_jax.training.rewriter import packing
from promptrl_jax.training.supervised import learner as supervised
from promptrl_jax.training import state as state_lib
from promptrl_jax.training.rewriter.update_config import LMUpdateConfig

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
  found = communication.read(lowered.compile().as_text())
  return [communication.sent(found, mesh), all(f.is_exact for f in found)]


def train(n):
  mesh = mesh_of('data', n)
  settings = supervised.SupervisedConfig(
    steps=8, rows=ROWS, row_length=T, lr=0.01, muon_lr=0.02, warmup=2,
    weight_decay=0.0, prompt_weight=0.25, max_grad_norm=1.0)
  init = supervised.make_init(tiny.CONFIG, settings, mesh)
  step = supervised.make_train_step(tiny.CONFIG, settings, mesh)
  ints = jax.ShapeDtypeStruct((ROWS, T), jnp.int32)
  batch = supervised.PackedRows(
    ints, ints, ints, jax.ShapeDtypeStruct((ROWS, T), bool),
    jax.ShapeDtypeStruct((ROWS, T), jnp.float32))
  state = jax.eval_shape(init, jax.random.key(0))
  return report(step.lower(state, batch), mesh)


def update(axis, n, remat=False):
  # Two micro-batches of 8 rows, 8 places each, 8 of 16 tokens predicted.
  mesh = mesh_of(axis, n)
  prompts = [[5, 6, 7]] * 16
  packed = packing.pack(
    prompts, prompts, range(16),
    packing.PackingConfig(8, 1, 8, sequences=1, row_multiple=16))
  numbers = packing.spread(packed, np.ones((16, 8), np.float32))
  batch = lm_update.LMBatch(packed, numbers, numbers)
  config = dataclasses.replace(WIDE, remat=remat)
  optimizer = optax.sgd(0.1)
  place = lambda tree, where: jax.tree.map(
    lambda x, at: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=at),
    tree, where)
  everywhere = lambda tree, at: place(tree, jax.tree.map(lambda _: at, tree))
  params = dict(transformer.shapes(config))
  params = place(params, lm_policy.placement(params, config.family, mesh))
  whole = NamedSharding(mesh, P())
  placed = state_lib.placement(params, optimizer, whole)
  state = jax.eval_shape(lambda params: state_lib.initial_state(
    lambda _: params, optimizer, jax.random.key(0)), params)
  step = lm_update.make_update_fn(
    lm_policy.PolicyConfig(config, mesh=mesh), optimizer,
    LMUpdateConfig(micro_batches=2), placed)
  lowered = step.lower(
    place(state, placed), {}, everywhere(batch, mesh_lib.rows(mesh)),
    everywhere(jnp.float32(0), whole))
  sent, is_exact = report(lowered, mesh)
  size = lambda tree: 4 * sum(x.size for x in jax.tree.leaves(tree))
  layers = params['params']['layers']
  kernels = {k: v for k, v in layers.items() if not k.endswith('norm')}
  return {
    'sent': sent, 'is_exact': is_exact,
    'batch': sum(x.nbytes for x in jax.tree.leaves(batch)),
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


found = {
  'params': tiny.CONFIG.num_params,
  'embedding': tiny.CONFIG.vocab_size * tiny.CONFIG.hidden_size}
for n in map(int, sys.argv[1].split(',')):
  found[f'train {n}'] = train(n)
  for axis in mesh_lib.AXES:
    found[f'{axis} {n} 0'] = update(axis, n)
for axis in sys.argv[2:]:
  found[f'{axis} 2 1'] = update(axis, 2, remat=True)
found['search'] = search(8)
print(json.dumps(found))
"""


def mesh_of(**sizes):
  devices = np.array(jax.devices()[:1] * 8).reshape(list(sizes.values()))
  return Mesh(devices, tuple(sizes))


@pytest.fixture(scope='module')
def read():
  return {one.name: one for one in communication.read(TEXT)}


@pytest.mark.parametrize(
  ('name', 'size', 'times', 'is_exact', 'sent'),
  [
    ('reduced', 16, 3, True, 2 * 16 * 1 / 2 * 3),
    ('gathered', 8, 4, True, 8 * 7 / 8 * 4),  # the condition runs once more
    ('scattered', 32, 3, False, 32 * 3 / 4 * 3),
    ('moved', 64, 1, True, 64),
    ('all', 16, 1, True, 16 * 1 / 2),
    ('start', 64, 1, True, 64 * 7 / 8),
    ('end', 16, 1, True, 0),
  ],
)
def test_instructions_send_what_rings_send(
  read, name, size, times, is_exact, sent
):
  one = read[name]
  assert (one.size, one.times, one.is_exact) == (size, times, is_exact)
  assert one.sent == sent


def test_every_collective_is_read_once(read):
  names = {'reduced', 'gathered', 'scattered', 'moved', 'all', 'start', 'end'}
  assert read.keys() == names
  assert len(communication.read(TEXT)) == len(names)


def test_all_forms_of_groups_are_read(read):
  assert read['reduced'].groups == ((0, 1), (2, 3), (4, 5), (6, 7))
  assert read['gathered'].groups == (tuple(range(8)),)
  assert read['start'].groups == (tuple(range(8)),)
  # 0..7 as [4, 2], transposed, in rows of four.
  assert read['scattered'].groups == ((0, 2, 4, 6), (1, 3, 5, 7))
  # 0..7 as [2, 2, 2], last two axes exchanged, as [4, 2].
  assert read['all'].groups == ((0, 2), (1, 3), (4, 6), (5, 7))


def test_bytes_are_told_by_the_axes_that_they_cross():
  sent = communication.sent(
    communication.read(TEXT), mesh_of(data=2, fsdp=2, tensor=2)
  )
  assert sent == {
    'tensor': 48,
    'data+fsdp+tensor': 28 + 56,
    'data+fsdp': 72,
    'fsdp': 8,
    'other': 64,
  }


def test_text_that_cannot_be_read_is_refused():
  with pytest.raises(ValueError, match='no ENTRY computation'):
    communication.read('module @jit_step {}')
  with pytest.raises(ValueError, match='which devices take part'):
    communication.read(TEXT.replace("{'b'}", "{'b':(1)2}"))
  with pytest.raises(ValueError, match='what it sends is not known'):
    communication.read(TEXT.replace(' all-gather-start', ' ragged-all-to-all'))


@functools.cache
def counted(*arguments):
  return scripts.found(COMPILED, *arguments, timeout=900)


@pytest.fixture
def compiled(request):
  """What programs send; those of 1 and 4 devices, or with remat, are slow."""
  values = (
    request.node.callspec.params if hasattr(request.node, 'callspec') else {}
  )
  if is_slow(values.get('n', 2), values.get('remat', 0)):
    return counted('1,4', 'fsdp', 'tensor')
  return counted('2,8')


def is_slow(n, remat=0):
  return n not in (2, 8) or bool(remat)


def assert_sends(found, axis, n, expected, slack=0.0):
  sent, is_exact = found
  assert is_exact
  assert sent.keys() <= {axis} and (n > 1) == bool(sent)
  assert abs(sent.get(axis, 0.0) - expected) <= slack, (sent, expected)


DEVICES = [
  pytest.param(n, marks=pytest.mark.slow if is_slow(n) else ())
  for n in (1, 2, 4, 8)
]
# Devices, and whether layers are computed again.
SPLIT = [
  pytest.param(*case, marks=pytest.mark.slow if is_slow(*case) else ())
  for case in ((1, 0), (2, 0), (4, 0), (8, 0), (2, 1))
]


@pytest.mark.parametrize('n', DEVICES)
def test_data_parallel_training_sums_gradients(compiled, n):
  # A tied embedding has two gradients, of the look-up and of the projection,
  # and the compiler sums each over the devices before it adds them.
  gradients = 4 * (compiled['params'] + compiled['embedding'])
  # The loss, its parts and their denominators are a few numbers more.
  assert_sends(
    compiled[f'train {n}'], 'data', n, volumes.data(gradients, n), slack=64
  )


def assert_update_sends(found, axis, n, expected):
  """Up to the rows, which are dealt to micro-batches anew, and the metrics."""
  dealt = volumes.all_reduce(found['batch'], n)
  sent = found['sent'].get(axis, 0.0)
  assert found['is_exact'] and found['sent'].keys() <= {axis}
  assert (n > 1) == (sent > 0)
  assert 0 <= sent - expected <= dealt + 512, (sent, expected)


@pytest.mark.parametrize('n', DEVICES)
def test_the_update_of_a_language_model_sums_gradients(compiled, n):
  found = compiled[f'data {n} 0']
  expected = volumes.data(found['params'], n, micro_batches=2)
  assert_update_sends(found, 'data', n, expected)


@pytest.mark.parametrize(('n', 'remat'), SPLIT)
def test_over_fsdp_it_fetches_parameters_and_sums_gradients(compiled, n, remat):
  found = compiled[f'fsdp {n} {remat}']
  layers = volumes.fsdp(
    found['kernels'], found['kernels'], n, gathers=1 + remat, scatters=False
  )
  # Embedding and projection lie outside the loop over layers: they are fetched
  # once for all micro-batches. Norms are whole everywhere.
  rest = found['params'] - found['kernels']
  expected = 2 * (layers + volumes.all_reduce(rest, n)) + volumes.all_gather(
    found['outside'], n
  )
  assert_update_sends(found, 'fsdp', n, expected)


@pytest.mark.parametrize(('n', 'remat'), SPLIT)
def test_over_tensor_it_sums_activations(compiled, n, remat):
  found = compiled[f'tensor {n} {remat}']
  layers = volumes.tensor(found['activations'], 3, n, remat=bool(remat))
  # Half of the tokens are predicted from, each with four numbers of a softmax.
  places = 8 * 8
  outside = found['activations'] * 3 // 2 + 4 * 4 * places
  expected = 2 * (layers + volumes.all_reduce(outside, n))
  assert_update_sends(found, 'tensor', n, expected)


def test_a_loop_without_a_known_end_is_told(compiled):
  sent, is_exact = compiled['search']
  # Two runs of the condition, with the sum in it, are the least there can be.
  assert not is_exact and sent == {'data': 2 * 2 * 4 * 7 / 8}


@pytest.mark.parametrize('n', [1, 2, 8])
def test_formulas_of_parallelism_relate_as_they_should(n):
  assert volumes.fsdp(100, 100, n) == 1.5 * volumes.data(100, n)
  assert volumes.fsdp(100, 100, n, scatters=False) == 2 * volumes.data(100, n)
  again = volumes.tensor(100, 2, n, remat=True)
  assert again == 1.25 * volumes.tensor(100, 2, n) == 10 * volumes.data(100, n)
