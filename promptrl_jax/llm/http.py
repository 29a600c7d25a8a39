"""A backend for OpenAI-compatible chat servers.

The server must answer `POST {base_url}/chat/completions`, as OpenAI, vLLM, LM
Studio and Ollama's `/v1` do, and `POST {base_url}/completions` for a text that
is continued as it stands (a message of the role `text`). `transport.py` says
how requests are sent, and tried again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from promptrl_jax.llm import http_logprobs
from promptrl_jax.llm.backend import (
  BackendError,
  Completion,
  Confidence,
  Request,
)
from promptrl_jax.llm.http_config import HttpConfig, estimate_tokens
from promptrl_jax.llm.transport import Post, Transport


class ServerBackend:
  """What backends of servers share; subclasses know the protocol."""

  def __init__(self, model: str, config: HttpConfig):
    """Reads the API key; opens no connection yet.

    Raises:
      ValueError: the key is missing or cannot be sent in a header.
    """
    self._model = model
    self._config = config
    self._transport = Transport(model, config)

  @property
  def name(self) -> str:
    return self._model

  def complete(self, requests: Sequence[Request]) -> list[Completion]:
    """Returns completions in order; one failed request fails the whole batch.

    An interrupt (Ctrl-C) cancels the requests in flight and is raised again.

    Raises:
      BackendError: refused connection, time-out, HTTP error or a response that
        cannot be read; the text names the server, the cause and what to do.
    """
    completions = dict(self.complete_each(requests))
    return [completions[index] for index in range(len(requests))]

  def complete_each(
    self, requests: Sequence[Request]
  ) -> Iterator[tuple[int, Completion]]:
    """Yields (index, completion) pairs as they come in; see `complete`."""
    return self._transport.each(
      [self._post(request) for request in requests], self._parse
    )

  def count_tokens(self, text: str) -> int:
    """Returns an upper estimate, since only the server has the tokenizer."""
    return estimate_tokens(text)

  def fits(self, request: Request) -> bool:
    """Returns whether the estimate fits `max_context`; true if it is `None`."""
    limit = self._config.max_context
    return limit is None or most_tokens(request) <= limit

  def close(self) -> None:
    """Closes the connections and stops the event loop and its thread."""
    self._transport.close()

  def _post(self, request: Request) -> Post:
    raise NotImplementedError

  def _parse(self, content: Any) -> tuple[Completion, int]:
    """Returns the completion in a response and the tokens that it used."""
    raise NotImplementedError


class HttpBackend(ServerBackend):
  """A language model on an OpenAI-compatible server."""

  def __init__(self, model: str, config: HttpConfig, certainty: bool = False):
    """Reads the API key; opens no connection yet.

    With `certainty`, completions have the confidence of the model, from the
    log-probs that the server gives.

    Raises:
      ValueError: there is no address, or the key is missing or cannot be sent
        in a header.
    """
    self._certainty = certainty
    if not config.base_url:
      raise ValueError(
        'backend "http" needs http.base_url, e.g. http://127.0.0.1:8000/v1'
      )
    super().__init__(model, config)

  def _post(self, request: Request) -> Post:
    body: dict[str, Any] = {
      'model': self._model,
      'temperature': request.temperature,
      'top_p': request.top_p,
      'seed': request.seed,
      self._config.max_tokens_field: request.max_tokens,
    }
    if request.is_text:
      body['prompt'] = request.messages[0].content
    else:
      body['messages'] = [dataclasses.asdict(m) for m in request.messages]
    if request.stop:
      body['stop'] = list(request.stop)
    if self._certainty:
      body |= http_logprobs.asked(is_chat=not request.is_text)
    path = '/completions' if request.is_text else '/chat/completions'
    return Post(path, body, most_tokens(request))

  def _parse(self, content: Any) -> tuple[Completion, int]:
    if not content['choices']:
      raise BackendError('has no choices')
    choice, usage = content['choices'][0], content['usage']
    if choice.get('finish_reason') == 'content_filter':
      raise BackendError('was withheld by a content filter')
    is_text = 'text' in choice and 'message' not in choice
    text = choice['text'] if is_text else choice['message']['content']
    prompt, completion = usage['prompt_tokens'], usage['completion_tokens']
    sure = http_logprobs.confidence(choice) if self._certainty else None
    cut = choice.get('finish_reason') == 'length'
    return completion_of(text, prompt, completion, cut, sure)


def completion_of(
  text: Any,
  prompt_tokens: Any,
  completion_tokens: Any,
  cut: bool,
  confidence: Confidence | None = None,
) -> tuple[Completion, int]:
  """Returns a completion and its tokens; raises TypeError for other data."""
  text = text or ''  # Null for an empty completion.
  if not isinstance(text, str):
    raise TypeError(f'content is {type(text).__name__}')
  completion = Completion(
    text=text,
    prompt_tokens=int(prompt_tokens),
    completion_tokens=int(completion_tokens),
    finish_reason='length' if cut else 'stop',
    confidence=confidence,
  )
  return completion, completion.prompt_tokens + completion.completion_tokens


def most_tokens(request: Request) -> int:
  """Returns an upper estimate of the tokens of a prompt and its completion."""
  # Chat templates add about four tokens per message: role and separators.
  prompt = sum(estimate_tokens(m.content) + 4 for m in request.messages)
  return prompt + request.max_tokens
