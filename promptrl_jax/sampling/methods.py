"""How the next token is drawn: one small frozen object.

`decode` and `score` take the same `Sampling`, temperatures and nucleus masses,
so the log-probs that training sees are those of the distribution that was
sampled. Filters apply in the order of transformers' `generate`: repetition
penalty, temperature, top-k, top-p, min-p.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp

_NEG_INF = -1e30


@dataclasses.dataclass(frozen=True)
class Sampling:
  """Filters of the next-token distribution that hold for all rows.

  Temperature and top_p (nucleus sampling, arXiv 1904.09751) are given per row.

  Attributes:
    top_k: keep the k most probable tokens; 0 keeps all.
    min_p: keep tokens with at least min_p times the probability of the most
      probable one (arXiv 2407.01082); 0 keeps all.
    repetition_penalty: logits of tokens that the prompt or the completion has
      already are divided by it where positive and multiplied where negative
      (CTRL, arXiv 1909.05858, as transformers reads it); 1 changes none. Greedy
      rows are penalised, too.
  """

  top_k: int = 0
  min_p: float = 0.0
  repetition_penalty: float = 1.0

  def __post_init__(self):
    if self.top_k < 0:
      raise ValueError(f'top_k={self.top_k}: expected 0 (off) or more')
    if not 0.0 <= self.min_p <= 1.0:
      raise ValueError(
        f'min_p={self.min_p}: expected a value in [0, 1], 0: off'
      )
    check_penalty(self.repetition_penalty)


def check_penalty(penalty: float) -> None:
  """Raises ValueError if it is no repetition penalty."""
  if not 0.0 < penalty < math.inf:
    raise ValueError(
      f'repetition_penalty={penalty}: expected a value above 0, 1: off'
    )


def check_row(temperature: float, top_p: float) -> None:
  """Raises ValueError if a row cannot be drawn with these."""
  if not 0.0 <= temperature < math.inf:  # not a number, either
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
  """Log-probabilities of the next token after penalty, temperature and filters.

  Args:
    logits: [..., V].
    temperature: [...]; at 0 the row is decoded greedily, and its log-probs are
      those at temperature 1, since a point mass has none to learn from.
    method: the filters.
    top_p: [...] in (0, 1]: keep the smallest set of most probable tokens whose
      mass reaches it; 1 keeps all. None: 1 for every row.
    seen: bool [..., V], tokens that the repetition penalty meets; None if there
      is no penalty.

  Returns:
    [..., V], normalised over the tokens that are kept.
  """
  logits = logits.astype(jnp.float32)
  if seen is not None:
    logits = penalise(logits, seen, method.repetition_penalty)
  logits /= jnp.where(temperature > 0, temperature, 1.0)[..., None]
  if method.top_k:
    k = min(method.top_k, logits.shape[-1])
    logits = _keep(logits, jax.lax.top_k(logits, k)[0][..., -1])
  if top_p is not None:
    # A sort costs more than the rest together: only where a row needs one.
    logits = jax.lax.cond(
      jnp.any(top_p < 1.0), _keep_nucleus, lambda x, _: x, logits, top_p
    )
  if method.min_p:
    peak = jnp.max(logits, axis=-1)
    logits = _keep(logits, peak + math.log(method.min_p))
  return jax.nn.log_softmax(logits, axis=-1)


def penalise(logits: jax.Array, seen: jax.Array, penalty: float) -> jax.Array:
  """The repetition penalty on `logits` where `seen`; shapes broadcast."""
  less = jnp.where(logits < 0, logits * penalty, logits / penalty)
  return jnp.where(seen, less, logits)


def first_seen(
  tokens: jax.Array, mask: jax.Array, places: jax.Array, vocab_size: int
) -> jax.Array:
  """The least place of each token of the vocabulary.

  Args:
    tokens: int [B, T].
    mask: bool [B, T], which of them are there.
    places: int32 [T].
    vocab_size: V.

  Returns:
    int32 [B, V]; the largest int32 for a token that is nowhere.
  """
  rows = jnp.arange(len(tokens))[:, None]
  never = jnp.iinfo(jnp.int32).max
  least = jnp.full((len(tokens), vocab_size), never, jnp.int32)
  return least.at[rows, tokens].min(jnp.where(mask, places, never))


def seen(
  method: Sampling, tokens: jax.Array, mask: jax.Array, vocab_size: int
) -> jax.Array | None:
  """Which tokens are in [B, T]: bool [B, V]; None if nobody asks."""
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

  Args:
    logits: [B, N, V], of the place of each token.
    context: int [B, P] and bool [B, P], what the repetition penalty meets
      before the first of `tokens`, and which of it counts.
    tokens: int [B, N].
    mask: bool [B, N].
    temperature: [B].
    method: the filters that were sampled with.
    top_p: [B], as it was sampled with; None: 1 for every row.
  """
  wide = lambda x: jnp.broadcast_to(x[:, None], tokens.shape)
  before = None
  if method.repetition_penalty != 1.0:
    # One number per token of the vocabulary tells for each place whether the
    # token came before; the comparison is fused with the penalty.
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


def _keep(logits: jax.Array, floor: jax.Array) -> jax.Array:
  """`logits` [..., V] that reach `floor` [...]; the others get none."""
  return jnp.where(logits >= floor[..., None], logits, _NEG_INF)


def _keep_nucleus(logits: jax.Array, top_p: jax.Array) -> jax.Array:
  ranked = -jnp.sort(-logits, axis=-1)
  mass = jnp.cumsum(jax.nn.softmax(ranked, axis=-1), axis=-1)
  # The first token whose cumulative mass reaches top_p is still kept.
  last = jnp.sum(mass < top_p[..., None], axis=-1, keepdims=True)
  last = jnp.minimum(last, logits.shape[-1] - 1)
  floor = jnp.take_along_axis(ranked, last, axis=-1)[..., 0]
  # Rounding may reach 1 early: a row must not depend on its neighbours' top_p.
  return _keep(logits, jnp.where(top_p < 1.0, floor, -jnp.inf))


def draw(
  uniform: jax.Array, logps: jax.Array, temperature: jax.Array
) -> jax.Array:
  """One token per row: the most probable where temperature is 0, else a sample.

  Samples by inverting the cumulative distribution, in blocks: the block first,
  then the token inside it. One uniform number per row instead of one per token,
  and a twelfth of the time of the Gumbel trick at V = 1536 on two cores.

  Args:
    uniform: [B] in [0, 1), one number per row.
    logps: [B, V].
    temperature: [B].

  Returns:
    int32 [B].
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
  return jnp.where(temperature > 0, sampled, _first_maximum(logps))


def _first_maximum(x: jax.Array) -> jax.Array:
  """argmax over the last axis as two reductions that vectorise on CPU."""
  peak = jnp.max(x, axis=-1, keepdims=True)
  places = jnp.arange(x.shape[-1], dtype=jnp.int32)
  return jnp.min(jnp.where(x == peak, places, x.shape[-1] - 1), axis=-1)
