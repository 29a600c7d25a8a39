"""Logits of a whole batch are in memory at no time."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from promptrl_jax.models import transformer
from promptrl_jax.models.attention import causal_mask
from promptrl_jax.models.config import TransformerConfig
from promptrl_jax.training.rewriter import packing
from promptrl_jax.training.rewriter import policy as policy_lib
from promptrl_jax.training.rewriter import update as update_lib
from promptrl_jax.training.rewriter.config import LossConfig
from promptrl_jax.training.state import initial_state

# 32 completions of 512 tokens: 2.1 GB of float32 logits.
COUNT, SIZE, PROMPT, VOCABULARY = 32, 512, 64, 32_000
MODEL = TransformerConfig(
  vocab_size=VOCABULARY,
  hidden_size=256,
  num_layers=2,
  num_heads=4,
  num_kv_heads=4,
  head_size=64,
  mlp_size=704,
  max_positions=1024,
  remat=True,
)
OPTIMIZER = optax.adamw(1e-4)


def bytes_of(update, *inputs):
  """Peak of a compiled update beside what goes in: nothing is run."""
  compiled = jax.jit(update, donate_argnums=0).lower(*inputs).compile()
  return compiled.memory_analysis().temp_size_in_bytes


def abstract_state():
  params = dict(transformer.shapes(MODEL))
  build = lambda: initial_state(
    lambda key: jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), params),
    OPTIMIZER,
    jax.random.key(0),
  )
  return jax.eval_shape(build)


def ours(chunk, micro_batches=1, kl_estimator='k3'):
  """The update over rows of a prompt and four completions each."""
  rows = packing.pack(
    [[1] * PROMPT] * (COUNT // 4),
    [[1] * SIZE] * COUNT,
    [i // 4 for i in range(COUNT)],
    packing.PackingConfig(PROMPT, lanes=4, lane_size=SIZE, sequences=4),
  )
  assert len(rows.tokens) == COUNT // 4
  values = np.zeros(rows.mask.shape, np.float32)
  batch, more = (
    update_lib.UpdateBatch(rows, values, values, ref_logps=values),
    (),
  )
  if kl_estimator == 'exact':
    hidden = np.zeros((*rows.predictors.shape, MODEL.hidden_size), np.float32)
    batch = batch.replace(ref_hidden=hidden)
    more = (transformer.shapes(MODEL),)
  batch = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), batch)
  policy = policy_lib.PolicyConfig(MODEL, logits_chunk=chunk)
  config = LossConfig(micro_batches=micro_batches, kl_estimator=kl_estimator)
  update = update_lib.make_update_fn(
    policy, OPTIMIZER, config, reference_policy=policy
  )
  price = jax.ShapeDtypeStruct((), jnp.float32)
  return bytes_of(update, abstract_state(), {}, batch, price, *more)


def naive():
  """The same loss with the logits of every token of every completion."""
  model = transformer.Transformer(MODEL)

  def loss_fn(params, tokens, advantages, sampler_logps):
    size = tokens.shape[1]
    mask = causal_mask(jnp.ones(tokens.shape, bool))
    places = jnp.broadcast_to(jnp.arange(size), tokens.shape)
    hidden, _ = model.apply(params, tokens, places, mask)
    logits = model.apply(
      params, hidden[:, PROMPT - 1 : -1], method=transformer.Transformer.logits
    )
    logps = jax.nn.log_softmax(logits)
    chosen = jnp.take_along_axis(logps, tokens[:, PROMPT:, None], axis=-1)
    ratio = jnp.exp(chosen[..., 0] - sampler_logps)
    clipped = jnp.clip(ratio, 0.8, 1.2)
    return -jnp.mean(jnp.minimum(ratio * advantages, clipped * advantages))

  def update(state, tokens, advantages, sampler_logps):
    gradients = jax.grad(loss_fn)(
      state.params, tokens, advantages, sampler_logps
    )
    updates, opt_state = OPTIMIZER.update(
      gradients, state.opt_state, state.params
    )
    params = optax.apply_updates(state.params, updates)
    return state.replace(params=params, opt_state=opt_state)

  tokens = jax.ShapeDtypeStruct((COUNT, PROMPT + SIZE), jnp.int32)
  values = jax.ShapeDtypeStruct((COUNT, SIZE), jnp.float32)
  return bytes_of(update, abstract_state(), tokens, values, values)


@pytest.mark.slow
def test_the_update_takes_less_than_half_of_what_all_logits_would():
  all_logits = COUNT * SIZE * VOCABULARY * 4
  # The second differs from the third in nothing but its logits.
  sizes = (naive(), ours(None), ours(64), ours(64, micro_batches=4))
  whole, all_at_once, chunked, pieces = sizes
  gigabytes = [round(x / 1e9, 2) for x in sizes]
  print('GB: naive {}, ours {}, in chunks {}, in 4 parts {}'.format(*gigabytes))
  assert whole > all_logits  # the bound is of something that there is
  assert chunked < whole / 2 and chunked < all_at_once / 2
  assert pieces < chunked
  exact = ours(64, kl_estimator='exact')
  print(f'with the exact divergence, in chunks: {exact / 1e9:.2f}')
  assert exact < whole / 2 and exact - chunked < all_logits / 4
