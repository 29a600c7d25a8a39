"""A causal model with its layers apart: reads prompts, then token after token.

The loop over layers is unrolled. Each layer updates a cache of its own in
place, where a scan would copy the stacked cache, and the layer's weights, once
per token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from promptrl_jax.models.cache import LayerCache
from promptrl_jax.models.config import TransformerConfig
from promptrl_jax.models.transformer import Block, Transformer, norm, rope


def prefill(
  config: TransformerConfig,
  top: Any,
  layers: Sequence[Any],
  tokens: jax.Array,
  positions: jax.Array,
  mask: jax.Array,
) -> tuple[jax.Array, list[tuple[jax.Array, jax.Array]]]:
  """`Transformer.__call__` with a tree for each layer instead of a stack.

  Args:
    config: the model.
    top: its variables but those of the layers.
    layers: the variables of each layer: its parameters, kernels under `stored`,
      and adapters under `lora` if it has some.
    tokens, positions, mask: as for `Transformer.__call__`.

  Returns:
    Logits [B, V] after the last token of each row, and the keys and values of
    each layer, [B, T, K, H].
  """
  x, cached = _read(config, top, layers, tokens, positions, mask)
  return _logits(config, top, x[:, -1]), cached


def logits_from(
  config: TransformerConfig,
  top: Any,
  layers: Sequence[Any],
  tokens: jax.Array,
  positions: jax.Array,
  mask: jax.Array,
  start: int,
) -> jax.Array:
  """Logits [B, T - start, V] after each token from `start` on.

  Other arguments are as for `prefill`.
  """
  x, _ = _read(config, top, layers, tokens, positions, mask)
  return _logits(config, top, x[:, start:])


def _read(
  config: TransformerConfig,
  top: Any,
  layers: Sequence[Any],
  tokens: jax.Array,
  positions: jax.Array,
  mask: jax.Array,
) -> tuple[jax.Array, list[tuple[jax.Array, jax.Array]]]:
  """Outputs of the last layer [B, T, D]; keys and values of each layer."""
  model, block = Transformer(config), Block(config)
  angles = rope(config, positions)
  x: Any = model.apply(top, tokens, positions, method=Transformer.embed)
  cached = []
  for layer in layers:
    x, keys_values = block.apply(layer, x, angles, mask)
    cached.append(keys_values)
  return x, cached


def decode_step(
  config: TransformerConfig,
  top: Any,
  layers: Sequence[Any],
  tokens: jax.Array,
  positions: jax.Array,
  cache: tuple[LayerCache, ...],
  slot: jax.Array,
  mask: jax.Array,
) -> tuple[jax.Array, tuple[LayerCache, ...]]:
  """Logits of the token after `tokens`, and the cache with `tokens` in it.

  Args:
    config: the model.
    top: its variables but those of the layers.
    layers: the variables of each layer: its parameters, kernels under `stored`,
      and adapters under `lora` if it has some.
    tokens: int [B], the last token of each row.
    positions: int [B], their positions.
    cache: one `LayerCache` per layer.
    slot: int, where their keys and values go: a scalar, or [B].
    mask: bool [B, S], slots that may be attended to, `slot` included.

  Returns:
    Logits [B, V] and the new cache.
  """
  model, block = Transformer(config), Block(config)
  angles = rope(config, positions[:, None])
  x: Any = model.apply(
    top,
    tokens[:, None],
    positions[:, None],
    method=Transformer.embed,
  )
  new_cache = []
  for layer, layer_cache in zip(layers, cache, strict=True):
    x, layer_cache = block.apply(
      layer,
      x,
      angles,
      layer_cache,
      slot,
      mask,
      method=Block.decode_step,
    )
    new_cache.append(layer_cache)
  return _logits(config, top, x[:, 0]), tuple(new_cache)


def _logits(config: TransformerConfig, top: Any, x: jax.Array) -> Any:
  hidden = norm(config).apply({'params': top['params']['final_norm']}, x)
  return Transformer(config).apply(top, hidden, method=Transformer.logits)
