"""The table of rewards by name; code outside of the package adds to it too."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from promptrl_jax.registry import Registry
from promptrl_jax.rewards import functions
from promptrl_jax.rewards import text as text_lib
from promptrl_jax.rewards.checking import Outcome
from promptrl_jax.types import Task

# (task, rewrite, outcome of the reply that it led to) -> reward
RewardFn = Callable[[Task, str, Outcome], float]
PARAMETERS = ('task', 'text', 'outcome')


@dataclasses.dataclass(frozen=True)
class Reward:
  """A reward and what it needs of the frozen model.

  Attributes:
    fn: `(task, text, outcome, *, option=default, ...) -> float`.
    uses_reply: whether the model's reply is needed.
    uses_label_logps: whether log-probs of the right answers are needed, which
      only a model in this process gives.
    metric: which of `rewards.text.METRICS` it computes, if any.
    uses_programs: whether right answers are reference programs.
  """

  fn: Callable[..., float]
  uses_reply: bool = True
  uses_label_logps: bool = False
  metric: str = ''
  uses_programs: bool = False

  @property
  def options(self) -> tuple[str, ...]:
    """Names of the keyword-only arguments."""
    parameters = inspect.signature(self.fn).parameters.values()
    return tuple(p.name for p in parameters if p.kind == p.KEYWORD_ONLY)


def _check(name: str, reward: Reward) -> None:
  """Raises ValueError for another signature."""
  signature = inspect.signature(reward.fn)
  parameters = list(signature.parameters.values())
  first, options = parameters[: len(PARAMETERS)], parameters[len(PARAMETERS) :]
  named = [p.name for p in first] == list(PARAMETERS) and all(
    p.kind == p.POSITIONAL_OR_KEYWORD for p in first
  )
  if not named or not all(
    p.kind == p.KEYWORD_ONLY and p.default is not p.empty for p in options
  ):
    raise ValueError(
      f'reward {name!r} has the signature {signature}: expected '
      '(task, text, outcome), and options only behind a * and with defaults'
    )


REWARDS: Registry[Reward] = Registry('reward', _check)


def register(
  name: str,
  fn: Callable[..., float],
  *,
  uses_reply: bool = True,
  uses_label_logps: bool = False,
  metric: str = '',
  uses_programs: bool = False,
) -> None:
  """Adds a reward to the table; see `Reward` for the arguments.

  Raises:
    ValueError: the name is taken, or the function has another signature.
  """
  REWARDS.register(
    name, Reward(fn, uses_reply, uses_label_logps, metric, uses_programs)
  )


def make_reward_fn(
  name: str, options: Mapping[str, Any] | None = None
) -> RewardFn:
  """Returns a reward with its options set.

  Raises:
    ValueError: the reward is not known, or does not take an option.
  """
  reward, options = REWARDS[name], dict(options or {})
  for option in options.keys() - set(reward.options):
    raise ValueError(
      f'reward {name!r} has no option {option!r}; expected '
      f'{", ".join(reward.options) or "none"}'
    )
  return functools.partial(reward.fn, **options) if options else reward.fn


def check_task(name: str, task: Task) -> None:
  """Raises ValueError if a reward does not suit a task, before any call."""
  reward = REWARDS[name]
  if reward.metric:
    checker = functions.words_checker(task)
    text_lib.check_metric(reward.metric, checker.labels)
  elif reward.uses_label_logps and not reward.uses_programs:
    functions.words_checker(task)


register('solved', functions.solved)
register('score', functions.score)
for _name in text_lib.METRICS:
  _fn = functools.partial(functions.mean_metric, _name)
  register(_name, _fn, metric=_name)
register(
  'perplexity', functions.perplexity, uses_reply=False, uses_label_logps=True
)
register(
  'perplexity_f1', functions.perplexity_f1, uses_label_logps=True, metric='f1'
)
register(
  'likelihood', functions.likelihood, uses_label_logps=True, uses_programs=True
)
