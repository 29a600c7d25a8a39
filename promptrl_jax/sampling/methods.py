"""The distribution that the next token is drawn from, and the draw.

The decode loop and `score` take the same `Sampling`, temperatures and nucleus
masses, so the log-probs that training sees are those of the distribution that
was sampled. The order is that of transformers' `generate`: repetition penalty,
temperature, top-k, top-p, min-p, and then further filters.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp

from promptrl_jax.sampling import filters as filters_lib


@dataclasses.dataclass(frozen=True)
class Sampling:
  """Filters of the next-token distribution, the same for all rows.

  Temperature and top_p (nucleus sampling, arXiv 1904.09751) are given per row.

  Attributes:
    top_k: keep the k most probable tokens; 0 keeps all.
    min_p: keep tokens with at least min_p times the probability of the most
      probable one (arXiv 2407.01082); 0 keeps all.
    repetition_penalty: logits of tokens that the prompt or the completion
      already contains are divided by it where positive and multiplied where
      negative (CTRL, arXiv 1909.05858, as in transformers); 1 changes nothing.
      It applies to greedy rows, too.
  """

  top_k: int = 0
  min_p: float = 0.0
  repetition_penalty: float = 1.0
  filters: tuple[filters_lib.Filter, ...] = ()

  def __post_init__(self):
    filters_lib.TopK(self.top_k)
    filters_lib.MinP(self.min_p)
    check_penalty(self.repetition_penalty)


def check_penalty(penalty: float) -> None:
  """Raises ValueError unless `penalty` is positive and finite."""
  if not 0.0 < penalty < math.inf:
    raise ValueError(
      f'repetition_penalty={penalty}: expected a value above 0, 1: off'
    )


def check_row(temperature: float, top_p: float) -> None:
  """Raises ValueError if a row cannot be sampled with these settings."""
  if not 0.0 <= temperature < math.inf:  # refuses NaN, too
    raise ValueError(f'temperature={temperature}: expected 0 (greedy) or more')
  if not 0.0 < top_p <= 1.0:
    raise ValueError(f'top_p={top_p}: expected a value in (0, 1], 1: off')


def log_distribution(
  logits: jax.Array,
  temperature: jax.Array,
  method: Sampling,
  top_p: jax.Array | None = None,
  seen: jax.Array | None = None,
) -> jax.Array:
  """Log-probabilities [..., V] of the next token, those of `distribution`."""
  logits = distribution(logits, temperature, method, top_p, seen)
  return jax.nn.log_softmax(logits, axis=-1)


def distribution(
  logits: jax.Array,
  temperature: jax.Array,
  method: Sampling,
  top_p: jax.Array | None = None,
  seen: jax.Array | None = None,
) -> jax.Array:
  """Logits of the next token after penalty, temperature and filters.

  Args:
    temperature: [...]; at 0 the row is decoded greedily, and its log-probs are
      those at temperature 1, because a point mass has no gradient.
    top_p: [...] in (0, 1]: keep the smallest set of most probable tokens whose
      mass reaches it; 1 keeps all. None: 1 for every row.

  Returns:
    float32 [..., V], -1e30 for tokens that are not kept.
  """
  logits = logits.astype(jnp.float32)
  if seen is not None:
    logits = penalise(logits, seen, method.repetition_penalty)
  logits /= jnp.where(temperature > 0, temperature, 1.0)[..., None]
  if method.top_k:
    logits = filters_lib.TopK(method.top_k)(logits)
  if top_p is not None:
    # It costs more than all the rest: it runs only if a row needs it.
    logits = jax.lax.cond(
      jnp.any(top_p < 1.0),
      filters_lib.keep_nucleus,
      lambda x, _: x,
      logits,
      top_p,
    )
  if method.min_p:
    logits = filters_lib.MinP(method.min_p)(logits)
  for keep in method.filters:
    logits = keep(logits)
  return logits


def penalise(logits: jax.Array, seen: jax.Array, penalty: float) -> jax.Array:
  """The repetition penalty on `logits` where `seen`; shapes broadcast."""
  less = jnp.where(logits < 0, logits * penalty, logits / penalty)
  return jnp.where(seen, less, logits)


def first_seen(
  tokens: jax.Array, mask: jax.Array, places: jax.Array, vocab_size: int
) -> jax.Array:
  """The smallest position of each token in [B, T], int32 [B, V].

  `places` [T] are the positions; a token that does not occur has the largest
  int32.
  """
  rows = jnp.arange(len(tokens))[:, None]
  never = jnp.iinfo(jnp.int32).max
  least = jnp.full((len(tokens), vocab_size), never, jnp.int32)
  return least.at[rows, tokens].min(jnp.where(mask, places, never))


def seen(
  method: Sampling, tokens: jax.Array, mask: jax.Array, vocab_size: int
) -> jax.Array | None:
  """bool [B, V], tokens that occur in [B, T]; None without a penalty."""
  if method.repetition_penalty == 1.0:
    return None
  zeros = jnp.zeros(tokens.shape[1], jnp.int32)
  return first_seen(tokens, mask, zeros, vocab_size) == 0


def chosen_logps(
  logits: jax.Array,
  context: tuple[jax.Array, jax.Array],
  tokens: jax.Array,
  mask: jax.Array,
  temperature: jax.Array,
  method: Sampling,
  top_p: jax.Array | None = None,
) -> jax.Array:
  """Log-probs [B, N] of `tokens` [B, N], 0 where `mask` [B, N] is False.

  `context` holds the tokens [B, P] that the repetition penalty starts from, and
  their mask; the other arguments are those that were sampled with.
  """
  wide = lambda x: jnp.broadcast_to(x[:, None], tokens.shape)
  before = None
  if method.repetition_penalty != 1.0:
    # A token's first position says for every later one that it came before: one
    # number per token of the vocabulary, compared inside the fused penalty.
    count = jnp.arange(tokens.shape[1])
    places = jnp.pad(count + 1, (context[0].shape[1], 0))
    first = first_seen(
      jnp.concatenate([context[0], tokens], axis=1),
      jnp.concatenate([context[1], mask], axis=1),
      places,
      logits.shape[-1],
    )
    before = first[:, None] <= count[:, None]
  logps = log_distribution(
    logits,
    wide(temperature),
    method,
    None if top_p is None else wide(top_p),
    before,
  )
  chosen = jnp.take_along_axis(logps, tokens[..., None], axis=-1)[..., 0]
  return jnp.where(mask, chosen, 0.0)


def draw(
  uniform: jax.Array, logps: jax.Array, temperature: jax.Array
) -> jax.Array:
  """Draws one token per row, the most probable one where temperature is 0.

  It inverts the cumulative distribution in two steps, first for a block of
  tokens and then for the token in it. That takes one number `uniform` [B] in
  [0, 1) per row instead of one per token, and a twelfth of the time of the
  Gumbel trick at V = 1536 on two cores.
  """
  vocab_size = logps.shape[-1]
  block = 32
  probs = jnp.pad(jnp.exp(logps), ((0, 0), (0, -vocab_size % block)))
  probs = probs.reshape(logps.shape[0], -1, block)
  upper = jnp.cumsum(jnp.sum(probs, axis=-1), axis=-1)  # [B, V / block]
  target = uniform * upper[:, -1]
  chosen_block = jnp.sum(upper <= target[:, None], axis=-1)
  chosen_block = jnp.minimum(chosen_block, upper.shape[-1] - 1)[:, None]
  inside = jnp.take_along_axis(probs, chosen_block[..., None], axis=1)[:, 0]
  inside_cdf = jnp.cumsum(inside, axis=-1)
  below = jnp.take_along_axis(upper, chosen_block, axis=1) - inside_cdf[:, -1:]
  offset = jnp.sum(below + inside_cdf <= target[:, None], axis=-1)
  # Rounding may step past the last token that has any probability.
  places = jnp.arange(block)
  last = jnp.max(jnp.where(inside > 0, places, 0), axis=-1)
  sampled = chosen_block[:, 0] * block + jnp.minimum(offset, last)
  # argmax by two reductions, which vectorise on CPU.
  is_peak = logps == jnp.max(logps, axis=-1, keepdims=True)
  places = jnp.arange(vocab_size, dtype=jnp.int32)
  best = jnp.min(jnp.where(is_peak, places, vocab_size - 1), axis=-1)
  return jnp.where(temperature > 0, sampled, best)
