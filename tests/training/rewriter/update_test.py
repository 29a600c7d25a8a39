"""The update of a language model: same gradients however it is cut up."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from promptrl_jax.models import lora
from promptrl_jax.models.attention import by_layer, causal_mask
from promptrl_jax.models.heads import ValueHead
from promptrl_jax.models.transformer import Transformer
from promptrl_jax.testing import tiny
from promptrl_jax.training import gradients
from promptrl_jax.training.rewriter import packing
from promptrl_jax.training.rewriter import policy as policy_lib
from promptrl_jax.training.rewriter import update as update_lib
from promptrl_jax.training.rewriter.config import LossConfig
from promptrl_jax.training.state import create_train_state
from tests.variants import mostly_slow

POLICY = policy_lib.PolicyConfig(tiny.CONFIG, temperature=0.8)
outputs = jax.jit(policy_lib.outputs, static_argnums=0)
SHARED = packing.PackingConfig(16, lanes=2, lane_size=12, sequences=8)


def texts(count=6, group=2, seed=0):
  rng = np.random.default_rng(seed)
  draw = lambda low, high: rng.integers(3, 300, rng.integers(low, high))
  prompts = [draw(2, 8).tolist() for _ in range(count)]
  completions = [draw(1, 12).tolist() for _ in range(count * group)]
  return prompts, completions, [i // group for i in range(count * group)]


def data(completions, seed=1):
  """Per-completion arrays [N, C] by name."""
  rng = np.random.default_rng(seed)
  shape = len(completions), SHARED.lane_size
  names = ('advantages', 'sampler_logps', 'old_logps', 'ref_logps')
  names = (*names, 'returns', 'old_values')
  arrays = {name: rng.normal(size=shape) for name in names}
  for name in names[1:4]:
    arrays[name] = arrays[name] / 5 - 5
  return {k: v.astype(np.float32) for k, v in arrays.items()}


def batch_of(config, batch=None, multiple=1, only=None):
  prompts, completions, owners = batch or texts()
  config = dataclasses.replace(config, row_multiple=multiple)
  rows = packing.pack(prompts, completions, owners, config)
  arrays = data(completions)
  return update_lib.UpdateBatch(
    rows,
    **{
      k: packing.spread(rows, v)
      for k, v in arrays.items()
      if only is None or k in only
    },
  )


def params(value=False):
  tree = dict(tiny.params())
  if value:
    hidden = jnp.zeros((1, tiny.CONFIG.hidden_size))
    head = ValueHead(zero_init=False).init(jax.random.key(5), hidden)
    tree['value'] = head['params']
  return tree


def gradient(config, batch, tree=None, policy=POLICY, train='full'):
  """Gradient of the mean loss, and its metrics, per denominator."""
  trained, fixed = policy_lib.split(tree or params(), train)
  loss_fn = update_lib.make_loss_fn(policy, config)

  @jax.jit
  def run(trained, batch):
    return gradients.accumulate_gradients(
      lambda p, piece: loss_fn(p, fixed, 0.1, piece),
      trained,
      batch,
      config.micro_batches,
      lambda piece: ~jnp.any(piece.rows.mask),
    )

  grads, count, metrics = run(trained, batch)
  # What sampler and trainer disagree on is described, not summed up.
  sums = {k: v for k, v in metrics.items() if not k.startswith('mismatch')}
  return grads, count, sums


def close(a, b, atol=1e-5):
  assert jax.tree.structure(a) == jax.tree.structure(b)
  for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
    np.testing.assert_allclose(x, y, rtol=1e-5, atol=atol)


TWO_KINDS = dataclasses.replace(
  tiny.CONFIG, sliding_window=4, global_every=2, local_rope_theta=50.0
)


@pytest.mark.parametrize('config', [tiny.CONFIG, TWO_KINDS])
def test_log_probs_are_those_of_each_text_alone(config):
  prompts, completions, owners = texts()
  batch = batch_of(SHARED)
  policy = dataclasses.replace(POLICY, model=config)
  found = outputs(policy, params(), batch.rows)
  logps = packing.gather(batch.rows, found.logps, len(completions))
  model = Transformer(config)

  @jax.jit
  def alone(text, valid):
    mask = by_layer(config, functools.partial(causal_mask, valid))
    hidden, _ = model.apply(
      tiny.params(), text, jnp.arange(text.shape[1])[None], mask
    )
    logits = model.apply(tiny.params(), hidden, method=Transformer.logits)
    return jax.nn.log_softmax(logits / POLICY.temperature)

  for number, (owner, ids) in enumerate(zip(owners, completions, strict=True)):
    text = np.array([prompts[owner] + ids])
    size = text.shape[1]
    text = np.pad(text, ((0, 0), (0, 20 - size)))
    expected = alone(text, jnp.arange(20)[None] < size)
    expected = np.asarray(expected)[0, np.arange(size - 1), text[0, 1:size]]
    np.testing.assert_allclose(
      logps[number, : len(ids)], expected[-len(ids) :], atol=1e-4
    )


PPO = {'kind': 'ppo', 'aggregation': 'token_mean', 'epochs': 2}
GSPO = {'kind': 'gspo', 'aggregation': 'sequence_mean', 'epochs': 2}
CISPO = {
  'kind': 'cispo',
  'aggregation': 'constant',
  'constant_length': 12,
  'importance': 'sequence',
}


@pytest.mark.parametrize('settings', mostly_slow([PPO, GSPO, CISPO], [PPO]))
def test_packing_and_micro_batches_do_not_change_the_gradient(settings):
  whole = LossConfig(entropy_coef=0.01, **settings)
  alone = packing.PackingConfig(8, lanes=1, lane_size=12, sequences=1)
  tree = params(value=True)
  expected = gradient(whole, batch_of(alone), tree)
  # Rows that are shared and, of the same program, cut into four.
  config = dataclasses.replace(whole, micro_batches=4)
  close(expected, gradient(config, batch_of(SHARED, multiple=4), tree))


@pytest.mark.slow
def test_chunks_of_logits_and_remat_do_not_change_the_gradient():
  batch = batch_of(SHARED)
  model = dataclasses.replace(tiny.CONFIG, remat=True, unroll=2)
  other = policy_lib.PolicyConfig(model, temperature=0.8, logits_chunk=5)
  close(
    gradient(LossConfig(), batch),
    gradient(LossConfig(), batch, policy=other),
  )


@pytest.mark.slow
def test_nan_where_there_is_no_token_has_no_influence():
  batch = batch_of(SHARED, multiple=4)
  poison = lambda x: np.where(batch.rows.mask, x, np.nan)
  poisoned = jax.tree.map(poison, batch.replace(rows=None))
  config = LossConfig(epochs=2, importance='token')
  tree = params(value=True)
  found = gradient(config, poisoned.replace(rows=batch.rows), tree)
  close(gradient(config, batch, tree), found)


def make(config, tree=None, policy=POLICY, train='full', lr=1e-2):
  trained, fixed = policy_lib.split(tree or params(), train)
  optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(lr))
  trained = jax.tree.map(jnp.copy, trained)
  state = create_train_state(lambda key: trained, optimizer, jax.random.key(0))
  return state, fixed, update_lib.make_update_fn(policy, optimizer, config)


@pytest.mark.slow
def test_rewarded_completions_become_likely():
  config = LossConfig(epochs=2, minibatches=2)
  batch = batch_of(SHARED, multiple=2, only=('advantages', 'sampler_logps'))
  score = update_lib.make_score_fn(POLICY, config)
  state, fixed, update = make(config)
  before = score(params(), batch.rows).logps
  for _ in range(10):
    old = score({**fixed, **state.params}, batch.rows).logps
    state, metrics = update(
      state, fixed, batch.replace(old_logps=np.asarray(old)), 0.0
    )
  after = score({**fixed, **state.params}, batch.rows).logps
  gained = np.asarray(after - before)[batch.rows.mask]
  worth = batch.advantages[batch.rows.mask]
  assert np.corrcoef(gained, worth)[0, 1] > 0.5
  assert metrics['train/clip_fraction'] >= 0
  assert update._cache_size() == 1


def test_one_step_reads_no_old_log_probs():
  config = LossConfig()
  batch = batch_of(SHARED, only=('advantages', 'sampler_logps'))
  state, fixed, update = make(config)
  _, metrics = update(state, fixed, batch, 0.0)
  assert metrics['train/ratio'] == pytest.approx(1)


def test_adapters_are_trained_alone_and_switch_off():
  config = lora.LoraConfig(rank=2, alpha=4.0)
  policy = dataclasses.replace(POLICY, lora=config)
  shapes = jax.eval_shape(lambda: tiny.params())
  adapters = lora.init(config, shapes, jax.random.key(0))
  tree = {**tiny.params(), 'adapters': adapters}
  batch = batch_of(SHARED, only=('advantages', 'sampler_logps'))
  state, fixed, update = make(LossConfig(), tree, policy, 'lora')
  sizes = [sum(x.size for x in jax.tree.leaves(t)) for t in (adapters, tree)]
  assert set(state.params) == {'adapters'} and sizes[0] < sizes[1]
  state, _ = update(state, fixed, batch, 0.0)
  off = policy_lib.without_adapters({**fixed, **state.params})
  on = outputs(policy, {**fixed, **state.params}, batch.rows).logps
  np.testing.assert_array_equal(
    outputs(policy, off, batch.rows).logps,
    outputs(POLICY, params(), batch.rows).logps,
  )
  assert np.abs(on - outputs(policy, off, batch.rows).logps).max() > 0


def test_a_batch_without_tokens_changes_nothing():
  batch = batch_of(SHARED, only=('advantages', 'sampler_logps'))
  rows = dataclasses.replace(batch.rows, mask=np.zeros_like(batch.rows.mask))
  state, fixed, update = make(LossConfig())
  before = jax.tree.map(np.asarray, state.params)
  state, metrics = update(state, fixed, batch.replace(rows=rows), 0.0)
  jax.tree.map(np.testing.assert_array_equal, before, state.params)
  assert np.isfinite(list(metrics.values())).all()


@pytest.mark.slow
def test_bfloat16_keeps_masters_in_float32():
  batch = batch_of(SHARED, only=('advantages', 'sampler_logps'))
  state, fixed, update = make(LossConfig(compute_dtype='bfloat16'), lr=1e-6)
  before = jax.tree.map(np.asarray, state.params)
  state, _ = update(state, fixed, batch, 0.0)
  changed = jax.tree.map(
    lambda a, b: bool((a != np.asarray(b)).any()), before, state.params
  )
  # A step of 1e-6 would be lost in bfloat16.
  assert all(jax.tree.leaves(changed))
  assert {x.dtype for x in jax.tree.leaves(state.params)} == {np.dtype('f4')}


@pytest.mark.parametrize(
  ('settings', 'message'),
  [
    ({'kind': 'pp0'}, "'pp0'"),
    ({'kind': 'ppo', 'options': {'clip': 1}}, 'no option clip'),
    ({'aggregation': 'mean'}, "aggregation='mean'"),
    ({'compute_dtype': 'int8'}, "compute_dtype='int8'"),
    ({'epochs': 0}, 'epochs=0'),
  ],
)
def test_bad_settings_are_named(settings, message):
  with pytest.raises(ValueError, match=message):
    LossConfig(**settings)


def test_adapters_that_are_missing_cannot_be_trained():
  with pytest.raises(ValueError, match="'lora': expected full, or lora"):
    policy_lib.split(dict(tiny.params()), 'lora')
