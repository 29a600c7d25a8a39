"""The optimizer of every learner: clip of the norm, schedule, AdamW or Muon."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import optax

from promptrl_jax.settings import check_choices

DECAYS = ('constant', 'linear')
CLIPS = ('global', 'collection')
# Which axes of each stacked parameter make up its matrix, for Muon.
_MATRIX_AXES = {
  'qkv': (1, (2, 3, 4)),
  'out': (1, 2),
  'gate_up': (1, (2, 3)),
  'down': (1, 2),
  'cross_query': (1, (2, 3)),
  'cross_kv': (1, (2, 3, 4)),
  'cross_out': (1, 2),
}


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
  """AdamW or Muon after a clip of the gradient norm.

  Attributes:
    lr: peak learning rate of AdamW.
    warmup: optimizer steps in which the rate rises linearly to its peak.
    decay: after the warm-up: `constant`, or `linear` to 0 at the last step.
    weight_decay: decoupled weight decay.
    b2: decay of Adam's second moment.
    epsilon: Adam's epsilon.
    max_grad_norm: longer gradients are scaled down to this norm; None: no clip.
    clip: what shares a norm: all gradients (`global`), or those of each
      top-level collection (`collection`). The gradient of a new value head is
      far longer than that of the policy at first, and would leave next to
      nothing of it if they shared a norm.
    muon_lr: peak learning rate of Muon (Jordan et al., 2024) for the matrices
      of a language model; AdamW then changes the rest. None: AdamW alone.
  """

  lr: float = 1e-4
  warmup: int = 0
  decay: str = 'constant'
  weight_decay: float = 0.0
  b2: float = 0.999
  epsilon: float = 1e-8
  max_grad_norm: float | None = 1.0
  clip: str = 'collection'
  muon_lr: float | None = None

  def __post_init__(self):
    check_choices(self, decay=DECAYS, clip=CLIPS)


def schedule(
  peak: float,
  steps: int,
  *,
  warmup: int = 0,
  decay: str = 'constant',
  start: float | None = None,
) -> optax.Schedule:
  """Returns the learning rate by optimizer step: linear warm-up, then decay.

  `steps` are those of the run. The rate of step 0 is `start`, or
  `peak / (warmup + 1)`, so that the first step already changes something.
  """
  if start is None:
    start = peak / (warmup + 1)
  end = 0.0 if decay == 'linear' else peak
  return optax.join_schedules(
    [
      optax.linear_schedule(start, peak, max(1, warmup)),
      optax.linear_schedule(peak, end, max(1, steps - warmup)),
    ],
    [warmup],
  )


def make_optimizer(
  config: OptimizerConfig, steps: int
) -> optax.GradientTransformation:
  """Returns the optimizer of a run of so many optimizer steps."""
  shape = {'warmup': config.warmup, 'decay': config.decay}
  if config.muon_lr is None:
    optimizer = optax.adamw(
      schedule(config.lr, steps, **shape),
      b2=config.b2,
      eps=config.epsilon,
      weight_decay=config.weight_decay,
    )
  else:
    optimizer = optax.contrib.muon(
      learning_rate=schedule(config.muon_lr, steps, **shape, start=0.0),
      adam_learning_rate=schedule(config.lr, steps, **shape, start=0.0),
      adam_b2=config.b2,
      eps=config.epsilon,
      weight_decay=config.weight_decay,
      adam_weight_decay=config.weight_decay,
      muon_weight_dimension_numbers=_matrix_dimensions,
      consistent_rms=0.2,
    )
  if config.max_grad_norm is None:
    return optimizer
  clips = {
    'global': optax.clip_by_global_norm,
    'collection': clip_by_collection,
  }
  return optax.chain(clips[config.clip](config.max_grad_norm), optimizer)


def clip_by_collection(max_norm: float) -> optax.GradientTransformation:
  """Scales the gradient of each collection down to a norm of at most this."""

  def clip(updates: Any, params: Any) -> Any:
    del params
    norms = {name: optax.tree.norm(tree) for name, tree in updates.items()}
    scales = {
      name: max_norm / jnp.maximum(norm, max_norm)
      for name, norm in norms.items()
    }
    return {
      name: jax.tree.map(lambda x, name=name: x * scales[name], tree)
      for name, tree in updates.items()
    }

  return optax.stateless(clip)


def _matrix_dimensions(params: Any) -> Any:
  """Returns Muon's dimension numbers of each leaf; None where AdamW is used."""

  def numbers(path, leaf):
    del leaf
    axes = _MATRIX_AXES.get(path[-1].key)
    return None if axes is None else optax.contrib.MuonDimensionNumbers(*axes)

  return jax.tree_util.tree_map_with_path(numbers, params)
