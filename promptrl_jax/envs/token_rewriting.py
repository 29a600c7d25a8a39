"""Rewriting token by token: the vocabulary is the set of actions.

The long form of `rewriting`: an episode is as long as the rewrite, and only its
last token is rewarded. Language-model training samples whole rewrites at once
and spreads this reward itself; this environment is for anything that speaks
Gymnasium, and for checking that the two agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from promptrl_jax.envs.rewriting import RewritingEnv
from promptrl_jax.models.tokenizer import Tokenizer
from promptrl_jax.types import Task


class TokenRewriting(gymnasium.Env):
  """One task at a time; each reset goes on to the next task.

  An observation is the prompt and the rewrite so far, `tokens` int32 [P + N]
  with padding behind, and how many there are, `length` int32 [1]. An end token
  terminates the episode, the limit truncates it. The last `info` has the text
  of the rewrite, its flag, and why the system gave no reward, if it gave none:
  then the reward is NaN.
  """

  metadata = {'render_modes': []}  # noqa: RUF012 (Gymnasium's own form)

  def __init__(
    self,
    tasks: Sequence[Task],
    env: RewritingEnv,
    tokenizer: Tokenizer,
    prompt_length: int = 160,
    new_tokens: int = 64,
  ):
    """Puts the parts together.

    Args:
      tasks: of the training split.
      env: rewards whole rewrites.
      tokenizer: of the rewriter.
      prompt_length: P, most tokens of a prompt.
      new_tokens: N, most tokens of a rewrite.

    Raises:
      ValueError: no task, or a length below 1.
      PromptTooLongError: a prompt does not fit even without its statement.
    """
    if not tasks or min(prompt_length, new_tokens) < 1:
      raise ValueError(
        f'{len(tasks)} tasks, prompt_length={prompt_length}, '
        f'new_tokens={new_tokens}: expected at least one of each'
      )
    prompts = env.prompts(
      tasks, lambda messages: len(tokenizer.render(messages)) <= prompt_length
    )
    self._tasks = list(tasks)
    self._prompts = [tokenizer.render(messages) for messages in prompts]
    self._env = env
    self._tokenizer = tokenizer
    self._ends = tokenizer.eos_ids or (tokenizer.eos_id,)
    self._limit = new_tokens
    self._size = prompt_length + new_tokens
    self._next = self._index = self._seed = 0
    self._rewrite: list[int] = []
    self._over = True
    size = tokenizer.vocab_size
    self.action_space = gymnasium.spaces.Discrete(size)
    self.observation_space = gymnasium.spaces.Dict(
      {
        'tokens': gymnasium.spaces.Box(0, size - 1, (self._size,), np.int32),
        'length': gymnasium.spaces.Box(0, self._size, (1,), np.int32),
      }
    )

  def reset(
    self, *, seed: int | None = None, options: dict[str, Any] | None = None
  ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Starts the next task, or that of `options['index']`.

    A seed starts the walk through the tasks again, and is that of the coder.
    """
    super().reset(seed=seed)
    if seed is not None:
      self._seed, self._next = seed, 0
    if options and 'index' in options:
      self._next = options['index']
    self._index = self._next % len(self._tasks)
    self._next = self._index + 1
    self._rewrite, self._over = [], False
    return self._observe(), {'task_id': self._tasks[self._index].task_id}

  def step(
    self, action: int
  ) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
    """Writes one token."""
    if self._over:
      raise RuntimeError('the episode is over: call reset before step')
    self._rewrite.append(int(action))
    ended = self._rewrite[-1] in self._ends
    cut = not ended and len(self._rewrite) == self._limit
    self._over = ended or cut
    task = self._tasks[self._index]
    reward, info = 0.0, {'task_id': task.task_id}
    if self._over:
      (text,) = self._tokenizer.decode_after([self._rewrite])
      result = self._env.rewards([task], [text], self._seed, [ended])
      reward = float(result.rewards[0])
      info |= {
        'rewrite': text,
        'flag': result.flags[0],
        'dropped': result.dropped[0],
      }
    return self._observe(), reward, ended, cut, info

  def _observe(self) -> dict[str, np.ndarray]:
    row = [*self._prompts[self._index], *self._rewrite]
    tokens = np.full(self._size, self._tokenizer.pad_id, np.int32)
    tokens[: len(row)] = row
    return {'tokens': tokens, 'length': np.array([len(row)], np.int32)}
