"""Beam search of an encoder-decoder, jitted.

Equal to `generate(num_beams=K, early_stopping=True)` of transformers 5. A step
ranks all continuations of a prompt's K beams by one token. Of the best K, those
that end are candidates for the prompt's K results; of the best 2 K (more with
several stop tokens), the first K that do not end are the next beams. A prompt
is finished when it has K results, or when no beam could beat them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.sharding import Mesh

from promptrl_jax.models import encoder_decoder_steps
from promptrl_jax.models.cache import LayerCache
from promptrl_jax.models.encoder_decoder_config import EncoderDecoderConfig
from promptrl_jax.sampling import methods
from promptrl_jax.sampling.decode import jit_rows
from promptrl_jax.sampling.loop import Completions, ends
from promptrl_jax.sampling.prepare import DecodeParams

_NEVER = -1e9  # Score of what must not be chosen.


@dataclasses.dataclass(frozen=True)
class Beams:
  """How wide to search and what to prefer.

  Attributes:
    num_beams: K.
    length_penalty: a result's score is the sum of its log-probs divided by
      length ** length_penalty; above 0 prefers longer results.
    repetition_penalty: as in `methods.Sampling`, but on log-probs, as
      transformers has it: those of tokens that a beam has already are
      multiplied by it before they are added to its score.
  """

  num_beams: int
  length_penalty: float = 1.0
  repetition_penalty: float = 1.0

  def __post_init__(self):
    if self.num_beams < 1:
      raise ValueError(f'num_beams={self.num_beams}: expected 1 or more')
    methods.check_penalty(self.repetition_penalty)


@struct.dataclass
class _Texts:
  """K sequences of each prompt, running or finished."""

  tokens: jax.Array  # int32 [B, K, N], pad behind the end
  logps: jax.Array  # [B, K, N], of `tokens`, no penalty, 0 behind the end
  scores: jax.Array  # [B, K], descending

  def take(self, places: jax.Array) -> _Texts:
    """The sequences at `places` [B, any] of each prompt."""
    return jax.tree.map(lambda x: _take(x, places), self)


@struct.dataclass
class _LoopState:
  step: jax.Array  # scalar, tokens of each beam so far
  current: jax.Array  # int32 [B * K], their last token
  cache: tuple[LayerCache, ...]
  beams: _Texts  # score: sum of log-probs with the repetition penalty
  results: _Texts  # score: that sum over length ** length_penalty
  filled: jax.Array  # bool [B, K], which results are there
  hopeful: jax.Array  # bool [B], whether a beam can still beat a result


def beam_search(
  config: EncoderDecoderConfig,
  beams: Beams,
  new_tokens: int,
  params: DecodeParams,
  tokens: jax.Array,
  mask: jax.Array,
) -> tuple[Completions, jax.Array]:
  """The best answer to each prompt; pure, jitted by `make_beam_fn`.

  Args:
    config: the model.
    beams: width and length penalty.
    new_tokens: N, most tokens of an answer.
    params: parameters of the model, from `prepare`.
    tokens: int [B, P], prompts.
    mask: bool [B, P]; a row without any True is padding and gets no tokens.

  Returns:
    Completions [B, N] with log-probs at temperature 1, and their scores [B].

  Raises:
    ValueError: there are fewer tokens than continuations to keep.
  """
  k, vocabulary = beams.num_beams, config.vocab_size
  # All K beams may end with each of the stop tokens, and K must go on.
  kept = k * (1 + max(1, len(config.eos_token_ids)))
  if kept > vocabulary:
    raise ValueError(
      f'num_beams={k} keeps {kept} continuations: expected at most '
      f'vocab_size={vocabulary}'
    )
  batch = tokens.shape[0]
  top, layers = params.top, params.layers
  encoded = encoder_decoder_steps.encode(config, top, tokens, mask)
  cache, cross = encoder_decoder_steps.start_cache(
    config, layers, encoded, batch * k, new_tokens
  )
  lengths = np.arange(1, new_tokens + 1, dtype=np.float64)
  divisors = jnp.asarray(lengths**beams.length_penalty, jnp.float32)

  def cond(state: _LoopState) -> jax.Array:
    open_prompts = state.hopeful & ~jnp.all(state.filled, axis=-1)
    return (state.step < new_tokens) & jnp.any(open_prompts)

  def body(state: _LoopState) -> _LoopState:
    step, divisor = state.step, divisors[state.step]
    logits, cache = encoder_decoder_steps.decode_step(
      config, top, layers, state.current, state.cache, cross, step, mask
    )
    logps = jax.nn.log_softmax(logits, axis=-1).reshape(batch, k, vocabulary)
    added = logps
    if beams.repetition_penalty != 1.0:
      read = _read(config, state.beams.tokens, step)
      added = methods.penalise(logps, read, beams.repetition_penalty)
    texts, parents, last = _continue(state.beams, logps, added, step, kept)
    over = ends(config, last) | (step + 1 >= new_tokens)
    running = texts.scores + jnp.where(over, _NEVER, 0.0)
    scores, chosen = jax.lax.top_k(running, k)
    next_beams = dataclasses.replace(texts.take(chosen), scores=scores)

    counts = over & (jnp.arange(kept) < k)
    is_open = state.hopeful & ~jnp.all(state.filled, axis=-1)
    score = texts.scores / divisor
    score += jnp.where(is_open[:, None], 0.0, _NEVER)
    score += jnp.where(counts, 0.0, _NEVER)
    merged = jax.tree.map(
      lambda old, new: jnp.concatenate([old, new], axis=1),
      state.results,
      dataclasses.replace(texts, scores=score),
    )
    _, best = jax.lax.top_k(merged.scores, k)
    results = merged.take(best)
    filled = _take(jnp.concatenate([state.filled, counts], axis=1), best)

    # The best beam may win a place that is free, or that of the worst result.
    worst = jnp.where(filled, results.scores[:, -1:], _NEVER)
    could_win = jnp.any(scores[:, :1] / divisor > worst, axis=-1)
    rows = jnp.arange(batch)[:, None] * k + _take(parents, chosen)
    return _LoopState(
      step=step + 1,
      current=_take(last, chosen).reshape(-1),
      cache=jax.tree.map(lambda x: x[rows.reshape(-1)], cache),
      beams=next_beams,
      results=results,
      filled=filled,
      hopeful=state.hopeful & could_win,
    )

  is_prompt = jnp.any(mask, axis=-1)
  empty = _Texts(
    jnp.full((batch, k, new_tokens), config.pad_token_id, jnp.int32),
    jnp.zeros((batch, k, new_tokens)),
    jnp.full((batch, k), _NEVER),
  )
  state = _LoopState(
    step=jnp.int32(0),
    current=jnp.full(batch * k, config.decoder_start_token_id, jnp.int32),
    cache=cache,
    # All beams are alike at first: only one may be continued.
    beams=dataclasses.replace(empty, scores=empty.scores.at[:, 0].set(0.0)),
    results=empty,
    filled=jnp.zeros((batch, k), bool),
    hopeful=is_prompt,
  )
  results = jax.lax.while_loop(cond, body, state).results
  written = jnp.broadcast_to(is_prompt[:, None], (batch, new_tokens))
  best = _to_completions(
    config, results.tokens[:, 0], results.logps[:, 0], written
  )
  return best, jnp.where(is_prompt, results.scores[:, 0], 0.0)


def make_beam_fn(
  config: EncoderDecoderConfig, beams: Beams, new_tokens: int, mesh: Mesh
) -> Callable[..., tuple[Completions, jax.Array]]:
  """Jits `beam_search` with the batch split over the mesh.

  Returns:
    A function of (params, tokens, mask), split as by `decode.make_generate_fn`;
    each shape (B, P) is compiled once.
  """
  return jit_rows(
    functools.partial(beam_search, config, beams, new_tokens), mesh
  )


def _read(
  config: EncoderDecoderConfig, tokens: jax.Array, step: jax.Array
) -> jax.Array:
  """What the decoder has read of each beam: bool [B, K, V].

  Args:
    config: the model.
    tokens: int [B, K, N].
    step: scalar int, how many of them are there.
  """
  first = (*tokens.shape[:2], 1)
  tokens = jnp.concatenate(
    [jnp.full(first, config.decoder_start_token_id, jnp.int32), tokens], axis=2
  )
  places = jnp.arange(tokens.shape[2])
  shape = (*tokens.shape[:2], config.vocab_size)
  flat = tokens.reshape(-1, len(places))
  everywhere = jnp.ones(flat.shape, bool)
  first_places = methods.first_seen(flat, everywhere, places, config.vocab_size)
  return (first_places <= step).reshape(shape)


def _to_completions(
  config: EncoderDecoderConfig,
  tokens: jax.Array,
  logps: jax.Array,
  written: jax.Array,
) -> Completions:
  """Completions of `tokens` and `logps` [B, N], pad and 0 after a stop token.

  Args:
    config: the model.
    tokens: int32 [B, N].
    logps: [B, N].
    written: bool [B, N], what the row got if no stop token came before.
  """
  # Padding may be a stop token: models without a pad token use one.
  ended = ends(config, tokens) & written
  before = jnp.cumsum(ended, axis=-1) - ended
  return Completions(
    tokens=tokens,
    logps=logps,
    mask=written & (before == 0),
    stopped=jnp.any(ended, axis=-1),
  )


def _continue(
  beams: _Texts,
  logps: jax.Array,
  added: jax.Array,
  step: jax.Array,
  kept: int,
) -> tuple[_Texts, jax.Array, jax.Array]:
  """The best continuations by one token.

  Args:
    beams: K of each prompt.
    logps: [B, K, V] of their next token.
    added: [B, K, V], what it adds to the score.
    step: scalar int, where that token goes.
    kept: how many continuations.

  Returns:
    The sequences, best first, the beams that they continue, and their last
    tokens, both [B, kept].
  """
  batch, _, vocabulary = logps.shape
  totals = (beams.scores[..., None] + added).reshape(batch, -1)
  scores, places = jax.lax.top_k(totals, kept)
  parents, last = jnp.divmod(places, vocabulary)
  last = last.astype(jnp.int32)
  last_logps = _take(logps.reshape(batch, -1), places)
  texts = beams.take(parents)
  texts = dataclasses.replace(
    texts,
    tokens=texts.tokens.at[:, :, step].set(last),
    logps=texts.logps.at[:, :, step].set(last_logps),
    scores=scores,
  )
  return texts, parents, last


def _take(x: jax.Array, places: jax.Array) -> jax.Array:
  """`x` [B, K, ...] at `places` [B, any] of each row."""
  return jax.vmap(lambda row, chosen: row[chosen])(x, places)
