"""Adapters: attached and merged models, gradients, and sharding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.models import causal_families, lora, transformer
from promptrl_jax.models.config import TransformerConfig
from promptrl_jax.models.transformer import Transformer
from promptrl_jax.parallel import sharding
from promptrl_jax.parallel.mesh import make_data_mesh
from promptrl_jax.sampling import methods, prepare, score
from promptrl_jax.sampling.model import make_model
from promptrl_jax.testing import tiny
from promptrl_jax.testing.reference_sampler import generate

MESH = make_data_mesh()
PARAMS = tiny.params()
CONFIG = lora.LoraConfig(rank=4, alpha=8.0)
TOKENS = np.arange(3, 23).reshape(2, 10)
# One program instead of one for each small step.
attach = jax.jit(lora.attach, static_argnums=0)
merge = jax.jit(lora.merge, static_argnums=0)


def random_adapters(config=CONFIG):
  """Adapters that have been trained: B is not zero."""
  rng = np.random.default_rng(0)
  return jax.tree.map(
    lambda x: rng.normal(0, 0.1, x.shape).astype(x.dtype),
    lora.shapes(config, PARAMS),
  )


@jax.jit
def logits(variables):
  model = Transformer(tiny.CONFIG)
  positions = np.tile(np.arange(10), (2, 1))
  mask = np.tril(np.ones((1, 10, 10), bool))
  hidden, _ = model.apply(variables, TOKENS, positions, mask)
  return model.apply(variables, hidden, method=Transformer.logits)


def test_new_adapters_do_not_change_the_model():
  init = jax.jit(lambda key: lora.init(CONFIG, PARAMS, key))
  adapters = init(jax.random.key(0))
  assert adapters['params']['layers']['down']['down_proj']['a'].std() > 0.05
  adapted = logits(attach(CONFIG, PARAMS, adapters))
  np.testing.assert_array_equal(adapted, logits(PARAMS))


def test_without_adapters_the_program_is_the_same():
  # Compared with a function that never asks for adapters.
  plain = lambda layer, x, name: transformer.dense(x, getattr(layer, name))
  trace = lambda: str(jax.make_jaxpr(logits.__wrapped__)(PARAMS))
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(transformer, 'adapted_dense', plain)
    expected = trace()
  assert trace() == expected


@pytest.mark.parametrize('rslora', [False, True])
@pytest.mark.parametrize('targets', [('layers/',), ('[qv]_proj', 'down')])
def test_merged_and_attached_adapters_give_the_same_logits(targets, rslora):
  config = lora.LoraConfig(4, 8.0, targets, rslora)
  adapters = random_adapters(config)
  attached = logits(attach(config, PARAMS, adapters))
  merged = logits(merge(config, PARAMS, adapters))
  np.testing.assert_allclose(attached, merged, atol=1e-5)
  assert np.abs(merged - logits(PARAMS)).max() > 0.1


def test_merging_adds_the_scaled_product_to_its_own_part():
  config = lora.LoraConfig(4, 8.0, ('k_proj', 'up_proj'))
  adapters = random_adapters(config)
  merged = merge(config, PARAMS, adapters)
  delta = jax.tree.map(jnp.subtract, merged, PARAMS)['params']['layers']
  layers = adapters['params']['layers']
  k, up = layers['qkv']['k_proj'], layers['gate_up']['up_proj']
  qkv = np.zeros((2, 32, 2, 4, 8), np.float32)
  qkv[..., 2:3, :] = 2 * np.einsum('ldr,lrkgh->ldkgh', k['a'], k['b'])
  gate_up = np.zeros((2, 32, 2, 48), np.float32)
  gate_up[:, :, 1:] = 2 * np.einsum('ldr,lrcf->ldcf', up['a'], up['b'])
  np.testing.assert_allclose(delta['qkv'], qkv, atol=1e-5)
  np.testing.assert_allclose(delta['gate_up'], gate_up, atol=1e-5)
  assert not np.any(delta['out']) and not np.any(delta['down'])


def test_gradients_reach_every_adapter_and_leave_the_model_alone():
  adapters = random_adapters()
  before = jax.tree.map(np.array, PARAMS)

  def loss(adapters):
    variables = attach(CONFIG, PARAMS, adapters)
    return -jnp.mean(jax.nn.log_softmax(logits(variables))[..., 7])

  value, gradients = jax.jit(jax.value_and_grad(loss))(adapters)
  assert jax.tree.structure(gradients) == jax.tree.structure(adapters)
  assert all(jnp.abs(g).max() > 0 for g in jax.tree.leaves(gradients))
  trained = jax.tree.map(lambda x, g: x - 0.01 * g, adapters, gradients)
  assert loss(trained) < value
  jax.tree.map(np.testing.assert_array_equal, PARAMS, before)


def test_decoding_with_adapters_equals_decoding_the_merged_model():
  adapters = random_adapters()
  attached = attach(CONFIG, PARAMS, adapters)
  merged = merge(CONFIG, PARAMS, adapters)
  mask = np.ones_like(TOKENS, bool)
  mask[0, :4] = False
  method = methods.Sampling()
  rest = (TOKENS, mask, np.ones(2, np.float32), np.arange(2, dtype=np.uint32))
  model = make_model(tiny.CONFIG, TOKENS.shape[1], 12)
  run = jax.jit(generate, static_argnums=(0, 1))
  sample = lambda variables: run(
    model, method, prepare.prepare(variables, MESH), *rest, np.full(2, 12)
  )
  ours, theirs = sample(attached), sample(merged)
  np.testing.assert_array_equal(ours.tokens, theirs.tokens)
  assert not np.array_equal(ours.tokens, sample(PARAMS).tokens)
  scored = score.make_score_fn(model, method, MESH)(
    prepare.prepare(attached, MESH),
    TOKENS,
    mask,
    ours.tokens,
    ours.mask,
    np.ones(2, np.float32),
  )
  np.testing.assert_allclose(scored, ours.logps, atol=1e-4)


def test_merging_keeps_the_dtype_of_the_model():
  params = jax.tree.map(lambda x: x.astype(jnp.bfloat16), PARAMS)
  merged = merge(CONFIG, params, random_adapters())
  assert {x.dtype for x in jax.tree.leaves(merged)} == {jnp.dtype('bfloat16')}


def test_less_than_a_twentieth_of_a_real_model_is_trained():
  config = TransformerConfig(
    vocab_size=32_000,
    hidden_size=2048,
    num_layers=22,
    num_heads=32,
    num_kv_heads=4,
    head_size=64,
    mlp_size=5632,
    max_positions=2048,
  )
  model = transformer.shapes(config)
  size = lambda tree: sum(leaf.size for leaf in jax.tree.leaves(tree))
  trained = size(lora.shapes(lora.LoraConfig(rank=16), model))
  # Per layer r (in + out): q, k and v, o, gate and up, down.
  d, f, kv, r = 2048, 5632, 256, 16
  assert trained == 22 * r * (
    (d + d) + 2 * (d + kv) + (d + d) + 2 * (d + f) + (f + d)
  )
  assert trained / size(model) < 0.05


def test_adapters_are_split_where_their_kernel_is():
  mesh = jax.make_mesh(
    (1, 2), ('fsdp', 'tensor'), axis_types=(jax.sharding.AxisType.Auto,) * 2
  )
  rules = lora.partition(causal_families.PARTITION)
  shardings = sharding.shardings(random_adapters(), rules, mesh)
  split = {
    sharding.path_of(path)
    for path, leaf in jax.tree.leaves_with_path(shardings)
    if 'tensor' in leaf.spec
  }
  columns = ('qkv/q_proj', 'qkv/k_proj', 'qkv/v_proj')
  columns += ('gate_up/gate_proj', 'gate_up/up_proj')
  rows = ('out/o_proj', 'down/down_proj')
  assert split == {
    *(f'layers/{name}/b' for name in columns),
    *(f'layers/{name}/a' for name in rows),
  }


def test_every_family_has_parts():
  families = {*causal_families.MODEL_TYPES, 't5', 't5_gated'}
  assert lora.PARTS.keys() == families


def test_an_unknown_family_names_those_there_are():
  with pytest.raises(ValueError, match="family='bert': expected one of llama"):
    lora.LoraConfig(family='bert')


def test_a_target_that_matches_nothing_is_named():
  with pytest.raises(ValueError, match=r"'c_attn' matches none of .*q_proj"):
    lora.LoraConfig(targets=('q_proj', 'c_attn'))


def test_a_rank_of_nothing_is_refused():
  with pytest.raises(ValueError, match='rank=0'):
    lora.LoraConfig(rank=0)


@pytest.mark.parametrize('apply', [lora.attach, lora.merge])
def test_adapters_of_another_config_are_refused_with_both_shapes(apply):
  other = lora.LoraConfig(rank=2, alpha=8.0)
  with pytest.raises(ValueError, match=r'\(2, 48, 4\).*\(2, 48, 2\)'):
    apply(other, PARAMS, random_adapters())
  fewer = lora.LoraConfig(4, 8.0, ('q_proj',))
  with pytest.raises(ValueError, match=r'down_proj/a .*None'):
    apply(fewer, PARAMS, random_adapters())
