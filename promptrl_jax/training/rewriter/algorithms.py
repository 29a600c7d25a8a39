"""Algorithms by name: what each changes in the settings of a run.

config = make_config(TrainConfig(iterations=40), 'grpo')
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from promptrl_jax import settings
from promptrl_jax.training.rewriter.config import TrainConfig

_BY_SEQUENCE = {'aggregation': 'sequence_mean'}
# What an algorithm changes in the settings of a run.
ALGORITHMS: dict[str, dict[str, Any]] = {
  'grpo': {},
  'dr_grpo': {
    'advantage': {'kind': 'dr_grpo'},
    'loss': {'aggregation': 'constant', 'constant_length': 64},
  },
  'dapo': {
    'loss': {'kind': 'dapo', 'minibatches': 2},
    'rollout': {'resample_rounds': 2},
    'reference': {'kind': 'none'},
  },
  'gspo': {
    'loss': {'kind': 'gspo', 'minibatches': 2} | _BY_SEQUENCE,
  },
  'cispo': {'loss': {'kind': 'cispo', 'minibatches': 2}},
  'mispo': {
    'loss': {'kind': 'mispo', 'minibatches': 2} | _BY_SEQUENCE,
  },
  'mispo_pp': {
    'advantage': {'kind': 'reinforce_pp'},
    'loss': {'kind': 'mispo', 'minibatches': 2},
    'rollout': {'drop_uniform': False},
  },
  'rloo': {'advantage': {'kind': 'rloo'}, 'loss': {'kind': 'reinforce'}},
  'reinforce': {
    'advantage': {'kind': 'reinforce'},
    'loss': {'kind': 'reinforce'},
    'rollout': {'drop_uniform': False},
  },
  'reinforce_pp': {
    'advantage': {'kind': 'reinforce_pp'},
    'loss': {'minibatches': 2},
    'rollout': {'drop_uniform': False},
  },
  'pairs': {
    'advantage': {'kind': 'pairs'},
    'loss': {
      'kind': 'reinforce',
      'aggregation': 'constant',  # whole completions, as they are
      'constant_length': 1,
    },
  },
  'ppo': {
    # A batch in which nearly all pass has a small deviation: divided by it, the
    # one that fails moves the policy further than it was moved until then.
    'advantage': {'kind': 'gae', 'normalize': False},
    'loss': {'minibatches': 2, 'epochs': 2},
    'rollout': {'drop_uniform': False},
  },
}


def make_config(
  config: TrainConfig = TrainConfig(),
  algorithm: str = 'grpo',
  switches: Sequence[tuple[int, str]] = (),
) -> TrainConfig:
  """Returns the settings of a run, changed as its algorithm asks.

  Args:
    config: settings of the run.
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
  changed = dataclasses.replace(
    settings.override(config, ALGORITHMS[algorithm]),
    switches=tuple(
      (step, settings.override(config, ALGORITHMS[name]))
      for step, name in switches
    ),
  )
  changed.check()
  return changed
