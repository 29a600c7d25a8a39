"""Algorithms by name: what each changes in the settings of a run.

config = make_config({'iterations': 40, 'packing': {...}}, 'grpo')
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from promptrl_jax.training.optim import OptimizerConfig
from promptrl_jax.training.rewriter.advantages import AdvantageConfig
from promptrl_jax.training.rewriter.config import RewriterConfig, UpdateConfig
from promptrl_jax.training.rewriter.packing import PackingConfig
from promptrl_jax.training.rewriter.reference import ReferenceConfig
from promptrl_jax.training.rewriter.rollout import RolloutConfig

_SECTIONS = {
  'packing': PackingConfig,
  'rollout': RolloutConfig,
  'advantage': AdvantageConfig,
  'update': UpdateConfig,
  'reference': ReferenceConfig,
  'optimizer': OptimizerConfig,
}
# What an algorithm changes in the settings of a run.
ALGORITHMS: dict[str, dict[str, Any]] = {
  'grpo': {},
  'dr_grpo': {
    'advantage': {'kind': 'dr_grpo'},
    'update': {'aggregation': 'constant', 'constant_length': 64},
  },
  'dapo': {
    'update': {'loss': 'dapo', 'minibatches': 2},
    'rollout': {'resample_rounds': 2},
    'reference': {'kind': 'none'},
  },
  'gspo': {
    'update': {
      'loss': 'gspo',
      'aggregation': 'sequence_mean',
      'minibatches': 2,
    },
  },
  'cispo': {'update': {'loss': 'cispo', 'minibatches': 2}},
  'mispo': {
    'update': {
      'loss': 'mispo',
      'aggregation': 'sequence_mean',
      'minibatches': 2,
    },
  },
  'mispo_pp': {
    'advantage': {'kind': 'reinforce_pp'},
    'update': {'loss': 'mispo', 'minibatches': 2},
    'rollout': {'drop_uniform': False},
  },
  'rloo': {'advantage': {'kind': 'rloo'}, 'update': {'loss': 'reinforce'}},
  'reinforce': {
    'advantage': {'kind': 'reinforce'},
    'update': {'loss': 'reinforce'},
    'rollout': {'drop_uniform': False},
  },
  'reinforce_pp': {
    'advantage': {'kind': 'reinforce_pp'},
    'update': {'minibatches': 2},
    'rollout': {'drop_uniform': False},
  },
  'pairs': {
    'advantage': {'kind': 'pairs'},
    'update': {
      'loss': 'reinforce',
      'aggregation': 'constant',  # whole completions, as they are
      'constant_length': 1,
    },
  },
  'ppo': {
    # A batch in which nearly all pass has a small deviation: divided by it, the
    # one that fails moves the policy further than it was moved until then.
    'advantage': {'kind': 'gae', 'normalize': False},
    'value_head': True,
    'update': {'minibatches': 2, 'epochs': 2},
    'rollout': {'drop_uniform': False},
  },
}


def make_config(
  settings: Mapping[str, Any],
  algorithm: str = 'grpo',
  switches: Sequence[tuple[int, str]] = (),
) -> RewriterConfig:
  """Returns the settings of a run, changed as its algorithm asks.

  Args:
    settings: fields of `RewriterConfig`; its parts (`packing`, `rollout`, ...)
      as dicts of their fields.
    algorithm: a key of `ALGORITHMS`.
    switches: updates from which on another algorithm takes over, with its name.

  Raises:
    ValueError: an algorithm is unknown, or a setting makes no sense, alone or
      beside another.
  """
  for name in (algorithm, *(name for _, name in switches)):
    if name not in ALGORITHMS:
      raise ValueError(
        f'algorithm {name!r}: expected one of {", ".join(ALGORITHMS)}'
      )
  fields = merge(settings, ALGORITHMS[algorithm])
  for name, section in _SECTIONS.items():
    if name in fields:
      fields[name] = section(**fields[name])
  return RewriterConfig(
    **fields,
    switches=tuple(
      (step, make_config(settings, name)) for step, name in switches
    ),
  )


def merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
  """Merges settings; later layers win, field by field within a part."""
  merged: dict[str, Any] = {}
  for layer in layers:
    for name, value in layer.items():
      is_part = isinstance(value, Mapping)
      merged[name] = {**merged.get(name, {}), **value} if is_part else value
  return merged
