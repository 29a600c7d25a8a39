"""What an engine is asked for, and what it gives."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence

import numpy as np

from promptrl_jax.sampling import methods


@dataclasses.dataclass(frozen=True)
class EngineConfig:
  """Shapes of an engine.

  Attributes:
    slots: rows that decode together, rounded up to a multiple of the groups of
      devices (see `engine.make_engine`).
    prompt_lengths: tokens that prompts are padded to, ascending; the last one
      is the limit.
    new_tokens: most tokens of any completion.
    steps: most tokens per row between two looks of the host at texts that are
      watched; others are looked at when enough slots are free.
    prefill_rows: prompts that a group reads at once; it waits until so many
      slots are free. No more than three eighths of its slots count.
  """

  slots: int = 16
  prompt_lengths: tuple[int, ...] = (64, 96, 160, 256, 400)
  new_tokens: int = 80
  steps: int = 8
  prefill_rows: int = 4

  def __post_init__(self):
    for field in ('slots', 'new_tokens', 'steps', 'prefill_rows'):
      if getattr(self, field) < 1:
        raise ValueError(f'{field}={getattr(self, field)}: expected 1 or more')
    lengths = self.prompt_lengths
    if (
      not lengths
      or lengths[0] < 1
      or any(a >= b for a, b in itertools.pairwise(lengths))
    ):
      raise ValueError(
        f'prompt_lengths={lengths}: expected ascending lengths from 1 on'
      )

  def padded(self, size: int) -> int:
    """The length that a prompt of `size` tokens is padded to."""
    return next(length for length in self.prompt_lengths if length >= size)


@dataclasses.dataclass(frozen=True)
class Draw:
  """One completion of a prompt.

  Attributes:
    limit: most new tokens.
    temperature: 0 for greedy.
    top_p: nucleus mass in (0, 1].
    seed: modulo 2**32; token t draws from fold_in(key(seed), t), as in
      `decode.generate`.
    watch: is told the next tokens, int32 [T], as they are drawn, the stop token
      included; ends the completion by returning how many of them to keep, else
      returns None.
  """

  limit: int
  temperature: float = 1.0
  top_p: float = 1.0
  seed: int = 0
  watch: Callable[[np.ndarray], int | None] | None = None


@dataclasses.dataclass(frozen=True)
class Request:
  """A prompt to complete.

  Attributes:
    prompt: its token ids, at least one.
    draws: the completions, at least one; the prompt is read once for all that
      a group of devices draws.
  """

  prompt: Sequence[int]
  draws: Sequence[Draw]


@dataclasses.dataclass(frozen=True)
class Sample:
  """A completion.

  Attributes:
    tokens: int32 [T], the stop token included.
    logps: float32 [T], log-probs of `tokens` under the sampled distribution.
    stopped: whether it ended with a stop token or by its `watch`, not by its
      limit.
  """

  tokens: np.ndarray
  logps: np.ndarray
  stopped: bool


def check(
  requests: Sequence[Request], vocab_size: int, settings: EngineConfig
) -> None:
  """Raises ValueError if a request does not fit, and says which and why."""
  for i, request in enumerate(requests):
    try:
      _check(request, vocab_size, settings)
    except ValueError as error:
      raise ValueError(f'request {i}: {error}') from None


def _check(request: Request, vocab_size: int, settings: EngineConfig) -> None:
  size, longest = len(request.prompt), settings.prompt_lengths[-1]
  if not 1 <= size <= longest:
    raise ValueError(
      f'a prompt of {size} tokens, expected 1 to {longest}, the last of '
      'prompt_lengths'
    )
  low, high = min(request.prompt), max(request.prompt)
  if low < 0 or high >= vocab_size:
    raise ValueError(
      f'token {low if low < 0 else high}, expected 0 to {vocab_size - 1}'
    )
  if not request.draws:
    raise ValueError('draws is empty, expected 1 or more')
  for draw in request.draws:
    if not 0 <= draw.limit <= settings.new_tokens:
      raise ValueError(
        f'limit={draw.limit}, expected 0 to new_tokens={settings.new_tokens}'
      )
    methods.check_row(draw.temperature, draw.top_p)
