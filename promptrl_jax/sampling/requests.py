"""The requests that an engine takes and the samples that it returns."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence

import jax
import numpy as np

from promptrl_jax.sampling import methods

# Lengths that prompts are padded to unless an engine is told otherwise.
PROMPT_LENGTHS: tuple[int, ...] = (64, 96, 160, 256, 400)


@dataclasses.dataclass(frozen=True)
class EngineConfig:
  """Shapes of an engine.

  Attributes:
    slots: batch slots that decode together, rounded up to a multiple of the
      groups of devices (see `engine.make_engine`). On two cores 16 slots decode
      256 requests as fast as 32 do, and the last few of a rollout 1.4 to 2
      times as fast.
    prompt_lengths: tokens that prompts are padded to, ascending; the last one
      is the limit.
    steps: most decode steps between two calls of `SamplingParams.watch`;
      without a watch, decoding runs until enough slots are free.
    prefill_rows: prompts that a group prefills at once; it waits until as many
      slots are free. At most three eighths of its slots are used. 0: four on a
      CPU; an eighth of the slots, and no less than four, on an accelerator,
      where a prefill of few rows takes as long as one of many.
    prompt_cache_bytes: memory for prompts that may be asked again of the same
      parameters, see `PromptCache`.
    ends: lengths of the end of a prompt that is read alone where the tokens
      before it are known from another prompt, ascending; empty: never. Only on
      CPU, where it changes no bit.
    certainty: measure how sure the model is of each token, see `Sample`.
  """

  slots: int = 16
  prompt_lengths: tuple[int, ...] = PROMPT_LENGTHS
  new_tokens: int = 80
  steps: int = 8
  prefill_rows: int = 0
  prompt_cache_bytes: int = 0
  ends: tuple[int, ...] = (64, 96, 192)
  certainty: bool = False

  def __post_init__(self):
    for field in ('slots', 'new_tokens', 'steps'):
      if getattr(self, field) < 1:
        raise ValueError(f'{field}={getattr(self, field)}: expected 1 or more')
    if self.prefill_rows < 0:
      raise ValueError(f'prefill_rows={self.prefill_rows}: expected 0 or more')
    if not self.prompt_lengths:
      raise ValueError('prompt_lengths=(): expected one length or more')
    for field in ('prompt_lengths', 'ends'):
      lengths = getattr(self, field)
      if any(a >= b for a, b in itertools.pairwise((0, *lengths))):
        raise ValueError(
          f'{field}={lengths}: expected ascending lengths from 1 on'
        )

  @property
  def prompt_limit(self) -> int:
    return self.prompt_lengths[-1]

  def padded(self, size: int) -> int:
    return next(length for length in self.prompt_lengths if length >= size)

  def ends_of(self, padded: int) -> list[int]:
    """Those that spare half of a prompt, or more: shorter ones are read."""
    return [end for end in self.ends if 2 * end <= padded]

  def slots_per_group(self, groups: int) -> int:
    return -(-self.slots // groups)

  def prefill_rows_per_group(self, groups: int) -> int:
    """Prompts that each of `groups` groups prefills at once."""
    # Slots that wait for others to be free generate nothing: of 8 slots, 3 at
    # once gave 1.7 times the throughput of padding, 4 and 2 gave 1.5 and 1.6.
    slots = self.slots_per_group(groups)
    most = math.ceil(3 / 8 * slots)
    wanted = self.prefill_rows
    if not wanted:
      wanted = 4 if jax.default_backend() == 'cpu' else max(4, slots // 8)
    return min(wanted, most)


def prompt_lengths_up_to(limit: int) -> tuple[int, ...]:
  """Lengths that prompts of up to `limit` tokens are padded to.

  Few where prompts are short, as those of the embedded models are, whose
  prefills cost less than more programs to compile. Others grow by a quarter,
  which leaves a tenth of padding. On an accelerator they double from 128 on: it
  reads a thousand prompts while one program more is compiled.
  """
  if jax.default_backend() != 'cpu':
    doubled = [128 * 2**n for n in range(limit.bit_length())]
    return (*[length for length in doubled if length < limit], limit)
  lengths = list(PROMPT_LENGTHS)
  if limit > lengths[-1]:
    lengths = [lengths[0]]
    while lengths[-1] < limit:
      lengths.append(16 * math.ceil(lengths[-1] / 12.8))
  return (*[length for length in lengths if length < limit], limit)


@dataclasses.dataclass(frozen=True)
class SamplingParams:
  """Settings of one completion of a prompt.

  Attributes:
    seed: taken modulo 2**32; token t is drawn from fold_in(key(seed), t).
    watch: called with the next tokens, int32 [T], as they are generated, the
      stop token included. It ends the completion by returning how many of them
      to keep, and returns None otherwise.
  """

  max_tokens: int
  temperature: float = 1.0
  top_p: float = 1.0
  seed: int = 0
  watch: Callable[[np.ndarray], int | None] | None = None


@dataclasses.dataclass(frozen=True)
class EngineRequest:
  """A prompt of token ids, and the settings of each of its completions.

  It is prefilled once for all that a group of devices generates.
  """

  prompt: Sequence[int]
  samples: Sequence[SamplingParams]


@dataclasses.dataclass(frozen=True)
class Sample:
  """A completion.

  Attributes:
    tokens: int32 [T], the stop token included.
    logps: float32 [T], log-probs of `tokens` under the sampled distribution.
    stopped: whether it ended with a stop token or by its `watch`, not by its
      limit.
    certainty: float32 [2, T], log-probs of `tokens` at temperature 1 without
      filters, and entropies in nats of the distributions there; None unless
      `EngineConfig.certainty`.
  """

  tokens: np.ndarray
  logps: np.ndarray
  stopped: bool
  certainty: np.ndarray | None = None


def check(
  requests: Sequence[EngineRequest], vocab_size: int, config: EngineConfig
) -> None:
  """Raises ValueError if a request does not fit, and says which and why."""
  for i, request in enumerate(requests):
    try:
      _check(request, vocab_size, config)
    except ValueError as error:
      raise ValueError(f'request {i}: {error}') from None


def _check(
  request: EngineRequest, vocab_size: int, config: EngineConfig
) -> None:
  size, longest = len(request.prompt), config.prompt_limit
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
  if not request.samples:
    raise ValueError('samples is empty, expected 1 or more')
  for params in request.samples:
    if not 0 <= params.max_tokens <= config.new_tokens:
      raise ValueError(
        f'max_tokens={params.max_tokens}, expected 0 to new_tokens='
        f'{config.new_tokens}'
      )
    methods.check_row(params.temperature, params.top_p)
