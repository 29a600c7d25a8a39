"""The loss of the update is the one that its terms make in NumPy."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from promptrl_jax.testing import tiny
from promptrl_jax.training.rewriter import packing
from promptrl_jax.training.rewriter import policy as policy_lib
from promptrl_jax.training.rewriter import update as update_lib
from promptrl_jax.training.rewriter.config import LossConfig
from promptrl_jax.training.state import create_train_state
from tests.training.rewriter.update_test import POLICY, SHARED, batch_of, params
from tests.variants import mostly_slow

KL_COEF = 0.3
# Nothing is 0 or 1, so that a term that is left out or turned around shows.
CONFIG = LossConfig(
  kind='ppo',
  kl_estimator='k2',
  kl_cap=0.02,
  entropy_coef=0.07,
  value_coef=0.4,
  value_clip=0.05,
  importance_cap=1.1,
  epochs=2,
)


def in_numpy(batch, found, config):
  """The loss over its denominator, and metrics, from the policy's outputs."""
  mask = batch.rows.mask.reshape(-1, SHARED.lane_size)
  flat = lambda x: np.where(mask, np.reshape(x, mask.shape), 0.0)
  logps, old = flat(found.logps), flat(batch.old_logps)
  ratio = np.exp(logps - old)
  worth = flat(batch.advantages)
  gain = np.minimum(ratio * worth, np.clip(ratio, 0.8, 1.2) * worth)
  between = old - flat(batch.sampler_logps)
  trust = {
    'none': np.ones_like(between),
    'token': np.exp(between),
    'sequence': np.exp(between.sum(1, keepdims=True)) + 0 * between,
  }[config.importance]
  trust = np.where(mask, np.minimum(trust, config.importance_cap), 0.0)
  if config.importance == 'none':
    trust = mask.astype(float)
  apart = logps - flat(batch.ref_logps)
  divergence = np.minimum(apart**2 / 2, config.kl_cap)
  divergence = np.where(np.exp(logps) > config.kl_min_prob, divergence, 0.0)
  values, before = flat(found.values), flat(batch.old_values)
  near = before + np.clip(values - before, -0.05, 0.05)
  errors = np.maximum(
    (values - flat(batch.returns)) ** 2, (near - flat(batch.returns)) ** 2
  )
  policy = -np.sum(trust * gain)
  total = (
    policy
    - config.entropy_coef * flat(found.entropies).sum()
    + KL_COEF * divergence[mask].sum()
    + config.value_coef * errors[mask].sum()
  )
  count = mask.sum()
  return {
    'loss': total / count,
    'policy_loss': policy / count,
    'value_loss': errors[mask].sum() / count,
    'entropy': flat(found.entropies).sum() / count,
    'kl': np.sum((ratio * (np.expm1(-apart) + apart))[mask]) / count,
    'mismatch_kl': np.sum((np.expm1(between) - between)[mask]) / count,
  }


@pytest.mark.parametrize(
  'importance', mostly_slow(['none', 'token', 'sequence'], ['token'])
)
def test_every_term_counts_as_much_as_it_should(importance):
  batch, tree = batch_of(SHARED), params(value=True)
  found = jax.jit(policy_lib.outputs, static_argnums=0)(
    POLICY, tree, batch.rows
  )
  likely = float(np.exp(np.median(found.logps[batch.rows.mask])))
  config = dataclasses.replace(
    CONFIG, importance=importance, kl_min_prob=likely
  )
  batch = batch.replace(
    # Near to what the policy says, so that neither clip nor cap is everything.
    **{
      name: np.where(
        batch.rows.mask, np.asarray(of) + 0.3 * (at - np.mean(at)), 0.0
      ).astype(np.float32)
      for name, of, at in (
        ('old_logps', found.logps, batch.old_logps),
        ('ref_logps', found.logps, batch.ref_logps),
        ('old_values', found.values, batch.old_values),
      )
    },
  )
  batch = batch.replace(
    sampler_logps=batch.old_logps + 0.2 * np.sign(batch.advantages)
  )
  loss_fn = update_lib.make_loss_fn(POLICY, config)
  loss, (count, metrics) = jax.jit(loss_fn)(tree, {}, KL_COEF, batch)
  expected = in_numpy(batch, found, config)
  assert count == metrics['tokens'] == batch.rows.mask.sum()
  measured = {'loss': loss} | {k: metrics[k] for k in expected if k != 'loss'}
  for name, value in expected.items():
    assert float(measured[name] / count) == pytest.approx(value, rel=1e-4), name
  # Terms that do nothing would be found equal whatever they are.
  assert 0.01 < float(metrics['clip_fraction'] / count) < 0.99
  for changed in ({'kl_cap': 9.9}, {'kl_min_prob': None}):
    plain = update_lib.make_loss_fn(
      POLICY, dataclasses.replace(config, **changed)
    )
    assert not np.isclose(jax.jit(plain)(tree, {}, KL_COEF, batch)[0], loss)


@functools.partial(jax.jit, static_argnums=0)
def distributions(policy, tree, rows):
  """All of them, as log-probs [R, S * C, V]."""
  kernel, axis = policy_lib.head(policy, tree)
  states = policy_lib.outputs(policy, tree, rows, keep_hidden=True).hidden
  logits = states @ (kernel.T if axis else kernel)
  return jax.nn.log_softmax(logits / policy.temperature)


@pytest.mark.slow
@pytest.mark.parametrize('chunk', [None, 5])
def test_the_exact_divergence_is_a_term_over_the_whole_vocabulary(chunk):
  policy = dataclasses.replace(POLICY, logits_chunk=chunk)
  # Another shape, and tied where the policy is not.
  other = dataclasses.replace(
    policy,
    model=dataclasses.replace(
      tiny.CONFIG,
      hidden_size=16,
      tie_embeddings=not tiny.CONFIG.tie_embeddings,
    ),
  )
  config = LossConfig(kl_estimator='exact', kl_cap=0.075, micro_batches=2)
  batch, tree = batch_of(SHARED, multiple=2), params()
  rows, there = batch.rows, batch.rows.mask
  of_other = dict(tiny.params(other.model, seed=5))
  found = update_lib.make_score_fn(other, config, keep_hidden=True)(
    of_other, rows
  )
  batch = batch.replace(ref_logps=found.logps, ref_hidden=found.hidden)
  logps, ref_logps = (
    distributions(policy, tree, rows),
    distributions(other, of_other, rows),
  )
  apart = jnp.sum(jnp.exp(logps) * (logps - ref_logps), axis=-1)
  expected = np.asarray(packing.of_sequences(rows, apart))[there]
  scored = update_lib.make_score_fn(policy, config, other)(
    tree, rows, batch.ref_hidden, of_other
  )
  np.testing.assert_allclose(
    np.asarray(scored.divergences)[there], expected, rtol=1e-4
  )
  optimizer = optax.sgd(1e-2)
  update = update_lib.make_update_fn(policy, optimizer, config, None, other)

  def one_update(price):
    state = create_train_state(
      lambda _: jax.tree.map(jnp.copy, tree), optimizer, jax.random.key(0)
    )
    return update(state, {}, batch, price, of_other)

  (moved, metrics), (free, without) = one_update(KL_COEF), one_update(0.0)
  assert metrics['train/kl'] == pytest.approx(expected.mean(), rel=1e-4)
  capped = np.minimum(expected, config.kl_cap)
  assert 0.1 < np.mean(expected > capped) < 0.9  # or the cap would not show
  assert metrics['train/loss'] - without['train/loss'] == pytest.approx(
    KL_COEF * capped.mean(), rel=1e-3
  )
  # Where it has a price the policy moves towards the reference.
  after = [
    update(state, {}, batch, 0.0, of_other)[1]['train/kl']
    for state in (moved, free)
  ]
  assert after[0] < after[1]


def test_products_of_16_bits_are_what_a_config_asks_for():
  batch, tree = batch_of(SHARED), params()
  score = lambda dtype: np.asarray(
    update_lib.make_score_fn(POLICY, LossConfig(compute_dtype=dtype))(
      tree, batch.rows
    ).logps
  )
  difference = np.abs(score('bfloat16') - score('float32'))[batch.rows.mask]
  assert 1e-4 < difference.max() < 0.5


@pytest.mark.parametrize('trunk', [False, True])
def test_the_value_loss_changes_the_trunk_if_asked_to(trunk):
  policy = dataclasses.replace(POLICY, value_trunk=trunk)
  batch = batch_of(SHARED)
  batch = batch.replace(advantages=0 * batch.advantages, ref_logps=None)
  tree = params(value=True)
  loss_fn = update_lib.make_loss_fn(policy, LossConfig())
  # One program: without `jit`, each operation would be compiled by itself.
  found = jax.jit(jax.grad(lambda tree: loss_fn(tree, {}, 0.0, batch)[0]))(tree)
  assert optax.tree.norm(found['value']) > 0
  assert (optax.tree.norm(found['params']) > 0) == trunk
