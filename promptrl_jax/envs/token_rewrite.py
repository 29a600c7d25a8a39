"""Writing an instruction as an episode: a token is an action.

The decision process of PRewrite (arXiv 2401.08189): the state is
what has been decoded so far, an action is any token of the rewriter's
vocabulary, and the one reward comes at the end. Training samples whole batches
on the device instead; `token_rewards` gives its arrays what an episode here
would give, and a test keeps the two equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from promptrl_jax.models.tokenizer import Tokenizer
from promptrl_jax.prompts import meta as meta_lib
from promptrl_jax.strategies.prewrite import RewardFn
from promptrl_jax.tasks.instructions import InstructionTask

EMPTY = -1  # Where no token is yet.


class TokenRewrite(gymnasium.Env):
  """Rewrites one instruction after the other, a token per step.

  An observation is a dict: `task`, which instruction is to be rewritten, and
  `tokens`, int32 [N], those that were written, then `EMPTY`. An episode is
  terminated by a token that ends a text and truncated at N tokens; either way
  the reward is the mean over the examples of its task, and 0 before.
  """

  metadata = {'render_modes': []}  # noqa: RUF012 (Gymnasium's own form)

  def __init__(
    self,
    tasks: Sequence[InstructionTask],
    tokenizer: Tokenizer,
    reward_fn: RewardFn,
    max_tokens: int,
  ):
    if not tasks:
      raise ValueError('the environment needs at least one task')
    if max_tokens < 1:
      raise ValueError(f'max_tokens={max_tokens}: expected at least 1')
    self._tasks = list(tasks)
    self._tokenizer = tokenizer
    self._reward_fn = reward_fn
    self._max_tokens = max_tokens
    self._ends = {tokenizer.eos_id, *tokenizer.eos_ids}
    self._next = 0
    self._index = 0
    self._tokens: list[int] = []
    self._done = True
    size = tokenizer.vocab_size
    self.action_space = gymnasium.spaces.Discrete(size)
    self.observation_space = gymnasium.spaces.Dict(
      {
        'task': gymnasium.spaces.Discrete(len(self._tasks)),
        'tokens': gymnasium.spaces.Box(
          EMPTY, size - 1, (max_tokens,), np.int32
        ),
      }
    )

  def reset(
    self, *, seed: int | None = None, options: dict[str, Any] | None = None
  ) -> tuple[dict[str, Any], dict[str, Any]]:
    """Starts with the next task, or that of `options['index']`.

    A seed starts the walk through the tasks again.
    """
    super().reset(seed=seed)
    if seed is not None:
      self._next = 0
    if options and 'index' in options:
      self._next = options['index']
    self._index = self._next % len(self._tasks)
    self._next = self._index + 1
    self._tokens, self._done = [], False
    return self._observation(), {}

  def step(
    self, action: int
  ) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
    """Writes a token; `info` of the last step has the `instruction`."""
    if self._done:
      raise RuntimeError('the episode is over: call reset before step')
    if not self.action_space.contains(action):
      raise ValueError(
        f'token {action!r}: expected 0 to {self._tokenizer.vocab_size - 1}'
      )
    self._tokens.append(int(action))
    terminated = int(action) in self._ends
    truncated = not terminated and len(self._tokens) == self._max_tokens
    reward, info = 0.0, {}
    self._done = terminated or truncated
    if self._done:
      task = self._tasks[self._index]
      (text,) = self._tokenizer.decode_after([self._tokens])
      instruction = task.instruction.rewritten(meta_lib.read(text))
      (row,) = self._reward_fn([(task, instruction)])
      reward = float(np.mean(row))
      info = {'instruction': instruction.text}
    return self._observation(), reward, terminated, truncated, info

  def _observation(self) -> dict[str, Any]:
    tokens = np.full(self._max_tokens, EMPTY, np.int32)
    tokens[: len(self._tokens)] = self._tokens
    return {'task': self._index, 'tokens': tokens}


def token_rewards(mask: np.ndarray, rewards: np.ndarray) -> np.ndarray:
  """Rewards of each token: that of the row at its last token, else 0.

  Args:
    mask: bool [B, N], which tokens were written; those of a row come first.
    rewards: [B].

  Returns:
    float32 [B, N].

  Raises:
    ValueError: a row has no token, or one after a gap.
  """
  mask = np.asarray(mask, bool)
  lengths = mask.sum(axis=1)
  first = np.arange(mask.shape[1]) < lengths[:, None]
  if (lengths == 0).any() or (mask != first).any():
    raise ValueError('expected one or more tokens at the start of each row')
  found = np.zeros(mask.shape, np.float32)
  found[np.arange(len(mask)), lengths - 1] = rewards
  return found
