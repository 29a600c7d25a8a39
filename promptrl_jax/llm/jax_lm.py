"""A causal language model in this process, behind the `Backend` protocol.

Requests are sorted by length, cut into batches and padded to a few shapes, so
that a bounded number of programs is ever compiled. A row's completion depends
on its own prompt, seed and temperature, not on the rows beside it.
"""

from __future__ import annotations

import dataclasses
import pathlib
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from promptrl_jax.llm.backend import Completion, Request
from promptrl_jax.models import pretrained
from promptrl_jax.models.config import TransformerConfig
from promptrl_jax.models.encoder_decoder_config import EncoderDecoderConfig
from promptrl_jax.models.tokenizer import Tokenizer
from promptrl_jax.sampling import decode, encoder_decoder
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.sampling.prepare import prepare


@dataclasses.dataclass(frozen=True)
class JaxLMConfig:
  """Shapes that requests are padded to.

  Attributes:
    batch_sizes: rows of a batch, ascending; rounded up to a multiple of the
      device count. On two cores 16 rows decode 256 requests as fast as 32 do
      and the last few of a rollout 1.4 to 2 times as fast.
    prompt_lengths: tokens of a prompt, ascending; the last one is the limit.
    new_tokens: most tokens of any completion.
  """

  batch_sizes: tuple[int, ...] = (16,)
  prompt_lengths: tuple[int, ...] = (64, 96, 160, 256, 400)
  new_tokens: int = 80


class JaxLM:
  """Completes text with a causal or an encoder-decoder model.

  Attributes:
    name: what a report calls the model.
    generated_tokens, seconds: totals of all calls, for throughput.
  """

  def __init__(
    self,
    name: str,
    model_config: TransformerConfig | EncoderDecoderConfig,
    params: Any,
    tokenizer: Tokenizer,
    mesh: Mesh,
    config: JaxLMConfig = JaxLMConfig(),
  ):
    longest = config.prompt_lengths[-1] + config.new_tokens
    limit = getattr(model_config, 'max_positions', longest)
    if longest > limit:
      raise ValueError(
        f'{name}: prompts of {config.prompt_lengths[-1]} and '
        f'{config.new_tokens} new tokens exceed the context of {limit}'
      )
    # A chat model ends its turn with more tokens than its config may name.
    ends = (*model_config.eos_token_ids, *tokenizer.eos_ids)
    model_config = dataclasses.replace(
      model_config,
      eos_token_ids=tuple(dict.fromkeys(ends)),
      pad_token_id=tokenizer.pad_id,
    )
    self.name = name
    self.generated_tokens = 0
    self.seconds = 0.0
    self._config = config
    self._tokenizer = tokenizer
    make: Any = decode.make_generate_fn
    if isinstance(model_config, EncoderDecoderConfig):
      make = encoder_decoder.make_generate_fn
      self._params = jax.device_put(params, NamedSharding(mesh, P()))
      self._end = tokenizer.end  # Its encoder was trained on texts with one.
    else:
      self._params, self._end = prepare(params, mesh), ()
    self._rows = NamedSharding(mesh, P('data'))
    self._devices = mesh.size
    self._generate_fn = make(model_config, Sampling(), config.new_tokens, mesh)

  @classmethod
  def from_folder(
    cls,
    folder: str | pathlib.Path,
    mesh: Mesh,
    dtype: str = 'float32',
    config: JaxLMConfig = JaxLMConfig(),
  ) -> JaxLM:
    """Reads a model folder in Hugging Face's layout; `dtype` of parameters."""
    model_config, params, tokenizer = pretrained.load_pretrained(
      folder, dtype=dtype
    )
    name = f'{pathlib.Path(folder).name}@{pretrained.digest(folder)}'
    return cls(name, model_config, params, tokenizer, mesh, config)

  def complete(self, requests: Sequence[Request]) -> list[Completion]:
    """Answers a batch, in the order of the requests."""
    start = time.perf_counter()
    rows = [self._prompt_ids(_messages(r)) for r in requests]
    for row, request in zip(rows, requests, strict=True):
      self._check(row, request)
    completions: list[Completion | None] = [None] * len(requests)
    order = sorted(range(len(requests)), key=lambda i: len(rows[i]))
    largest = self._batch_sizes()[-1]
    for start_ in range(0, len(order), largest):
      same = order[start_ : start_ + largest]
      batch = self._run([rows[i] for i in same], [requests[i] for i in same])
      for i, completion in zip(same, batch, strict=True):
        completions[i] = completion
    self.seconds += time.perf_counter() - start
    return [c for c in completions if c is not None]

  def count_tokens(self, text: str) -> int:
    """Tokens of `text` as a prompt of the user, special tokens included."""
    return len(self._prompt_ids([('user', text)]))

  @property
  def prompt_limit(self) -> int:
    """Most tokens that a prompt may have."""
    return self._config.prompt_lengths[-1]

  def fits(self, request: Request) -> bool:
    """Whether the prompt and `max_tokens` fit the compiled shapes."""
    size = len(self._prompt_ids(_messages(request)))
    short = request.max_tokens <= self._config.new_tokens
    return short and size <= self.prompt_limit

  def compiled_shapes(self) -> int:
    """Number of programs compiled so far: constant after warm-up."""
    return self._generate_fn._cache_size()

  def close(self) -> None:
    """Nothing to free: arrays go with the object."""

  def _prompt_ids(self, messages: list[tuple[str, str]]) -> list[int]:
    return [*self._tokenizer.render(messages), *self._end]

  def _check(self, row: list[int], request: Request) -> None:
    if len(row) > self.prompt_limit:
      raise ValueError(
        f'prompt of {len(row)} tokens, {self.name} takes {self.prompt_limit}: '
        'write it with templates.fit'
      )
    if request.max_tokens > self._config.new_tokens:
      raise ValueError(
        f'max_tokens={request.max_tokens}, {self.name} gives at most '
        f'{self._config.new_tokens}'
      )

  def _batch_sizes(self) -> list[int]:
    devices = self._devices
    return [-(-size // devices) * devices for size in self._config.batch_sizes]

  def _run(
    self, rows: list[list[int]], requests: list[Request]
  ) -> list[Completion]:
    size = next(s for s in self._batch_sizes() if s >= len(rows))
    longest = max(map(len, rows))
    length = next(p for p in self._config.prompt_lengths if p >= longest)
    padding = size - len(rows)
    tokens, mask = self._tokenizer.pad_left(rows + [[]] * padding, length)
    column = lambda values, dtype: np.asarray([*values, *[0] * padding], dtype)
    args = jax.device_put(
      (
        tokens,
        mask,
        column([r.temperature for r in requests], np.float32),
        column([r.seed % 2**32 for r in requests], np.uint32),
        column([r.max_tokens for r in requests], np.int32),
        np.asarray(
          [*(r.top_p for r in requests), *[1.0] * padding], np.float32
        ),
      ),
      self._rows,
    )
    out = jax.device_get(self._generate_fn(self._params, *args))
    self.generated_tokens += int(out.mask.sum())
    lengths = out.mask.sum(axis=1)
    texts = self._tokenizer.decode_after(
      [out.tokens[i, : lengths[i]] for i in range(len(rows))]
    )
    return [
      _completion(text, request, len(row), int(lengths[i]), out.stopped[i])
      for i, (text, request, row) in enumerate(
        zip(texts, requests, rows, strict=True)
      )
    ]


def _messages(request: Request) -> list[tuple[str, str]]:
  return [(message.role, message.content) for message in request.messages]


def _completion(
  text: str, request: Request, prompt: int, new: int, stopped: bool
) -> Completion:
  """Cuts at the first stop string."""
  places = [text.find(s) for s in request.stop if s in text]
  if places:
    text = text[: min(places)]
  reason = 'stop' if stopped or places else 'length'
  return Completion(text, prompt, new, reason)
