"""The reference that keeps a policy from running away, and its price.

What it is and how it moves is a matter of config; which arrays it has, too: an
adapter that is switched off needs none.
"""

from __future__ import annotations

import dataclasses

import jax

from promptrl_jax.rl import kl_control
from promptrl_jax.rl import reference as rl_reference
from promptrl_jax.training.rewriter import policy as lm_policy
from promptrl_jax.training.rewriter.policy import Params

KINDS = ('none', 'frozen', 'copy', 'ema', 'adapter_off', 'model')
# Those that need no copy of what is trained.
_WITHOUT_ARRAYS = ('none', 'adapter_off', 'model')
CONTROLS = ('fixed', 'adaptive', 'linear')


@dataclasses.dataclass(frozen=True)
class ReferenceConfig:
  """Which reference, and what a nat of divergence from it costs.

  Attributes:
    kind: `none`; `frozen`: the policy at the start; `copy`: the policy of up to
      `every` updates ago; `ema`: a moving average of policies; `adapter_off`:
      the model without its adapters; `model`: another one, with the tokenizer
      of the policy.
    model: `model`: where it is, as for a rewriter.
    every: `copy`: updates between copies.
    decay: `ema`: weight of the old average.
    kl_coef: price at the start, in reward per nat.
    control: of the price: `fixed`; `adaptive`, so that the divergence per token
      stays near `target`; `linear`, to `end` in `steps` updates.
    target: nats per token.
    end: last price.
    steps: updates.
  """

  kind: str = 'frozen'
  model: str = ''
  every: int = 10
  decay: float = 0.99
  kl_coef: float = 0.05
  control: str = 'fixed'
  target: float = 0.05
  end: float = 0.0
  steps: int = 100

  def __post_init__(self):
    for field, known in (('kind', KINDS), ('control', CONTROLS)):
      if getattr(self, field) not in known:
        raise ValueError(
          f'reference {field}={getattr(self, field)!r}: expected one of '
          f'{", ".join(known)}'
        )
    # `none` may be what an algorithm makes of another kind.
    if self.kind != 'none' and (self.kind == 'model') != bool(self.model):
      raise ValueError(
        f'reference kind={self.kind!r} with model={self.model!r}: the kind '
        '`model` needs one, the others have no use for one'
      )


def initial(config: ReferenceConfig, trained: Params) -> Params:
  """The arrays of a reference, copies of what is trained; maybe none."""
  if config.kind in _WITHOUT_ARRAYS:
    return {}
  return jax.tree.map(lambda x: x.copy(), trained)


def parameters(
  config: ReferenceConfig, reference: Params, fixed: Params
) -> Params | None:
  """All collections of the reference; None if there is none.

  Args:
    config: which reference.
    reference: its arrays, see `initial`.
    fixed: of the policy, what is not trained; for the kind `model`, all of that
      model.

  Raises:
    ValueError: the adapter is to be switched off, and the model is trained.
  """
  if config.kind == 'none':
    return None
  if config.kind != 'adapter_off':
    return {**fixed, **reference}
  if 'params' not in fixed:
    raise ValueError(
      "reference 'adapter_off' needs train='lora': without adapters the "
      'model itself changes; choose frozen, copy or ema'
    )
  return lm_policy.without_adapters(fixed)


def follow(
  config: ReferenceConfig, reference: Params, trained: Params, step: int
) -> Params:
  """The reference after update number `step`, the first being 1."""
  if config.kind == 'copy':
    return rl_reference.copy_every(reference, trained, step, config.every)
  if config.kind == 'ema':
    return rl_reference.ema(reference, trained, config.decay)
  return reference


def steer(
  config: ReferenceConfig, control: kl_control.KlControl, measured: jax.Array
) -> kl_control.KlControl:
  """The price after an update that measured so many nats per token."""
  if config.control == 'adaptive':
    return kl_control.adaptive(control, measured, target=config.target)
  if config.control == 'linear':
    return kl_control.linear(
      control, measured,
      start=config.kl_coef, end=config.end, steps=config.steps,
    )  # fmt: skip
  return kl_control.fixed(control, measured)
