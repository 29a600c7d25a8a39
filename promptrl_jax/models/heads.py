"""Value head per token."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp


class ValueHead(nn.Module):
  """A linear value head on the hidden states of a language model.

  Attributes:
    zero_init: whether all values start at 0, so that the first advantages equal
      the returns and contain no noise of a random projection.
  """

  zero_init: bool = True

  @nn.compact
  def __call__(self, hidden: jax.Array) -> jax.Array:
    """Returns values float32 [...] of hidden states [..., D].

    A token's value is that of the state after the token.
    """
    init = nn.initializers.normal(0.0 if self.zero_init else 0.02)
    kernel = self.param('kernel', init, hidden.shape[-1:])
    bias = self.param('bias', nn.initializers.zeros, ())
    wide = hidden.astype(jnp.float32)
    return wide @ kernel.astype(jnp.float32) + bias
