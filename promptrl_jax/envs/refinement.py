"""Prompt refinement as an environment, whatever refines and rewards.

  prompts, actions ──refine_fn──> prompts ──reward_fn(before, after)──> rewards

`RefinementEnv` steps N prompts together and hands all open ones to its
functions at once, so that a model is asked in one batch. `PromptRefinement` is
one of them behind Gymnasium's interface, with functions of one prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from promptrl_jax.prompts.prompt import Prompt
from promptrl_jax.prompts.refinement import check_refined

Info = dict[str, Any]
RefineBatchFn = Callable[[Sequence[Prompt], Sequence[Any]], Sequence[Prompt]]
RewardBatchFn = Callable[
  [Sequence[Prompt], Sequence[Prompt], Sequence[Info]], Sequence[float]
]
RefineFn = Callable[[Prompt, Any], Prompt]
RewardFn = Callable[[Prompt, Prompt, Info], float]
StopFn = Callable[[Prompt, Prompt], bool]


def each(function: Callable[..., Any]) -> Callable[..., list[Any]]:
  """Makes a function of one row a function of several rows."""
  return lambda *rows: [function(*row) for row in zip(*rows, strict=True)]


class RefinementEnv:
  """N prompts that are refined together.

  Attributes:
    prompts: the current prompt of each row; empty before the first `reset`.
    steps: int [N], how often each was refined.
    infos: what each row's last step was rewarded with, in row order.
    terminated, truncated: bool [N]: the rule has stopped the row, or the limit.
      Such a row stays and is not stepped.
  """

  def __init__(
    self,
    refine_fn: RefineBatchFn,
    reward_fn: RewardBatchFn,
    max_steps: int = 10,
    stop_fn: StopFn | None = None,
  ):
    """Puts the parts together.

    Args:
      refine_fn: (prompts, actions) of the open rows -> their next prompts.
      reward_fn: (prompts before, prompts after, infos) -> rewards; an info has
        what `step` was given and `step`, the number of the row's step.
      max_steps: refinements after which a row is truncated.
      stop_fn: given a prompt and the next one, whether the row has ended.
    """
    if max_steps < 1:
      raise ValueError(f'max_steps={max_steps}: expected 1 or more')
    self._refine_fn, self._reward_fn = refine_fn, reward_fn
    self._max_steps, self._stop_fn = max_steps, stop_fn
    self.prompts: tuple[Prompt, ...] = ()
    self.infos: list[Info] = []
    self.steps = np.zeros(0, np.int32)
    self.terminated = self.truncated = np.zeros(0, bool)

  @property
  def done(self) -> np.ndarray:
    """bool [N]"""
    return self.terminated | self.truncated

  def reset(self, prompts: Sequence[Prompt]) -> tuple[Prompt, ...]:
    """Starts one row for each prompt; returns them."""
    self.prompts = tuple(prompts)
    self.infos = [{} for _ in prompts]
    self.steps = np.zeros(len(prompts), np.int32)
    self.terminated = np.zeros(len(prompts), bool)
    self.truncated = np.zeros(len(prompts), bool)
    return self.prompts

  def step(
    self,
    actions: Sequence[Any],
    infos: Sequence[Mapping[str, Any] | None] | None = None,
  ) -> tuple[tuple[Prompt, ...], np.ndarray]:
    """Refines all open rows; the actions of the others are not looked at.

    Args:
      actions: one for each row.
      infos: what the reward of each row is to know, a person's score, say.

    Returns:
      The N prompts and rewards float32 [N], 0 for rows that were not open.

    Raises:
      RuntimeError: there was no reset.
      ValueError: there is not an action, prompt or finite reward for each row.
      TypeError: `refine_fn` returned something that is no prompt.
    """
    if not self.prompts:
      raise RuntimeError('no prompts to refine: call reset before step')
    count = len(self.prompts)
    infos = infos or [None] * count
    _check_count('actions', actions, count)
    _check_count('infos', infos, count)
    rows = np.flatnonzero(~self.done).tolist()
    rewards = np.zeros(count, np.float32)
    if not rows:
      return self.prompts, rewards
    before = [self.prompts[i] for i in rows]
    after = self._refine_fn(before, [actions[i] for i in rows])
    _check_count('prompts of refine_fn', after, len(rows))
    after = [check_refined(prompt) for prompt in after]
    told = [{**(infos[i] or {}), 'step': int(self.steps[i]) + 1} for i in rows]
    paid = self._reward_fn(before, after, told)
    _check_count('rewards of reward_fn', paid, len(rows))
    rewards[rows] = paid
    for i in np.flatnonzero(~np.isfinite(rewards)).tolist():
      raise ValueError(
        f'reward_fn returned {rewards[i]} for {self.prompts[i].text[:60]!r}: '
        'expected a finite number'
      )
    # Nothing has changed up to here, so that a step that failed can be retried.
    prompts = list(self.prompts)
    for i, old, new, info in zip(rows, before, after, told, strict=True):
      prompts[i], self.infos[i] = new, info
      if self._stop_fn is not None:
        self.terminated[i] = self._stop_fn(old, new)
    self.prompts = tuple(prompts)
    self.steps[rows] += 1
    self.truncated = (self.steps >= self._max_steps) & ~self.terminated
    return self.prompts, rewards


def _check_count(name: str, values: Sequence[Any], count: int) -> None:
  if len(values) != count:
    raise ValueError(f'{len(values)} {name}: expected {count}, one for each')


class TextSpace(gymnasium.Space[str]):
  """All strings of at most `max_length` characters.

  Gymnasium's own space of texts is over a small set of characters, and a model
  may write any.
  """

  def __init__(self, max_length: int, seed: int | None = None):
    if max_length < 1:
      raise ValueError(f'max_length={max_length}: expected 1 or more')
    super().__init__((), None, seed)
    self.max_length = max_length

  @property
  def is_np_flattenable(self) -> bool:
    return False

  def contains(self, x: Any) -> bool:
    return isinstance(x, str) and len(x) <= self.max_length

  def sample(self, mask: Any = None, probability: Any = None) -> str:
    """Returns up to 16 letters."""
    del mask, probability
    length = self.np_random.integers(1, min(16, self.max_length) + 1)
    letters = self.np_random.integers(ord('a'), ord('z') + 1, length)
    return ''.join(map(chr, letters))

  def __eq__(self, other: object) -> bool:
    return isinstance(other, TextSpace) and self.max_length == other.max_length

  def __repr__(self) -> str:
    return f'TextSpace({self.max_length})'


class PromptRefinement(gymnasium.Env):
  """One prompt at a time, behind Gymnasium's interface.

  An observation is the text of the prompt unless there is an `observe_fn`;
  `info` has the `prompt` itself and the number of its `step`. `terminated`
  says that the rule has stopped the episode, `truncated` that it has as many
  steps as it may have.
  """

  metadata = {'render_modes': []}  # noqa: RUF012 (Gymnasium's own form)

  def __init__(
    self,
    initial_prompt: Prompt,
    refine_fn: RefineFn,
    reward_fn: RewardFn,
    max_steps: int = 10,
    *,
    stop_fn: StopFn | None = None,
    action_space: gymnasium.Space | None = None,
    observe_fn: Callable[[Prompt], Any] | None = None,
    observation_space: gymnasium.Space | None = None,
    max_length: int = 100_000,
  ):
    """Puts the parts together; see `RefinementEnv` for what is not said here.

    Args:
      initial_prompt: where episodes start unless `reset` is told another one.
      refine_fn: (prompt, action) -> the next prompt.
      reward_fn: (prompt before, prompt after, info) -> reward.
      max_steps, stop_fn: when an episode ends.
      action_space: what actions are; any text by default.
      observe_fn: prompt -> observation, which is in the `observation_space`.
      observation_space: goes with `observe_fn`, and only with it.
      max_length: most characters of a prompt or action that is a text.
    """
    if (observe_fn is None) != (observation_space is None):
      raise ValueError(
        'observe_fn and observation_space: expected both or none of them'
      )
    self._initial = initial_prompt
    self._env = RefinementEnv(
      each(refine_fn), each(reward_fn), max_steps, stop_fn
    )
    self._observe_fn = observe_fn or str
    self.action_space = action_space or TextSpace(max_length)
    self.observation_space = observation_space or TextSpace(max_length)

  @property
  def current_prompt(self) -> Prompt | None:
    """None before the first reset."""
    return self._env.prompts[0] if self._env.prompts else None

  @property
  def step_count(self) -> int:
    """Refinements since the last reset."""
    return int(self._env.steps[0]) if self._env.prompts else 0

  def reset(
    self, *, seed: int | None = None, options: dict[str, Any] | None = None
  ) -> tuple[Any, Info]:
    """Starts from the initial prompt, or from `options['prompt']`."""
    super().reset(seed=seed)
    prompt = (options or {}).get('prompt', self._initial)
    self._env.reset([prompt])
    return self._observe_fn(prompt), {'prompt': prompt, 'step': 0}

  def step(
    self, action: Any, info: Mapping[str, Any] | None = None
  ) -> tuple[Any, float, bool, bool, Info]:
    """Refines the prompt; the reward is told what `info` says.

    Raises:
      RuntimeError: there was no reset, or the episode is over.
    """
    if not self._env.prompts or self._env.done[0]:
      raise RuntimeError(
        'there is no episode, or it is over: call reset before step'
      )
    (prompt,), rewards = self._env.step([action], [info])
    return (
      self._observe_fn(prompt),
      float(rewards[0]),
      bool(self._env.terminated[0]),
      bool(self._env.truncated[0]),
      self._env.infos[0] | {'prompt': prompt},
    )
