"""Beam search with an encoder-decoder, as one jitted program.

It equals `generate(num_beams=K, early_stopping=True)` of transformers 5. A step
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
from promptrl_jax.sampling.jit_rows import jit_rows
from promptrl_jax.sampling.loop import Completions, ends
from promptrl_jax.sampling.prepare import DecodeParams

_NEVER = -1e9  # Score of a sequence that must not be chosen.


@dataclasses.dataclass(frozen=True)
class Beams:
  """Settings of a beam search.

  Attributes:
    length_penalty: a result's score is the sum of its log-probs divided by
      length ** length_penalty; above 0 prefers longer results.
    repetition_penalty: as in `methods.Sampling`, but on log-probs, as in
      transformers: those of tokens that a beam already contains are multiplied
      by it before they are added to its score.
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

  tokens: jax.Array  # int32 [B, K, N], padding behind the end
  logps: jax.Array  # [B, K, N] without the penalty, 0 behind the end
  scores: jax.Array  # [B, K], descending

  def take(self, places: jax.Array) -> _Texts:
    """The sequences at `places` [B, any] of each prompt."""
    return jax.tree.map(lambda x: _take(x, places), self)


@struct.dataclass
class _LoopState:
  step: jax.Array  # scalar, tokens of each beam so far
  current: jax.Array  # int32 [B * K], the last token of each beam
  cache: tuple[LayerCache, ...]
  beams: _Texts  # score: sum of log-probs with the repetition penalty
  results: _Texts  # score: that sum over length ** length_penalty
  filled: jax.Array  # bool [B, K], which results exist
  hopeful: jax.Array  # bool [B], whether a beam can still beat a result

  @property
  def open(self) -> jax.Array:
    """bool [B], prompts whose search goes on."""
    return self.hopeful & ~jnp.all(self.filled, axis=-1)


def beam_search(
  config: EncoderDecoderConfig,
  beams: Beams,
  new_tokens: int,
  params: DecodeParams,
  tokens: jax.Array,
  mask: jax.Array,
  limits: jax.Array,
) -> tuple[Completions, jax.Array]:
  """The best completion of each prompt; pure, jitted by `make_beam_fn`.

  Args:
    mask: bool [B, P]; a row without any True is padding and gets no tokens.
    limits: int [B] in 1 to N, most tokens of each row.

  Returns:
    Completions [B, N] with log-probs at temperature 1, and their scores [B].
  """
  k = beams.num_beams
  # All K beams may end with each of the stop tokens, and K must go on.
  kept = k * (1 + max(1, len(config.eos_token_ids)))
  if kept > config.vocab_size:
    raise ValueError(
      f'num_beams={k} keeps {kept} continuations: expected at most vocab_size='
      f'{config.vocab_size}'
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
    return (state.step < new_tokens) & jnp.any(state.open)

  def body(state: _LoopState) -> _LoopState:
    logits, cache = encoder_decoder_steps.decode_step(
      config, top, layers, state.current, state.cache, cross, state.step, mask
    )
    logps = jax.nn.log_softmax(logits, axis=-1)
    logps = logps.reshape(batch, k, config.vocab_size)
    added = logps
    if beams.repetition_penalty != 1.0:
      read = _read(config, state.beams.tokens, state.step)
      added = methods.penalise(logps, read, beams.repetition_penalty)
    texts, parents, last = _continue(
      state.beams, logps, added, state.step, kept
    )
    over = ends(config, last) | (state.step + 1 >= limits[:, None])
    state = dataclasses.replace(state, cache=cache)
    return _advance(state, texts, parents, last, over, divisors[state.step])

  is_prompt = jnp.any(mask, axis=-1)
  state = _start(config, k, new_tokens, cache, is_prompt)
  results = jax.lax.while_loop(cond, body, state).results
  written = jnp.arange(new_tokens) < limits[:, None]
  written &= is_prompt[:, None]
  # Padding may be a stop token: models without a pad token use one.
  ended = ends(config, results.tokens[:, 0]) & written
  before = jnp.cumsum(ended, axis=-1) - ended
  best = Completions(
    tokens=results.tokens[:, 0],
    logps=results.logps[:, 0],
    mask=written & (before == 0),
    stopped=jnp.any(ended, axis=-1),
  )
  return best, jnp.where(is_prompt, results.scores[:, 0], 0.0)


def _start(
  config: EncoderDecoderConfig,
  k: int,
  new_tokens: int,
  cache: tuple[LayerCache, ...],
  is_prompt: jax.Array,
) -> _LoopState:
  batch = len(is_prompt)
  empty = _Texts(
    jnp.full((batch, k, new_tokens), config.pad_token_id, jnp.int32),
    jnp.zeros((batch, k, new_tokens)),
    jnp.full((batch, k), _NEVER),
  )
  return _LoopState(
    step=jnp.int32(0),
    current=jnp.full(batch * k, config.decoder_start_token_id, jnp.int32),
    cache=cache,
    # All beams are equal at first: only one may be continued.
    beams=dataclasses.replace(empty, scores=empty.scores.at[:, 0].set(0.0)),
    results=empty,
    filled=jnp.zeros((batch, k), bool),
    hopeful=is_prompt,
  )


def _advance(
  state: _LoopState,
  texts: _Texts,
  parents: jax.Array,
  last: jax.Array,
  over: jax.Array,
  divisor: jax.Array,
) -> _LoopState:
  """Picks the next beams, and the results, among the continuations."""
  batch, k = state.filled.shape
  running = texts.scores + jnp.where(over, _NEVER, 0.0)
  scores, chosen = jax.lax.top_k(running, k)
  counts = over & (jnp.arange(over.shape[1]) < k)
  score = texts.scores / divisor
  score += jnp.where(state.open[:, None], 0.0, _NEVER)
  score += jnp.where(counts, 0.0, _NEVER)
  merged = jax.tree.map(
    lambda old, new: jnp.concatenate([old, new], axis=1),
    state.results,
    dataclasses.replace(texts, scores=score),
  )
  _, best = jax.lax.top_k(merged.scores, k)
  results = merged.take(best)
  filled = _take(jnp.concatenate([state.filled, counts], axis=1), best)

  # The best beam may take a free result, or replace the worst one.
  worst = jnp.where(filled, results.scores[:, -1:], _NEVER)
  could_win = jnp.any(scores[:, :1] / divisor > worst, axis=-1)
  rows = jnp.arange(batch)[:, None] * k + _take(parents, chosen)
  return _LoopState(
    step=state.step + 1,
    current=_take(last, chosen).reshape(-1),
    cache=jax.tree.map(lambda x: x[rows.reshape(-1)], state.cache),
    beams=dataclasses.replace(texts.take(chosen), scores=scores),
    results=results,
    filled=filled,
    hopeful=state.hopeful & could_win,
  )


def make_beam_fn(
  config: EncoderDecoderConfig, beams: Beams, new_tokens: int, mesh: Mesh
) -> Callable[..., tuple[Completions, jax.Array]]:
  """Jits `beam_search` of (params, tokens, mask, limits) over the mesh."""
  return jit_rows(
    functools.partial(beam_search, config, beams, new_tokens), mesh
  )


def _read(
  config: EncoderDecoderConfig, tokens: jax.Array, step: jax.Array
) -> jax.Array:
  """bool [B, K, V], which tokens the decoder has read of each beam."""
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


def _continue(
  beams: _Texts, logps: jax.Array, added: jax.Array, step: jax.Array, kept: int
) -> tuple[_Texts, jax.Array, jax.Array]:
  """The best `kept` continuations by the token at position `step`.

  Its log-probs are [B, K, V], and `added` is what it adds to the score.

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
