"""The update of one device and of eight that share parameters and rows."""

import pytest

from tests import scripts

SCRIPT = """
import dataclasses
import json
import jax
jax.config.update('jax_num_cpu_devices', 8)
jax.config.update('jax_disable_most_optimizations', True)  # to compile
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from promptrl_jax.models import causal_families, encoder_decoder
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.parallel import sharding
from promptrl_jax.testing import tiny, tiny_encoder_decoder
from promptrl_jax.training.rewriter import policy as policy_lib
from promptrl_jax.training.rewriter import update as update_lib
from promptrl_jax.training.rewriter import packing
from promptrl_jax.training.rewriter.config import LossConfig
from promptrl_jax.training.state import initial_state

# Config, parameters by seed, rules, and where layers are.
KINDS = {
  'causal': (
    tiny.CONFIG, tiny.params, causal_families.PARTITION, 'layers'),
  'encoder_decoder': (
    dataclasses.replace(
      tiny_encoder_decoder.CONFIG, vocab_size=300, num_heads=4),
    tiny_encoder_decoder.params, encoder_decoder.PARTITION, 'decoder'),
}
model, params_of, rules, layers = KINDS[KIND]

shape = packing.PackingConfig(
  16, lanes=2, lane_size=12, sequences=4, row_multiple=8)
rng = np.random.default_rng(0)
draw = lambda low, high: rng.integers(3, 300, rng.integers(low, high)).tolist()
prompts = [draw(2, 8) for _ in range(8)]
completions = [draw(1, 12) for _ in range(32)]
rows = packing.pack(prompts, completions, [i // 4 for i in range(32)], shape)
normal = lambda scale, mean: packing.spread(
  rows, rng.normal(mean, scale, (32, 12)).astype('f4'))
batch = update_lib.UpdateBatch(
  rows, normal(1, 0), normal(0.2, -5), normal(0.2, -5), normal(0.2, -5))
config = LossConfig(
  kind='ppo', importance='token', entropy_coef=0.01, micro_batches=2, epochs=2,
  kl_estimator='exact')
start, other = (
  jax.tree.map(np.asarray, dict(params_of(model, seed))) for seed in (0, 1))
optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(1e-2))

def run(mesh):
  whole = NamedSharding(mesh, P())
  build = lambda start: initial_state(
    lambda key: start, optimizer, jax.random.key(0))
  place = jax.tree.map(lambda _: whole, jax.eval_shape(build, start))
  place = place.replace(
    params=sharding.shardings(start, rules, mesh))
  state = jax.jit(build, out_shardings=place)(start)
  qkv = lambda s: s.params['params'][layers]['qkv']
  share = qkv(state).addressable_shards[0].data.size / qkv(state).size
  policy = policy_lib.PolicyConfig(
    model, temperature=0.8, logits_chunk=7, mesh=mesh)
  split = jax.device_put(batch, mesh_lib.rows(mesh))
  update = update_lib.make_update_fn(policy, optimizer, config, place, policy)
  # The reference is as far away as another seed.
  reference = jax.device_put(other, place.params)
  compared = update_lib.make_score_fn(policy, config, keep_hidden=True)(
    reference, split.rows)
  assert compared.hidden.sharding.is_equivalent_to(mesh_lib.rows(mesh), 3)
  split = split.replace(
    ref_logps=compared.logps, ref_hidden=compared.hidden)
  score = update_lib.make_score_fn(policy, config, policy)
  scored = score(state.params, split.rows, compared.hidden, reference)
  scores = np.stack([scored.logps, scored.divergences, compared.logps])
  found = []
  for _ in range(3):
    state, metrics = update(state, {}, split, jnp.float32(0.1), reference)
    found.append({k: float(v) for k, v in metrics.items()})
  after = qkv(state).addressable_shards[0].data.size / qkv(state).size
  params = jax.tree.map(np.asarray, state.params)
  return found, scores, params, [share, after], update._cache_size()

one = Mesh(np.asarray(jax.devices()[:1]).reshape(1, 1, 1), mesh_lib.AXES,
           axis_types=(AxisType.Auto,) * 3)
many = mesh_lib.make_mesh({'data': 2, 'fsdp': 2, 'tensor': 2})
alone, together = run(one), run(many)
there = np.asarray(rows.mask)
print(json.dumps({
  'alone': alone[0],
  'together': together[0],
  'scores': float(np.abs(alone[1] - together[1])[:, there].max()),
  'params': max(float(np.abs(a - b).max()) for a, b in zip(
    jax.tree.leaves(alone[2]), jax.tree.leaves(together[2]), strict=True)),
  'shares': together[3],
  'programs': [alone[4], together[4]],
}))
"""


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['causal', 'encoder_decoder'])
def test_eight_devices_give_the_losses_and_gradients_of_one(kind):
  found = scripts.found(f'KIND = {kind!r}\n{SCRIPT}', timeout=600)
  for alone, together in zip(found['alone'], found['together'], strict=True):
    assert together == pytest.approx(alone, rel=1e-4, abs=1e-4)
    assert alone['train/grad_norm'] > 0.01 and alone['train/kl'] > 0.01
  losses = [metrics['train/loss'] for metrics in found['alone']]
  assert abs(losses[0] - losses[-1]) > 1e-3  # something was learned
  assert found['scores'] < 1e-4 and found['params'] < 1e-4
  # Each device holds a quarter, before and after.
  assert found['shares'] == [0.25, 0.25]
  assert found['programs'] == [1, 1]
