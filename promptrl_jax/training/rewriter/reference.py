"""The KL reference policy and the KL coefficient.

The config says which model is the reference and how it moves, and with that
which arrays the train state holds for it: a frozen copy needs one of each
trained parameter, an adapter that is switched off needs none.
"""

from __future__ import annotations

import dataclasses

import jax

from promptrl_jax.rl import kl_control
from promptrl_jax.rl import reference as rl_reference
from promptrl_jax.settings import check_choices
from promptrl_jax.training.rewriter import policy
from promptrl_jax.training.rewriter.policy import Params

KINDS = ('none', 'frozen', 'copy', 'ema', 'adapter_off', 'model')
# Kinds without a copy of the trained parameters.
_WITHOUT_ARRAYS = ('none', 'adapter_off', 'model')
CONTROLS = ('fixed', 'adaptive', 'linear')


@dataclasses.dataclass(frozen=True)
class ReferenceConfig:
  """Which model is the reference, and the coefficient of the KL from it.

  Attributes:
    kind: `none`; `frozen`: the policy at the start; `copy`: the policy of up to
      `every` updates ago; `ema`: a moving average of policies; `adapter_off`:
      the model without its adapters; `model`: another model with the tokenizer
      of the policy.
    model: folder or name of the reference, for the kind `model`.
    every: updates between copies, for `copy`.
    decay: weight of the old average, for `ema`.
    kl_coef: KL coefficient at the start, in reward per nat.
    control: how the coefficient moves: `fixed`; `adaptive`, so that the KL per
      token stays near `target`; `linear`, to `end` in `steps` updates.
    target: KL that `adaptive` aims at, in nats per token.
    end: last coefficient of `linear`.
    steps: updates of `linear`.
  """

  kind: str = 'frozen'
  model: str = ''
  every: int = 10
  decay: float = 0.99
  kl_coef: float = 0.02
  control: str = 'fixed'
  target: float = 0.05
  end: float = 0.0
  steps: int = 100

  def __post_init__(self):
    check_choices(self, 'reference ', kind=KINDS, control=CONTROLS)
    # An algorithm may have turned another kind into `none`.
    if self.kind != 'none' and (self.kind == 'model') != bool(self.model):
      raise ValueError(
        f'reference kind={self.kind!r} with model={self.model!r}: the kind '
        '`model` needs one, the others have no use for one'
      )


def initial(config: ReferenceConfig, trained: Params) -> Params:
  """Returns the reference's arrays at step 0, copies of what is trained."""
  if config.kind in _WITHOUT_ARRAYS:
    return {}
  return jax.tree.map(lambda x: x.copy(), trained)


def parameters(
  config: ReferenceConfig, arrays: Params, fixed: Params
) -> Params | None:
  """Returns all parameter collections of the reference; None without one.

  `arrays` are those of the train state, see `initial`. `fixed` are the policy's
  parameters that are not trained; for the kind `model`, all of that model.
  """
  if config.kind == 'none':
    return None
  if config.kind == 'adapter_off':
    return policy.without_adapters(fixed)
  return {**fixed, **arrays}


def after_update(
  config: ReferenceConfig, arrays: Params, trained: Params, step: int
) -> Params:
  """Returns the reference's arrays after update number `step`, from 1."""
  if config.kind == 'copy':
    return rl_reference.copy_every(arrays, trained, step, config.every)
  if config.kind == 'ema':
    return rl_reference.ema(arrays, trained, config.decay)
  return arrays


def next_kl_control(
  config: ReferenceConfig, control: kl_control.KlControl, measured: jax.Array
) -> kl_control.KlControl:
  """Returns the KL coefficient after an update of `measured` nats per token."""
  if config.control == 'adaptive':
    return kl_control.adaptive(control, measured, target=config.target)
  if config.control == 'linear':
    return kl_control.linear(
      control,
      measured,
      start=config.kl_coef,
      end=config.end,
      steps=config.steps,
    )
  return kl_control.fixed(control, measured)
