"""A language model in this process, behind the `Backend` protocol."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jax.sharding import Mesh

from promptrl_jax.llm.backend import Completion, Confidence, Request
from promptrl_jax.models import pretrained
from promptrl_jax.models.tokenizer import Tokenizer
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.sampling.requests import EngineConfig, SamplingParams
from promptrl_jax.sampling.sampler import Sampler, TextSample

_REMEMBERED = 4096  # prompts whose tokens are kept


class JaxLM:
  """Answers requests with a causal or an encoder-decoder model."""

  def __init__(self, name: str, sampler: Sampler):
    self.name = name
    self._sampler = sampler
    # Whoever asks whether a prompt fits soon asks it.
    self._ids = functools.lru_cache(_REMEMBERED)(sampler.tokenizer.render)

  @classmethod
  def from_folder(
    cls,
    folder: str | pathlib.Path,
    mesh: Mesh,
    dtype: str = 'float32',
    shapes: EngineConfig = EngineConfig(),
    kv_cache: str = 'plain',
    method: Sampling = Sampling(),
    beams: int = 1,
  ) -> JaxLM:
    """Reads a model folder in Hugging Face's layout; see `Sampler.load`."""
    sampler = Sampler.load(folder, mesh, dtype, shapes, kv_cache, method, beams)
    name = f'{pathlib.Path(folder).name}@{pretrained.digest(folder)}'
    return cls(name, sampler)

  def complete(self, requests: Sequence[Request]) -> list[Completion]:
    """Answers a batch, in the order of the requests.

    Tokens are counted up to the one that completes a stop string. Requests
    with the same prompt share its prefill.
    """
    completions = dict(self.complete_each(requests))
    return [completions[index] for index in range(len(requests))]

  def complete_each(
    self, requests: Sequence[Request]
  ) -> Iterator[tuple[int, Completion]]:
    """Yields (index, completion) pairs as they end; see `complete`."""
    prompts = [self._render(request) for request in requests]
    for prompt, request in zip(prompts, requests, strict=True):
      self._check(prompt, request)
    params = [
      SamplingParams(
        r.max_tokens,
        r.temperature,
        r.top_p,
        r.seed,
        _StopStrings(self._tokenizer, r.stop) if r.stop else None,
      )
      for r in requests
    ]
    for index, sample in self._sampler.complete_each(prompts, params):
      yield index, _completion(sample, requests[index])

  def replace_params(self, params: Any) -> None:
    """Answers from here on with other parameters of the same shapes."""
    self._sampler.replace_params(params)

  def score(
    self, requests: Sequence[Request], texts: Sequence[str], given: str = ''
  ) -> list[np.ndarray]:
    """Log-probs at temperature 1, float32 [N], of the tokens of given texts.

    `given` stands between every prompt and its text and is not scored. An
    encoder-decoder begins its text anew and ignores it.

    Raises:
      ValueError: a prompt or a text is too long, or a text is empty.
    """
    between = ()
    if self._sampler.is_causal:
      between = self._tokenizer.encode([given])[0]
    prompts = [[*self._render(request), *between] for request in requests]
    for prompt, request in zip(prompts, requests, strict=True):
      self._check(prompt, request)
    return self._sampler.score(prompts, self._tokenizer.encode(list(texts)))

  def count_tokens(self, text: str) -> int:
    """Tokens of `text` as a prompt of the user, special tokens included."""
    return len(self._ids((('user', text),)))

  @property
  def prompt_limit(self) -> int:
    return self._sampler.shapes.prompt_limit

  def fits(self, request: Request) -> bool:
    """Whether the prompt and `max_tokens` fit the compiled shapes."""
    short = request.max_tokens <= self._sampler.shapes.new_tokens
    return short and len(self._render(request)) <= self.prompt_limit

  def compiled_shapes(self) -> int:
    """Number of programs compiled so far: constant after warm-up."""
    return self._sampler.compiled_programs()

  def forget_prompts(self) -> None:
    """Drops the tokens of earlier prompts, so that timings start alike."""
    self._ids.cache_clear()

  def close(self) -> None:
    """Does nothing: arrays are freed with the object."""

  @property
  def _tokenizer(self) -> Tokenizer:
    return self._sampler.tokenizer

  def _render(self, request: Request) -> Sequence[int]:
    return self._ids(tuple((m.role, m.content) for m in request.messages))

  def _check(self, prompt: Sequence[int], request: Request) -> None:
    if len(prompt) > self.prompt_limit:
      raise ValueError(
        f'prompt of {len(prompt)} tokens, {self.name} takes '
        f'{self.prompt_limit}: write it with templates.fit'
      )
    most = self._sampler.shapes.new_tokens
    if request.max_tokens > most:
      raise ValueError(
        f'max_tokens={request.max_tokens}, {self.name} gives at most {most}'
      )


class _StopStrings:
  """Ends a completion with the token that completes a stop string.

  A character or a stop string may span several tokens, so text is held back
  until it cannot be part of an incomplete one.
  """

  def __init__(self, tokenizer: Tokenizer, stop: Sequence[str]):
    if '' in stop:
      raise ValueError(f'stop={tuple(stop)!r}: an empty string ends every text')
    self._tokenizer = tokenizer
    self._stop = stop
    self._ids: list[int] = []  # ids of an incomplete character
    self._held = ''  # text that may be the start of a stop string

  def __call__(self, tokens: np.ndarray) -> int | None:
    for count, token in enumerate(tokens, 1):
      self._ids.append(int(token))
      text = self._tokenizer.decode_after([self._ids])[0]
      # Incomplete characters decode to this.
      if text.endswith('\N{REPLACEMENT CHARACTER}'):
        continue
      self._ids = []
      self._held += text
      starts = [i for s in self._stop if (i := self._held.find(s)) >= 0]
      limit = self._first_prefix()
      if starts and min(starts) <= limit:
        return count
      self._held = self._held[limit:]
    return None

  def _first_prefix(self) -> int:
    """Returns the first index where an incomplete stop string may start."""
    held = self._held
    longest = max(map(len, self._stop))
    for i in range(max(0, len(held) - longest + 1), len(held)):
      rest = held[i:]
      if any(s != rest and s.startswith(rest) for s in self._stop):
        return i
    return len(held)


def _completion(sample: TextSample, request: Request) -> Completion:
  """Cuts the text at the first stop string."""
  text = sample.text
  places = [text.find(s) for s in request.stop if s in text]
  if places:
    text = text[: min(places)]
  reason = 'stop' if sample.stopped or places else 'length'
  return Completion(
    text,
    sample.prompt_tokens,
    len(sample.tokens),
    reason,
    _confidence(sample.certainty),
  )


def _confidence(certainty: np.ndarray | None) -> Confidence | None:
  """Sums up what the sampler measured of [2, T] tokens, if anything."""
  if certainty is None or not certainty.shape[1]:
    return None
  logps, entropies = certainty
  return Confidence(
    float(logps.mean()), float(logps.min()), float(entropies.mean())
  )
