"""Reads what a server sends, and says what is wrong with it."""

from __future__ import annotations

import datetime
import email.utils
import json
import math
from collections.abc import Callable
from typing import Any, TypeVar

import httpx

from promptrl_jax.llm.backend import BackendError
from promptrl_jax.llm.http_config import HttpConfig

_RETRIED = frozenset({408, 409, 429})  # and every 5xx
_Answer = TypeVar('_Answer')


class Transient(Exception):
  """A failed attempt that is worth a retry."""

  def __init__(self, problem: str, retry_after: float = 0.0):
    super().__init__(problem)
    self.retry_after = retry_after


class Reader:
  """Reads the responses of one server; its errors name server and cause."""

  def __init__(self, model: str, config: HttpConfig, key: str):
    """The key is masked wherever a response is quoted."""
    self._model = model
    self._config = config
    self._key = key

  def parse(
    self, response: httpx.Response, parse: Callable[[Any], _Answer]
  ) -> _Answer:
    """Returns what `parse` makes of the JSON of a response.

    Raises:
      BackendError: the response is not JSON, or `parse` raised a BackendError,
        LookupError, TypeError, AttributeError or ValueError.
    """
    content, where = self.loads(response.text), self._config.base_url
    try:
      return parse(content)
    except BackendError as error:
      problem = str(error)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
      problem = f'lacks what it should have ({error!r})'
    raise BackendError(
      f'answer of {where} {problem}: {self._excerpt(response.text)}'
    )

  def loads(self, text: str) -> Any:
    """Returns the JSON of a text, or raises a BackendError."""
    try:
      return json.loads(text)
    except ValueError:
      raise BackendError(
        f'answer of {self._config.base_url} is not JSON: '
        f'{self._excerpt(text)}; is base_url right?'
      ) from None

  def check(self, response: httpx.Response) -> None:
    """Raises for a response that was read and has no status 200.

    Raises:
      Transient: the server may answer later.
      BackendError: it will not.
    """
    status, hint = response.status_code, ''
    if status == 200:
      return
    if status in (401, 403):
      hint = f'; check the key in ${self._config.api_key_env}'
    elif status == 404:
      hint = f'; check base_url and the model name {self._model!r}'
    problem = (
      f'{self._config.base_url} answered HTTP {status}: '
      f'{self._excerpt(response.text)}{hint}'
    )
    if status in _RETRIED or status >= 500:
      raise Transient(problem, _retry_after(response))
    raise BackendError(problem)

  def describe(self, error: Exception) -> str:
    """Says what broke a request, and what to do."""
    config = self._config
    server = config.base_url
    if isinstance(error, httpx.ConnectError):
      return f'no connection to {server} ({error}); is the server running?'
    if isinstance(error, (TimeoutError, httpx.TimeoutException)):
      return (
        f'{server} did not answer in time ({type(error).__name__}; limits: '
        f'connect {config.connect_timeout_s} s, read {config.read_timeout_s} '
        f's, total {config.timeout_s} s)'
      )
    return f'request to {server} broke ({type(error).__name__}: {error})'

  def _excerpt(self, text: str) -> str:
    """Returns the start of a body, with the API key masked."""
    text = ' '.join(text.split())
    if self._key:
      text = text.replace(self._key, '***')
    return repr(text[:200])


def _retry_after(response: httpx.Response) -> float:
  """Returns the wait in seconds that the header `Retry-After` asks for."""
  value = response.headers.get('retry-after', '')
  try:
    seconds = float(value)
  except ValueError:
    try:
      then = email.utils.parsedate_to_datetime(value)
    except ValueError:
      return 0.0
    if then.tzinfo is None:
      then = then.replace(tzinfo=datetime.UTC)
    now = datetime.datetime.now(datetime.UTC)
    seconds = (then - now).total_seconds()
  return max(seconds, 0.0) if math.isfinite(seconds) else 0.0
