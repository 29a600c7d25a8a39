"""Teacher-forced log-probs of given completions, equal to the sampler's."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
from jax.sharding import Mesh

from promptrl_jax.sampling import methods
from promptrl_jax.sampling.jit_rows import jit_rows
from promptrl_jax.sampling.model import Model
from promptrl_jax.sampling.prepare import DecodeParams


def score(
  model: Model,
  method: methods.Sampling,
  params: DecodeParams,
  prompt_tokens: jax.Array,
  prompt_mask: jax.Array,
  tokens: jax.Array,
  mask: jax.Array,
  temperature: jax.Array,
  top_p: jax.Array | None = None,
) -> jax.Array:
  """Log-probs [B, N] of `tokens` after their left-padded prompts [B, P].

  Masks are False on padding, where the result is 0. Temperatures and nucleus
  masses are [B], as they were sampled with; `top_p=None`: 1 for every row.
  """
  logits = model.completion_logits(
    params, prompt_tokens, prompt_mask, tokens, mask
  )
  context = model.context(prompt_tokens, prompt_mask)
  return methods.chosen_logps(
    logits, context, tokens, mask, temperature, method, top_p
  )


def make_score_fn(
  model: Model, method: methods.Sampling, mesh: Mesh
) -> Callable[..., jax.Array]:
  """Jits `score` with rows split over a mesh; compiled once per shape."""
  return jit_rows(functools.partial(score, model, method), mesh)
