"""A language model in this process, behind the `Backend` protocol.

It answers by continuous batching and pads to a few shapes, so that a bounded
number of programs is ever compiled.
A completion depends on its own request, not on those beside it.
"""

from __future__ import annotations

import dataclasses
import pathlib
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.sharding import Mesh

from promptrl_jax.llm.backend import Completion, Request
from promptrl_jax.models import pretrained
from promptrl_jax.models.config import TransformerConfig
from promptrl_jax.models.encoder_decoder_config import (
  EncoderDecoderConfig,
  LanguageModelConfig,
)
from promptrl_jax.models.text_stream import TextStream
from promptrl_jax.models.tokenizer import Tokenizer
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.sampling import prepare
from promptrl_jax.sampling import requests as sampling
from promptrl_jax.sampling.engine import make_engine
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.sampling.scorer import Scorer


@dataclasses.dataclass(frozen=True)
class JaxLMConfig:
  """Shapes that requests are padded to.

  Attributes:
    slots: rows that decode together; rounded up to a multiple of the devices
      that rows are split over. On two cores 16 rows decode 256 requests as fast
      as 32 do and the last few of a rollout 1.4 to 2 times as fast.
    prompt_lengths: tokens of a prompt, ascending; the last one is the limit.
    new_tokens: most tokens of any completion.
  """

  slots: int = 16
  prompt_lengths: tuple[int, ...] = (64, 96, 160, 256, 400)
  new_tokens: int = 80


class JaxLM:
  """Completes text with a causal or an encoder-decoder model.

  The devices of a mesh with the axis `data` alone hold a copy each and work on
  rows of their own; over `fsdp` and `tensor` the parameters are split.

  Attributes:
    name: what a report calls the model.
    generated_tokens, seconds: totals of all calls, for throughput.
  """

  def __init__(
    self,
    name: str,
    model_config: LanguageModelConfig,
    params: Any,
    tokenizer: Tokenizer,
    mesh: Mesh,
    config: JaxLMConfig = JaxLMConfig(),
    bits: int | None = None,
    method: Sampling = Sampling(),
  ):
    longest = config.prompt_lengths[-1] + config.new_tokens
    if longest > model_config.max_positions:
      raise ValueError(
        f'{name}: prompts of {config.prompt_lengths[-1]} and '
        f'{config.new_tokens} new tokens exceed the context of '
        f'{model_config.max_positions}'
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
    rules = None
    if mesh_lib.splits_parameters(mesh):
      rules = pretrained.family(model_config.family).partition
    params = prepare.prepare(params, mesh, rules, bits)
    self._goes_on = not isinstance(model_config, EncoderDecoderConfig)
    shapes = sampling.EngineConfig(**dataclasses.asdict(config))
    self._engine = make_engine(model_config, method, params, mesh, shapes)
    self._scorer = Scorer(model_config, params, mesh, shapes)

  @classmethod
  def from_folder(
    cls,
    folder: str | pathlib.Path,
    mesh: Mesh,
    dtype: str = 'float32',
    config: JaxLMConfig = JaxLMConfig(),
    kv_cache: str = 'plain',
    method: Sampling = Sampling(),
  ) -> JaxLM:
    """Reads a model folder in Hugging Face's layout.

    Args:
      folder: the model.
      mesh: where to sample. If it has an axis besides `data`, each device gets
        its part of the parameters and no device ever holds all of them.
      dtype: of the parameters; `int8`: of the kernels, bfloat16 of the rest.
      config: shapes.
      kv_cache: `plain` or `int8`, of a causal model.
      method: filters of the distribution that completions are drawn from;
        `score` has none.

    Raises:
      FileNotFoundError: the folder lacks a file.
      ValueError: the model cannot be read, writes no text, or has heads that
        the mesh does not divide.
    """
    # On a mesh of data alone, devices of a CPU are to share one copy.
    split = mesh if mesh_lib.splits_parameters(mesh) else None
    bits = 8 if dtype == 'int8' else None
    model_config, params, tokenizer = pretrained.load_pretrained(
      folder, split, 'bfloat16' if bits else dtype
    )
    if not isinstance(model_config, LanguageModelConfig):
      raise ValueError(
        f'{folder} is a {model_config.family} model, which writes no text: '
        'expected a causal or an encoder-decoder language model'
      )
    if kv_cache != 'plain':
      if not isinstance(model_config, TransformerConfig):
        raise ValueError(
          f'kv_cache={kv_cache!r}: that of a {model_config.family} model is '
          'always plain'
        )
      model_config = dataclasses.replace(model_config, kv_cache=kv_cache)
    name = f'{pathlib.Path(folder).name}@{pretrained.digest(folder)}'
    return cls(
      name, model_config, params, tokenizer, mesh, config, bits, method
    )

  def complete(self, requests: Sequence[Request]) -> list[Completion]:
    """Answers a batch, in the order of the requests.

    Tokens are counted up to the one that makes a stop string certain. Requests
    with the same prompt share its prefill.
    """
    start = time.perf_counter()
    rows = [self._tokenizer.render(_messages(r)) for r in requests]
    for row, request in zip(rows, requests, strict=True):
      self._check(row, request)
    same: dict[tuple[int, ...], list[int]] = {}
    for i, row in enumerate(rows):
      same.setdefault(tuple(row), []).append(i)
    found = self._engine.run(
      [
        sampling.Request(prompt, [self._draw(requests[i]) for i in places])
        for prompt, places in same.items()
      ]
    )
    samples = {}
    for places, answers in zip(same.values(), found, strict=True):
      samples.update(zip(places, answers, strict=True))
    texts = self._tokenizer.decode_after(
      [samples[i].tokens for i in range(len(rows))]
    )
    completions = [
      _completion(text, request, len(row), samples[i])
      for i, (text, request, row) in enumerate(
        zip(texts, requests, rows, strict=True)
      )
    ]
    self.generated_tokens += sum(c.completion_tokens for c in completions)
    self.seconds += time.perf_counter() - start
    return completions

  def replace_params(self, params: Any) -> None:
    """Answers from here on with other parameters, of the same shapes.

    Args:
      params: from `prepare` on the mesh of this one.
    """
    self._engine.replace_params(params)
    self._scorer.replace_params(params)

  def score(
    self, requests: Sequence[Request], texts: Sequence[str], given: str = ''
  ) -> list[np.ndarray]:
    """Log-probs at temperature 1 of each token of a text that is given.

    Args:
      requests: of which the messages count.
      texts: what follows each of them, without the token that ends a text.
      given: stands between a prompt and its text, and is not scored. An
        encoder-decoder begins its text anew, so that nothing does.

    Returns:
      float32 [N] for each text.

    Raises:
      ValueError: a prompt or a text is too long, or a text is empty.
    """
    between = self._tokenizer.encode([given])[0] if self._goes_on else ()
    rows = [[*self._tokenizer.render(_messages(r)), *between] for r in requests]
    for row, request in zip(rows, requests, strict=True):
      self._check(row, request)
    return self._scorer.run(rows, self._tokenizer.encode(list(texts)))

  def count_tokens(self, text: str) -> int:
    """Tokens of `text` as a prompt of the user, special tokens included."""
    return len(self._tokenizer.render([('user', text)]))

  @property
  def prompt_limit(self) -> int:
    """Most tokens that a prompt may have."""
    return self._config.prompt_lengths[-1]

  def fits(self, request: Request) -> bool:
    """Whether the prompt and `max_tokens` fit the compiled shapes."""
    size = len(self._tokenizer.render(_messages(request)))
    short = request.max_tokens <= self._config.new_tokens
    return short and size <= self.prompt_limit

  def compiled_shapes(self) -> int:
    """Number of programs compiled so far: constant after warm-up."""
    return self._engine.compiled_programs()

  def close(self) -> None:
    """Nothing to free: arrays go with the object."""

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

  def _draw(self, request: Request) -> sampling.Draw:
    watch = None
    if request.stop:
      watch = _StopStrings(TextStream(self._tokenizer, request.stop))
    return sampling.Draw(
      request.max_tokens,
      request.temperature,
      request.top_p,
      request.seed,
      watch,
    )


@dataclasses.dataclass(frozen=True)
class _StopStrings:
  """Ends a draw with the token that makes a stop string certain."""

  stream: TextStream

  def __call__(self, tokens: np.ndarray) -> int | None:
    for count, token in enumerate(tokens, 1):
      self.stream.feed([int(token)])
      if self.stream.stopped:
        return count
    return None


def _messages(request: Request) -> list[tuple[str, str]]:
  return [(message.role, message.content) for message in request.messages]


def _completion(
  text: str, request: Request, prompt: int, sample: sampling.Sample
) -> Completion:
  """Cuts at the first stop string."""
  places = [text.find(s) for s in request.stop if s in text]
  if places:
    text = text[: min(places)]
  reason = 'stop' if sample.stopped or places else 'length'
  return Completion(text, prompt, len(sample.tokens), reason)
