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
  """Log-probs of `tokens` after their prompts.

  Args:
    model: the model.
    method: the filters that were sampled with.
    params: parameters of the model, from `prepare`.
    prompt_tokens: int [B, P], left-padded.
    prompt_mask: bool [B, P], False on padding.
    tokens: int [B, N], completions as samplers return them.
    mask: bool [B, N], False on padding.
    temperature: [B], as it was sampled with.
    top_p: [B], as it was sampled with; None: 1 for every row.

  Returns:
    [B, N], 0 where `mask` is False.
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
