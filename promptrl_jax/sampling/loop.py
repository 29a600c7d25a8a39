"""The part of a decode loop that does not depend on the model."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import struct

from promptrl_jax.models import native
from promptrl_jax.models.encoder_decoder_config import LanguageModelConfig
from promptrl_jax.sampling import methods


@struct.dataclass
class Certainty:
  """How sure a model is of its tokens, at temperature 1 without filters.

  Attributes:
    logps: [B, N], log-probs of the generated tokens; 0 on padding.
    entropies: [B, N], in nats, of the next-token distributions; 0 on padding.
  """

  logps: jax.Array
  entropies: jax.Array


@struct.dataclass
class Completions:
  """Generated tokens and their log-probs.

  Attributes:
    tokens: int32 [B, N], padding after the stop token, which is included.
    logps: [B, N], log-probs of `tokens` under the sampled distribution; 0 on
      padding.
    certainty: None unless the engine was told to measure it.
  """

  tokens: jax.Array
  logps: jax.Array
  mask: jax.Array
  stopped: jax.Array
  certainty: Certainty | None = None


@struct.dataclass
class Options:
  """Sampling options of each row.

  Attributes:
    uniforms: [N, B] in [0, 1), one number per step.
    limits: int [B], most tokens of each row; 0 for an unused row.
  """

  temperature: jax.Array
  uniforms: jax.Array
  limits: jax.Array
  top_p: jax.Array


@struct.dataclass
class Generated:
  """The tokens of each row so far.

  Attributes:
    last: int32 [B], tokens of the last step; padding for a finished row.
    tokens, logps, certainty: [B, N], as in `Completions`.
  """

  step: jax.Array
  last: jax.Array
  tokens: jax.Array
  logps: jax.Array
  counts: jax.Array
  stopped: jax.Array
  seen: jax.Array | None
  certainty: Certainty | None = None

  def active(self, options: Options) -> jax.Array:
    """bool [B], which rows are not finished."""
    return ~self.stopped & (self.counts < options.limits)

  def completions(self) -> Completions:
    """The tokens so far, with the mask of those that were generated."""
    places = jnp.arange(self.tokens.shape[1])
    mask = places < self.counts[:, None]
    return Completions(
      self.tokens, self.logps, mask, self.stopped, self.certainty
    )


def start(
  config: LanguageModelConfig,
  rows: int,
  new_tokens: int,
  seen: jax.Array | None,
  certainty: bool = False,
) -> Generated:
  """The state of `rows` before the first of at most `new_tokens` steps."""
  shape = (rows, new_tokens)
  return Generated(
    step=jnp.int32(0),
    last=jnp.full(rows, config.pad_token_id, jnp.int32),
    tokens=jnp.full(shape, config.pad_token_id, jnp.int32),
    logps=jnp.zeros(shape),
    counts=jnp.zeros(rows, jnp.int32),
    stopped=jnp.zeros(rows, bool),
    seen=seen,
    certainty=Certainty(jnp.zeros(shape), jnp.zeros(shape))
    if certainty
    else None,
  )


def draw(
  config: LanguageModelConfig,
  method: methods.Sampling,
  options: Options,
  generated: Generated,
  logits: jax.Array,
) -> Generated:
  """Draws a token for every unfinished row from `logits` [B, V]."""
  active = generated.active(options)
  uniform = jax.lax.dynamic_index_in_dim(
    options.uniforms, generated.step, keepdims=False
  )
  unfiltered = logits
  logits = methods.distribution(
    logits, options.temperature, method, options.top_p, generated.seen
  )
  if jax.default_backend() == 'cpu' and native.is_available():
    tokens, chosen = native.draw(logits, options.temperature, uniform)
  else:
    logps = jax.nn.log_softmax(logits, axis=-1)
    tokens = methods.draw(uniform, logps, options.temperature)
    chosen = jnp.take_along_axis(logps, tokens[:, None], axis=1)[:, 0]
  tokens = jnp.where(active, tokens, config.pad_token_id)
  chosen = jnp.where(active, chosen, 0.0)
  write = lambda all_, new: jax.lax.dynamic_update_slice_in_dim(
    all_, new[:, None], generated.step, axis=1
  )
  certainty = generated.certainty
  if certainty is not None:
    now = jax.tree.map(
      lambda x: jnp.where(active, x, 0.0), _certainty(unfiltered, tokens)
    )
    certainty = jax.tree.map(write, certainty, now)
  seen = generated.seen
  if seen is not None:
    seen = seen.at[jnp.arange(len(tokens)), tokens].set(True)
  return Generated(
    step=generated.step + 1,
    last=tokens,
    tokens=write(generated.tokens, tokens),
    logps=write(generated.logps, chosen),
    counts=generated.counts + active,
    stopped=generated.stopped | (active & ends(config, tokens)),
    seen=seen,
    certainty=certainty,
  )


def _certainty(logits: jax.Array, tokens: jax.Array) -> Certainty:
  """Of one step, [B], from logits [B, V]."""
  logps = jax.nn.log_softmax(logits.astype(jnp.float32), axis=-1)
  return Certainty(
    jnp.take_along_axis(logps, tokens[:, None], axis=1)[:, 0],
    -jnp.sum(jnp.exp(logps) * logps, axis=-1),
  )


def ends(config: LanguageModelConfig, tokens: jax.Array) -> jax.Array:
  """bool [...], which of `tokens` are stop tokens of the model."""
  ids = jnp.asarray(config.eos_token_ids, jnp.int32)
  return jnp.any(tokens[..., None] == ids, axis=-1)


def uniforms(seeds: jax.Array, steps: jax.Array) -> jax.Array:
  """Uniform numbers [N, B] in [0, 1), one per row and token.

  They are computed before the loop, because hashing for one step costs as much
  as hashing for a hundred. Entry (t, b) comes from fold_in(key(seeds[b]),
  steps[t, b]), the number of earlier tokens of the row.
  """
  draw_one = lambda seed, step: jax.random.uniform(
    jax.random.fold_in(jax.random.key(seed), step)
  )
  steps = jnp.broadcast_to(steps, (len(steps), len(seeds)))
  return jax.vmap(jax.vmap(draw_one), (None, 0))(seeds, steps)
