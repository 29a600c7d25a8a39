"""Policy losses: numbers by hand, gradients, and properties of all losses."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.rl import policy_losses
from promptrl_jax.rl.aggregation import AGGREGATIONS, aggregation_weights
from promptrl_jax.rl.losses import TokenBatch, TokenTerm, policy_loss
from promptrl_jax.rl.masked import masked_mean
from promptrl_jax.rl.policy_losses import POLICY_LOSSES, make_policy_loss_fn
from tests.variants import mostly_slow

F, T = False, True
NAMES = sorted(POLICY_LOSSES)
MASK = jnp.array([[T, T, T, F], [T, T, F, F], [T, F, T, T], [F, F, F, F]])


def random_batch(seed=0, size=4, spread=0.3):
  keys = jax.random.split(jax.random.key(seed), 4)
  shape = (size, 4)
  logps = -jnp.exp(jax.random.normal(keys[0], shape))
  old_logps = logps + spread * jax.random.normal(keys[1], shape)
  ref_logps = logps + spread * jax.random.normal(keys[2], shape)
  advantages = jax.random.normal(keys[3], (size, 1)) * jnp.ones(shape)
  return logps, old_logps, advantages, ref_logps


def one_token(name, ratio, advantage, **options):
  """Value and gradient of a loss of one token, whose reference is the old."""
  loss_fn = make_policy_loss_fn(name, **options)
  old = jnp.array([[-2.0]])

  def total(logps):
    return loss_fn(
      logps, old, jnp.array([[advantage]]), jnp.ones((1, 1), bool), None, old
    )

  (loss, metrics), gradient = jax.value_and_grad(total, has_aux=True)(
    old + jnp.log(ratio)
  )
  return float(loss), metrics, float(gradient[0, 0])


@pytest.mark.parametrize(
  ('name', 'ratio', 'advantage', 'loss', 'gradient'),
  [
    ('ppo', 1.5, 1.0, -1.2, 0.0),
    ('ppo', 1.5, -1.0, 1.5, 1.5),
    ('ppo', 0.5, 1.0, -0.5, -0.5),
    ('ppo', 0.5, -1.0, 0.8, 0.0),
    ('dapo', 1.25, 1.0, -1.25, -1.25),
    ('dapo', 1.5, 1.0, -1.28, 0.0),
    ('dapo', 0.5, -1.0, 0.8, 0.0),
    ('gspo', 1.5, 1.0, -1.0004, 0.0),
    ('gspo', 0.5, -1.0, 0.9997, 0.0),
    ('gspo', 1.5, -1.0, 1.5, 1.5),
  ],
)
def test_clips_by_hand(name, ratio, advantage, loss, gradient):
  value, metrics, slope = one_token(name, ratio, advantage)
  np.testing.assert_allclose(value, loss, rtol=1e-6)
  np.testing.assert_allclose(slope, gradient, rtol=1e-6)
  assert metrics['clip_fraction'] == (gradient == 0.0)
  np.testing.assert_allclose(metrics['ratio'], ratio, rtol=1e-6)
  k3 = ratio - 1 - np.log(ratio)
  np.testing.assert_allclose(metrics['approx_kl'], k3, rtol=1e-5)


def test_the_dual_clip_bounds_large_ratios_of_bad_tokens():
  loss, metrics, gradient = one_token('ppo', 9.0, -1.0, dual_clip=3.0)
  np.testing.assert_allclose([loss, gradient], [3.0, 0.0], rtol=1e-6)
  assert metrics['clip_fraction'] == 1
  loss, metrics, gradient = one_token('ppo', 2.0, -1.0, dual_clip=3.0)
  np.testing.assert_allclose([loss, gradient], [2.0, 2.0], rtol=1e-6)
  assert metrics['clip_fraction'] == 0
  # Good tokens have their own clip.
  assert one_token('ppo', 9.0, 1.0, dual_clip=3.0) == one_token('ppo', 9.0, 1.0)


@pytest.mark.parametrize(
  ('ratio', 'weight'), [(9.0, 5.0), (3.0, 3.0), (0.01, 0.01)]
)
@pytest.mark.parametrize('advantage', [1.0, -2.0])
def test_cispo_bounds_the_weight_and_drops_no_gradient(
  ratio, weight, advantage
):
  loss, metrics, gradient = one_token('cispo', ratio, advantage)
  np.testing.assert_allclose(gradient, -weight * advantage, rtol=1e-5)
  expected = -weight * advantage * (np.log(ratio) - 2)
  np.testing.assert_allclose(loss, expected, rtol=1e-5)
  assert metrics['clip_fraction'] == (weight != ratio)


def test_reinforce_on_two_arms_has_the_analytic_gradient():
  # Pull each arm once; d log p_a / d logits = onehot(a) - p.
  p = np.array([0.7, 0.3])
  advantages = np.array([[2.0], [-1.0]])

  def total(logits):
    logps = jax.nn.log_softmax(logits)[:, None]
    mask = jnp.ones((2, 1), bool)
    return policy_loss(
      policy_losses.reinforce, logps, logps, jnp.asarray(advantages), mask
    )[0]

  gradient = jax.grad(total)(jnp.log(jnp.asarray(p)))
  np.testing.assert_allclose(gradient, -(advantages * (np.eye(2) - p)).sum(0))


def test_reinforce_in_expectation_climbs_the_reward_whatever_the_baseline():
  logits, rewards = jnp.array([0.3, -0.5]), jnp.array([1.0, 0.0])
  p = jax.nn.softmax(logits)
  expected = -jax.grad(lambda x: jax.nn.softmax(x) @ rewards)(logits)
  for baseline in (0.0, 0.7):

    def total(logits, baseline=baseline):
      logps = jax.nn.log_softmax(logits)[:, None]
      advantages = (rewards - baseline)[:, None]
      mask = jnp.ones((2, 1), bool)
      return policy_loss(
        policy_losses.reinforce, logps, logps, advantages, mask, p[:, None]
      )[0]

    np.testing.assert_allclose(jax.grad(total)(logits), expected, atol=1e-6)


@pytest.mark.parametrize('name', NAMES)
@pytest.mark.parametrize('kind', mostly_slow(AGGREGATIONS, ['sequence_mean']))
def test_all_losses_have_the_gradient_of_reinforce_on_policy(name, kind):
  logps, _, advantages, _ = random_batch()
  length = 4 if kind == 'constant' else None
  weights, _ = aggregation_weights(MASK, kind, length)

  def gradient(name):
    return jax.grad(
      lambda x: make_policy_loss_fn(name)(
        x, logps, advantages, MASK, weights, logps
      )[0]
    )(logps)

  np.testing.assert_allclose(gradient(name), -weights * advantages, atol=1e-6)


def test_weights_reach_the_loss_and_not_the_metrics():
  logps, old_logps, advantages, _ = random_batch(1)
  weights, _ = aggregation_weights(MASK, 'sequence_mean')
  ppo = policy_losses.ppo
  loss, metrics = policy_loss(ppo, logps, old_logps, advantages, MASK, weights)
  # A mask of weights reaches both.
  expected, weighted = policy_loss(ppo, logps, old_logps, advantages, weights)
  np.testing.assert_allclose(loss, expected, rtol=1e-6)
  # The same tokens as single actions: [N, C] or [valid], each of weight 1.
  arrays = [x[MASK] for x in (logps, old_logps, advantages)]
  _, counts = policy_loss(ppo, *arrays)
  for name, value in counts.items():
    np.testing.assert_allclose(metrics[name], value, rtol=1e-5, err_msg=name)
  assert weighted['ratio'] < 4 < metrics['ratio']


def test_token_ratios_agree_with_their_definition():
  logps, old_logps, advantages, _ = random_batch(1)
  weights, _ = aggregation_weights(MASK, 'sequence_mean')
  loss, metrics = policy_loss(
    policy_losses.ppo, logps, old_logps, advantages, MASK, weights
  )
  difference, a, w = (
    np.asarray(x)[np.asarray(MASK)]
    for x in (logps - old_logps, advantages, weights)
  )
  ratio = np.exp(difference)
  clipped = np.clip(ratio, 0.8, 1.2)
  expected = -np.sum(w * np.minimum(ratio * a, clipped * a))
  np.testing.assert_allclose(loss, expected, rtol=1e-5)
  kl = np.sum(ratio - 1 - difference)
  np.testing.assert_allclose(metrics['approx_kl'], kl, rtol=1e-4)
  np.testing.assert_allclose(metrics['ratio'], ratio.sum(), rtol=1e-5)
  assert metrics['clip_fraction'] == np.sum(clipped * a < ratio * a)


def test_gspo_has_one_ratio_for_each_sequence():
  logps, old_logps, advantages, _ = random_batch(2)
  weights, _ = aggregation_weights(MASK, 'sequence_mean')
  low, high = 0.05, 0.1
  expected = 0.0
  for i in range(3):
    own = np.asarray(MASK[i])
    ratio = np.exp(np.mean(np.asarray(logps - old_logps)[i][own]))
    a = float(advantages[i, 0])
    expected -= min(ratio * a, np.clip(ratio, 1 - low, 1 + high) * a)
  loss_fn = make_policy_loss_fn('gspo', clip_low=low, clip_high=high)
  loss, _ = loss_fn(logps, old_logps, advantages, MASK, weights)
  np.testing.assert_allclose(loss, expected, rtol=1e-5)


def test_gspo_gradient_is_that_of_its_token_form():
  # Eq. 13 of the paper: s_it = sg(s_i) pi / sg(pi), whose value is s_i.
  logps, old_logps, advantages, _ = random_batch(3)
  weights, _ = aggregation_weights(MASK, 'sequence_mean')

  def token_form(x):
    log_ratio = jnp.where(MASK, x - old_logps, 0)
    mean = masked_mean(log_ratio, MASK, axis=1, keepdims=True)
    ratio = jnp.exp(jax.lax.stop_gradient(mean) + x - jax.lax.stop_gradient(x))
    bounded = jnp.clip(ratio, 0.9, 1.1)
    objective = jnp.minimum(ratio * advantages, bounded * advantages)
    return -jnp.sum(weights * objective)

  loss_fn = make_policy_loss_fn('gspo', clip_low=0.1, clip_high=0.1)

  def sequence_form(x):
    return loss_fn(x, old_logps, advantages, MASK, weights)[0]

  np.testing.assert_allclose(
    jax.grad(sequence_form)(logps), jax.grad(token_form)(logps), atol=1e-6
  )


@pytest.mark.parametrize(
  ('rho', 'scale'), [(0.99, 0.995976), (1.0, 1.0), (1.01, 0.992079)]
)
def test_trajectory_scale_by_hand(rho, scale):
  # The mean over two tokens of log-ratios 2 log rho and 0 is log rho.
  logps = jnp.log(rho) * jnp.array([[2.0, 0.0, jnp.nan]])
  mask = jnp.array([[T, T, F]])
  result = policy_losses.trajectory_scale(logps, jnp.zeros((1, 3)), mask)
  np.testing.assert_allclose(result, [scale], atol=1e-6)


def test_no_gradient_flows_through_the_trajectory_scale():
  logps, old_logps, advantages, ref_logps = random_batch(4)
  scale = policy_losses.trajectory_scale(logps, ref_logps, MASK)
  assert (scale[:3] < 0.999).all() and scale[3] == 1.0

  def mispo(logps):
    return policy_loss(
      policy_losses.mispo, logps, old_logps, advantages, MASK, None, ref_logps
    )[0]

  ppo = make_policy_loss_fn('ppo', clip_low=0.5, clip_high=1.0)

  def scaled(logps):
    weights = jnp.broadcast_to(scale[:, None], MASK.shape)
    return ppo(logps, old_logps, advantages, MASK, weights)[0]

  expected, gradient = jax.value_and_grad(scaled)(logps)
  result = jax.value_and_grad(mispo)(logps)
  np.testing.assert_allclose(result[0], expected, rtol=1e-6)
  np.testing.assert_allclose(result[1], gradient, rtol=1e-6)
  through = jax.grad(
    lambda x: policy_losses.trajectory_scale(x, ref_logps, MASK).sum()
  )(logps)
  np.testing.assert_array_equal(through, 0.0)


@pytest.mark.parametrize('name', NAMES)
def test_padding_reaches_neither_losses_nor_gradients(name):
  batch = random_batch(5)
  weights, _ = aggregation_weights(MASK, 'token_mean')
  loss_fn = make_policy_loss_fn(name)

  def total(logps, old_logps, advantages, ref_logps, weights):
    loss, metrics = loss_fn(
      logps, old_logps, advantages, MASK, weights, ref_logps
    )
    return loss, metrics

  graded = jax.value_and_grad(total, has_aux=True)
  (loss, metrics), gradient = graded(*batch, weights)
  dirty = [jnp.where(MASK, x, jnp.nan) for x in (*batch, weights)]
  (value, sums), slope = jax.jit(graded)(*dirty)
  # Compiled as a whole, sums are taken in another order.
  np.testing.assert_allclose(value, loss, rtol=3e-5)
  np.testing.assert_allclose(slope, gradient, rtol=3e-5, atol=1e-7)
  for key in metrics:
    np.testing.assert_allclose(sums[key], metrics[key], rtol=1e-4, err_msg=key)


@pytest.mark.parametrize('name', mostly_slow(NAMES, ['gspo', 'ppo']))
def test_micro_batches_of_sequences_add_up(name):
  logps, old_logps, advantages, ref_logps = random_batch(6, 8)
  mask = jnp.concatenate([MASK, MASK[::-1]])
  weights, _ = aggregation_weights(mask, 'sequence_mean')
  loss_fn = make_policy_loss_fn(name)
  arrays = (logps, old_logps, advantages, mask, weights, ref_logps)
  whole = loss_fn(*arrays)
  pieces = jax.jit(jax.vmap(loss_fn))(
    *(x.reshape(4, 2, *x.shape[1:]) for x in arrays)
  )
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y.sum(), rtol=1e-5, atol=1e-6),
    whole,
    pieces,
  )


@pytest.mark.parametrize('name', NAMES)
def test_gradients_reach_log_probabilities_alone(name):
  logps, old_logps, advantages, ref_logps = random_batch(7)
  loss_fn = make_policy_loss_fn(name)
  gradients = jax.grad(
    lambda old, a, ref, w: loss_fn(logps, old, a, MASK, w, ref)[0],
    argnums=(0, 1, 2, 3),
  )(old_logps, advantages, ref_logps, jnp.ones((4, 4)))
  np.testing.assert_array_equal(jnp.stack(gradients), 0.0)


@pytest.mark.parametrize('name', NAMES)
def test_extreme_ratios_have_finite_losses_and_gradients(name):
  old_logps = jnp.full((4, 4), -200.0)
  advantages = jnp.array([[1.0], [-1.0], [0.0], [1.0]]) * jnp.ones((4, 4))
  loss_fn = make_policy_loss_fn(name)
  for logps in (jnp.zeros((4, 4)), jnp.full((4, 4), -400.0)):
    value, gradient = jax.value_and_grad(
      lambda x: loss_fn(x, old_logps, advantages, MASK, None, old_logps)[0]
    )(logps)
    assert jnp.isfinite(value) and jnp.isfinite(gradient).all()


def test_narrow_log_probabilities_are_summed_wide():
  logps = jnp.full((1, 4096), -1.0, jnp.bfloat16)
  ones = jnp.ones((1, 4096))
  loss, metrics = policy_loss(policy_losses.ppo, logps, logps, ones, ones > 0)
  assert loss == -4096 and metrics['ratio'] == 4096


def test_bad_settings_are_refused():
  with pytest.raises(ValueError, match="'trpo': expected one of ppo, dapo"):
    make_policy_loss_fn('trpo')
  with pytest.raises(ValueError, match="; GRPO is the loss 'ppo' with adv"):
    make_policy_loss_fn('grpo')
  with pytest.raises(ValueError, match="'dapo' has no option clip: expected"):
    make_policy_loss_fn('dapo', clip=0.2)
  with pytest.raises(ValueError, match='reinforce.*clip_low: expected none'):
    make_policy_loss_fn('reinforce', clip_low=0.2)
  with pytest.raises(ValueError, match='dual_clip=0.5'):
    one_token('ppo', 1.0, 1.0, dual_clip=0.5)
  x, mask = jnp.zeros((2, 3)), jnp.ones((2, 3), bool)
  with pytest.raises(ValueError, match='without ref_logps'):
    make_policy_loss_fn('mispo')(x, x, x, mask)
  with pytest.raises(ValueError, match=r'band \[1.1, 1.2\]'):
    policy_losses.trajectory_scale(x, x, mask, 1.1, 1.2)


@pytest.mark.parametrize('name', NAMES)
def test_shapes_that_would_broadcast_are_refused(name):
  loss_fn = make_policy_loss_fn(name)
  x, mask = jnp.zeros((2, 3)), jnp.ones((2, 3), bool)
  with pytest.raises(AssertionError):
    loss_fn(x, x, jnp.zeros((2, 1)), mask, None, x)
  with pytest.raises(AssertionError):
    loss_fn(x, x[:, :1], x, mask, None, x)
  with pytest.raises(AssertionError):
    loss_fn(x, x, x, mask, jnp.ones((2, 1)), x)


def test_a_registered_term_is_a_policy_loss(monkeypatch):
  monkeypatch.setattr(policy_losses, 'POLICY_LOSSES', {})

  def squared(tokens: TokenBatch, *, scale: float = 0.5) -> TokenTerm:
    ratio = jnp.exp(tokens.log_ratio)
    objective = ratio * tokens.advantages - scale * tokens.log_ratio**2
    never = jnp.zeros(ratio.shape, bool)
    return TokenTerm(objective, never, ratio, {'doubled': 2 * ratio})

  policy_losses.register_policy_loss('squared', squared)
  old, advantage = jnp.array([-2.0, jnp.nan]), jnp.array([3.0, jnp.nan])
  loss, metrics = make_policy_loss_fn('squared', scale=2.0)(
    old + jnp.log(1.5), old, advantage, jnp.array([T, F])
  )
  np.testing.assert_allclose(loss, 2 * np.log(1.5) ** 2 - 4.5, rtol=1e-6)
  np.testing.assert_allclose(metrics['doubled'], 3.0, rtol=1e-6)
  with pytest.raises(ValueError, match="'squared' is registered already"):
    policy_losses.register_policy_loss('squared', squared)
  with pytest.raises(ValueError, match='no option clip: expected scale'):
    make_policy_loss_fn('squared', clip=1.0)


@pytest.mark.parametrize(
  'term',
  [
    lambda: None,
    lambda *tokens: None,
    lambda tokens, clip: None,
    lambda tokens, clip=0.2: None,
    lambda tokens, *, clip: None,
    lambda tokens, **options: None,
  ],
)
def test_a_term_of_another_signature_is_refused(term):
  with pytest.raises(ValueError, match="'odd' has the signature .* expected"):
    policy_losses.register_policy_loss('odd', term)
  assert 'odd' not in policy_losses.POLICY_LOSSES


def test_a_term_of_another_shape_is_refused():
  def total(tokens):
    objective = jnp.sum(tokens.logps, axis=1)
    return TokenTerm(objective, objective > 0, objective)

  x = jnp.zeros((2, 3))
  with pytest.raises(AssertionError):
    policy_loss(total, x, x, x)
