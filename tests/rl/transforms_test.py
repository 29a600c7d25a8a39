"""Under jit and vmap, functions return the same as one batch at a time."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.rl import (
  bandits,
  completions,
  filters,
  gpro,
  kl,
  losses,
  policy_losses,
  preference,
  reference,
)
from tests.variants import mostly_slow

RNG = np.random.default_rng(0)
B, N, C = 3, 4, 6  # batches, sequences, tokens


def draw(*shape):
  return jnp.asarray(RNG.normal(size=(B, *shape)), jnp.float32)


MASK = jnp.asarray(RNG.random((B, N, C)) < 0.7)
GROUPS = jnp.broadcast_to(jnp.array([0, 0, 1, 1]), (B, N))
fixed = functools.partial

CASES = {
  'to_tokens': (completions.to_tokens, draw(N), MASK),
  'token_rewards': (completions.token_rewards, draw(N), MASK),
  'completion_returns': (
    fixed(completions.completion_returns, gamma=0.9),
    draw(N, C),
    MASK,
  ),
  'reinforce_pp': (
    fixed(completions.reinforce_pp_advantages, kl_coef=0.1),
    draw(N),
    MASK,
    draw(N, C),
  ),
  'token_kl': (fixed(kl.token_kl, kind='k3'), draw(N, C), draw(N, C), MASK),
  'penalize': (
    fixed(kl.penalize, kl_coef=0.1),
    draw(N, C),
    draw(N, C),
    MASK,
  ),
  'trajectory_scale': (
    policy_losses.trajectory_scale,
    draw(N, C),
    draw(N, C),
    MASK,
  ),
  'value_loss': (
    fixed(losses.value_loss, clip=0.2),
    draw(C),
    draw(C),
    draw(C),
  ),
  'categorical_entropy': (losses.categorical_entropy, draw(N, C), MASK),
  'preference_loss': (
    preference.preference_loss,
    draw(N),
    draw(N),
    draw(N),
    draw(N),
  ),
  'pair_advantages': (
    fixed(preference.pair_advantages, num_groups=2),
    draw(N),
    draw(N),
    GROUPS,
  ),
  'informative_groups': (
    fixed(filters.informative_groups, num_groups=2),
    draw(N),
    GROUPS,
  ),
  'impute_rewards': (
    gpro.impute_rewards,
    draw(N),
    jnp.ones((B, N), int),
    draw(N, C),
    -jnp.abs(draw(N, C)),
  ),
  'ema': (fixed(reference.ema, decay=0.9), draw(N), draw(N)),
  'copy_every': (
    fixed(reference.copy_every, every=2),
    draw(N),
    draw(N),
    jnp.arange(B),
  ),
  'bandits': (
    lambda features, rewards, mask: bandits.scores(
      bandits.posterior(
        bandits.update(
          bandits.initial(2, C), features, jnp.arange(N) % 2, rewards, mask
        )
      ),
      features,
      0.5,
    ),
    draw(N, C),
    draw(N),
    MASK[..., 0],
  ),
}


EVERY_TIME = ('token_kl', 'bandits')


@pytest.mark.parametrize('name', mostly_slow(CASES, EVERY_TIME))
def test_batches_at_once_are_batches_one_by_one(name):
  fn, *arrays = CASES[name]
  together = jax.jit(jax.vmap(fn))(*arrays)
  alone = [fn(*(x[i] for x in arrays)) for i in range(B)]
  expected = jax.tree.map(lambda *x: jnp.stack(x), *alone)
  jax.tree.map(
    functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6),
    together,
    expected,
  )
  assert any(np.asarray(x).any() for x in jax.tree.leaves(expected))
