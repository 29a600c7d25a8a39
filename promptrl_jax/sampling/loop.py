"""What the loops of all samplers share: one token per row, until rows are done.

A loop carries `Drawn` beside the state of its model. Its body runs the model
for a token and calls `draw`, in the order that suits the model.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import struct

from promptrl_jax.models.encoder_decoder_config import LanguageModelConfig
from promptrl_jax.sampling import methods


@struct.dataclass
class Completions:
  """What samplers return.

  Attributes:
    tokens: int32 [B, N], pad after the stop token, which is included.
    logps: [B, N], log-probs of `tokens` under the sampled distribution; 0 on
      pad.
    mask: bool [B, N], which tokens were generated.
    stopped: bool [B], whether the row ended with the stop token.
  """

  tokens: jax.Array
  logps: jax.Array
  mask: jax.Array
  stopped: jax.Array


@struct.dataclass
class Options:
  """How each row draws.

  Attributes:
    temperature: [B], 0 for greedy.
    uniforms: [N, B] in [0, 1), a number for each step.
    limits: int [B], most tokens of each row; 0 for a row that is not there.
    top_p: [B], nucleus mass; None: all of it for every row.
  """

  temperature: jax.Array
  uniforms: jax.Array
  limits: jax.Array
  top_p: jax.Array | None = None


@struct.dataclass
class Drawn:
  """What the rows have drawn so far.

  Attributes:
    step: scalar, how many steps there were.
    last: int32 [B], what the last step drew; pad for a row that was done.
    tokens, logps: [B, N], as in `Completions`.
    counts: int32 [B], tokens of each row.
    stopped: bool [B], which rows have ended with a stop token.
    seen: bool [B, V], tokens that the repetition penalty meets, or None.
  """

  step: jax.Array
  last: jax.Array
  tokens: jax.Array
  logps: jax.Array
  counts: jax.Array
  stopped: jax.Array
  seen: jax.Array | None

  def active(self, options: Options) -> jax.Array:
    """bool [B], which rows draw on."""
    return ~self.stopped & (self.counts < options.limits)

  def completions(self) -> Completions:
    """The tokens so far."""
    places = jnp.arange(self.tokens.shape[1])
    mask = places < self.counts[:, None]
    return Completions(self.tokens, self.logps, mask, self.stopped)


def start(
  config: LanguageModelConfig,
  last: jax.Array,
  new_tokens: int,
  seen: jax.Array | None,
) -> Drawn:
  """No tokens yet.

  Args:
    config: the model.
    last: int32 [B], what the first step is to find as the last token.
    new_tokens: N, most steps.
    seen: bool [B, V], from `methods.seen`.
  """
  shape = (len(last), new_tokens)
  return Drawn(
    step=jnp.int32(0),
    last=last,
    tokens=jnp.full(shape, config.pad_token_id, jnp.int32),
    logps=jnp.zeros(shape),
    counts=jnp.zeros(len(last), jnp.int32),
    stopped=jnp.zeros(len(last), bool),
    seen=seen,
  )


def goes_on(drawn: Drawn, options: Options) -> jax.Array:
  """Scalar bool: whether any row draws on and there are steps left."""
  steps_left = drawn.step < drawn.tokens.shape[1]
  return steps_left & jnp.any(drawn.active(options))


def draw(
  config: LanguageModelConfig,
  method: methods.Sampling,
  options: Options,
  drawn: Drawn,
  logits: jax.Array,
) -> Drawn:
  """Draws a token for every row that is not done, from `logits` [B, V]."""
  active = drawn.active(options)
  uniform = jax.lax.dynamic_index_in_dim(
    options.uniforms, drawn.step, keepdims=False
  )
  logps = methods.log_distribution(
    logits, options.temperature, method, options.top_p, drawn.seen
  )
  tokens = methods.draw(uniform, logps, options.temperature)
  chosen = jnp.take_along_axis(logps, tokens[:, None], axis=1)[:, 0]
  tokens = jnp.where(active, tokens, config.pad_token_id)
  chosen = jnp.where(active, chosen, 0.0)
  write = lambda all_, new: jax.lax.dynamic_update_slice_in_dim(
    all_, new[:, None], drawn.step, axis=1
  )
  seen = drawn.seen
  if seen is not None:
    seen = seen.at[jnp.arange(len(tokens)), tokens].set(True)
  return Drawn(
    step=drawn.step + 1,
    last=tokens,
    tokens=write(drawn.tokens, tokens),
    logps=write(drawn.logps, chosen),
    counts=drawn.counts + active,
    stopped=drawn.stopped | (active & ends(config, tokens)),
    seen=seen,
  )


def ends(config: LanguageModelConfig, tokens: jax.Array) -> jax.Array:
  """Which tokens end a text."""
  ids = jnp.asarray(config.eos_token_ids, jnp.int32)
  return jnp.any(tokens[..., None] == ids, axis=-1)


def uniforms(seeds: jax.Array, steps: jax.Array) -> jax.Array:
  """Uniform numbers in [0, 1), one per row and token.

  All before the loop: hashing for one step costs as much as for a hundred.

  Args:
    seeds: uint32 [B].
    steps: int [N, B] or [N, 1], how many tokens the row has before.

  Returns:
    [N, B]; entry (t, b) comes from fold_in(key(seeds[b]), steps[t, b]).
  """
  draw_one = lambda seed, step: jax.random.uniform(
    jax.random.fold_in(jax.random.key(seed), step)
  )
  steps = jnp.broadcast_to(steps, (len(steps), len(seeds)))
  return jax.vmap(jax.vmap(draw_one), (None, 0))(seeds, steps)
