"""Teacher-forced log-probs of given completions, equal to the sampler's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from promptrl_jax.models import causal_steps
from promptrl_jax.models.attention import causal_mask
from promptrl_jax.models.config import TransformerConfig
from promptrl_jax.models.transformer import Transformer
from promptrl_jax.sampling import methods
from promptrl_jax.sampling.prepare import DecodeParams


def score(
  config: TransformerConfig,
  method: methods.Sampling,
  params: Any,
  prompt_tokens: jax.Array,
  prompt_mask: jax.Array,
  tokens: jax.Array,
  mask: jax.Array,
  temperature: jax.Array,
  top_p: jax.Array | None = None,
) -> jax.Array:
  """Log-probs of `tokens` after their prompts.

  Args:
    config: the model.
    method: the same filters that were sampled with.
    params: parameters of the model.
    prompt_tokens: int [B, P], left-padded.
    prompt_mask: bool [B, P].
    tokens: int [B, N], completions as `generate` returns them.
    mask: bool [B, N], which of them count.
    temperature: [B], as it was sampled with.
    top_p: [B], as it was sampled with; None: 1 for every row.

  Returns:
    [B, N], 0 where `mask` is False.
  """
  model = Transformer(config)
  sequence = jnp.concatenate([prompt_tokens, tokens], axis=1)
  valid = jnp.concatenate([prompt_mask, mask], axis=1)
  positions = jnp.maximum(jnp.cumsum(valid, axis=-1) - 1, 0)
  hidden, _ = model.apply(
    params, sequence, positions, causal_mask(valid, config.sliding_window)
  )
  before = hidden[:, prompt_tokens.shape[1] - 1 : -1]
  logits: Any = model.apply(params, before, method=Transformer.logits)
  context = prompt_tokens, prompt_mask
  return methods.chosen_logps(
    logits, context, tokens, mask, temperature, method, top_p
  )


def make_score_fn(
  config: TransformerConfig, method: methods.Sampling
) -> Callable[..., jax.Array]:
  """Jits `score`; each shape (B, P, N) is compiled once."""
  return jax.jit(functools.partial(score, config, method))


def score_prepared(
  config: TransformerConfig,
  method: methods.Sampling,
  params: DecodeParams,
  prompt_tokens: jax.Array,
  prompt_mask: jax.Array,
  tokens: jax.Array,
  mask: jax.Array,
  temperature: jax.Array,
) -> jax.Array:
  """`score` with parameters that are laid out for decoding.

  Args:
    params: from `prepare`; the others as for `score`.

  Returns:
    [B, N], 0 where `mask` is False.
  """
  sequence = jnp.concatenate([prompt_tokens, tokens], axis=1)
  valid = jnp.concatenate([prompt_mask, mask], axis=1)
  positions = jnp.maximum(jnp.cumsum(valid, axis=-1) - 1, 0)
  logits = causal_steps.logits_from(
    config, params.top, params.layers, sequence[:, :-1], positions[:, :-1],
    causal_mask(valid, config.sliding_window)[:, :-1, :-1],
    prompt_tokens.shape[1] - 1,
  )  # fmt: skip
  context = prompt_tokens, prompt_mask
  return methods.chosen_logps(
    logits, context, tokens, mask, temperature, method
  )
