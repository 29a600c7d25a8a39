"""A backend for OpenAI-compatible chat servers.

The server must answer `POST {base_url}/chat/completions`, as OpenAI, vLLM, LM
Studio and Ollama's `/v1` do, and `POST {base_url}/completions` for a text that
is continued as it stands (a message of the role `text`). A batch becomes
concurrent requests in a private event loop, at most `concurrency` at a time.
After overload, server errors and broken connections, the backend retries with
exponential backoff and full jitter. If the retries fail, it raises a
`BackendError` and cancels the rest of the batch.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import datetime
import email.utils
import ipaddress
import logging
import math
import os
import random
import threading
from collections.abc import Coroutine, Sequence
from typing import Any

import httpx

from promptrl_jax.llm.backend import BackendError, Completion, Request

_LOG = logging.getLogger(__name__)
_RETRIED = frozenset({408, 409, 429})  # and every 5xx


@dataclasses.dataclass(frozen=True)
class HttpConfig:
  """Address of the server, timeouts and retries.

  Attributes:
    api_key_env: environment variable that holds the API key; if empty, no key
      is sent. The variable may be unset only for servers on this machine.
    read_timeout_s: time limit between two chunks of a response.
    timeout_s: time limit for one attempt as a whole.
    backoff_s: upper end of the first wait; it doubles with each attempt.
    max_wait_s: longest wait; the backend gives up if the server asks for more.
    max_tokens_field: name of the token limit in the request body; some models
      of OpenAI need `max_completion_tokens`.
  """

  base_url: str = ''
  api_key_env: str = 'OPENAI_API_KEY'
  connect_timeout_s: float = 10.0
  read_timeout_s: float = 120.0
  timeout_s: float = 180.0
  max_retries: int = 5
  backoff_s: float = 0.5
  max_wait_s: float = 60.0
  concurrency: int = 8
  max_context: int | None = None
  max_tokens_field: str = 'max_tokens'

  def __post_init__(self):
    url = httpx.URL(self.base_url)
    if self.base_url and (url.scheme not in ('http', 'https') or not url.host):
      raise ValueError(
        'base_url has no scheme or host; expected something like '
        f'http://127.0.0.1:8000/v1, got {self.base_url!r}'
      )
    if url.userinfo:
      raise ValueError(
        'base_url holds a user name or password; remove it and put the key '
        'into the environment variable named by api_key_env'
      )
    for field in ('connect_timeout_s', 'read_timeout_s', 'timeout_s'):
      if not getattr(self, field) > 0:
        raise ValueError(
          f'{field} is {getattr(self, field)}; expected a positive number'
        )
    if self.concurrency < 1 or self.max_retries < 0:
      raise ValueError(
        f'concurrency is {self.concurrency} and max_retries is '
        f'{self.max_retries}; expected at least 1 and at least 0'
      )


class _Transient(Exception):
  """A failed attempt that is worth a retry."""

  def __init__(self, problem: str, retry_after: float = 0.0):
    super().__init__(problem)
    self.retry_after = retry_after


class HttpBackend:
  """A language model on an OpenAI-compatible server."""

  def __init__(self, model: str, config: HttpConfig):
    """Reads the API key; opens no connection yet.

    Raises:
      ValueError: there is no address, or the key is missing or cannot be sent
        in a header.
    """
    if not config.base_url:
      raise ValueError(
        'backend "http" needs http.base_url, e.g. http://127.0.0.1:8000/v1'
      )
    self._model = model
    self._config = config
    local = _is_loopback(httpx.URL(config.base_url).host)
    self._key = _read_key(config.api_key_env, optional=local)
    headers = {'Authorization': f'Bearer {self._key}'} if self._key else {}
    self._client = httpx.AsyncClient(
      headers=headers,
      timeout=httpx.Timeout(
        config.read_timeout_s, connect=config.connect_timeout_s, pool=None
      ),
      limits=httpx.Limits(max_connections=None),  # `_slots` is the limit.
      trust_env=not local,  # A proxy cannot reach servers on this machine.
    )
    self._slots = asyncio.Semaphore(config.concurrency)
    self._jitter = random.Random()  # Waiting times need not be reproducible.
    self._loop = asyncio.new_event_loop()
    self._thread = threading.Thread(
      target=self._loop.run_forever, name='llm-http', daemon=True
    )
    self._thread.start()

  @property
  def name(self) -> str:
    return self._model

  def complete(self, requests: Sequence[Request]) -> list[Completion]:
    """Returns completions in order; one failed request fails the whole batch.

    An interrupt (Ctrl-C) cancels the requests in flight and is raised again.

    Raises:
      BackendError: refused connection, timeout, HTTP error or a response that
        cannot be read; the text names the server, the cause and what to do.
    """
    if self._loop.is_closed():
      raise BackendError(f'backend {self.name!r} was closed')
    return self._wait(self._complete_all(requests))

  def count_tokens(self, text: str) -> int:
    """Returns an upper estimate, since only the server has the tokenizer."""
    return math.ceil(len(text.encode()) / 3)

  def fits(self, request: Request) -> bool:
    """Returns whether the estimate fits `max_context`; true if it is `None`."""
    if self._config.max_context is None:
      return True
    # Chat templates add about four tokens per message: role and separators.
    prompt = sum(self.count_tokens(m.content) + 4 for m in request.messages)
    return prompt + request.max_tokens <= self._config.max_context

  def close(self) -> None:
    """Closes the connections and stops the event loop and its thread."""
    if self._loop.is_closed():
      return
    self._wait(self._shut_down())
    self._loop.call_soon_threadsafe(self._loop.stop)
    self._thread.join()
    self._loop.close()

  def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
    future = asyncio.run_coroutine_threadsafe(work, self._loop)
    try:
      return future.result()
    except concurrent.futures.CancelledError:
      raise BackendError(f'call of {self.name!r} was cancelled') from None
    except KeyboardInterrupt:
      future.cancel()
      raise

  async def _complete_all(self, requests: Sequence[Request]):
    tasks = [asyncio.create_task(self._complete_one(r)) for r in requests]
    try:
      return await asyncio.gather(*tasks)
    finally:
      for task in tasks:
        task.cancel()
      await asyncio.gather(*tasks, return_exceptions=True)

  async def _shut_down(self) -> None:
    pending = asyncio.all_tasks() - {asyncio.current_task()}
    for task in pending:
      task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    await self._client.aclose()

  async def _complete_one(self, request: Request) -> Completion:
    async with self._slots:
      attempt = 1
      while True:
        try:
          return self._parse(await self._post(request), request.is_text)
        except _Transient as failure:
          if attempt > self._config.max_retries:
            raise BackendError(
              f'gave up after {attempt} attempts: {failure}'
            ) from None
          wait = self._wait_s(attempt, failure)
          _LOG.warning('%s; trying again in %.2f s', failure, wait)
        await asyncio.sleep(wait)
        attempt += 1

  async def _post(self, request: Request) -> httpx.Response:
    """Makes one attempt; returns a response with status 200, or raises."""
    path = '/completions' if request.is_text else '/chat/completions'
    url = self._config.base_url.rstrip('/') + path
    try:
      async with asyncio.timeout(self._config.timeout_s):
        response = await self._client.post(url, json=self._body(request))
    except (httpx.TransportError, TimeoutError) as error:
      raise _Transient(self._describe(error)) from None
    except httpx.HTTPError as error:
      raise BackendError(self._describe(error)) from None
    status = response.status_code
    if status in _RETRIED or status >= 500:
      raise _Transient(self._describe_status(response), _retry_after(response))
    if status != 200:
      raise BackendError(self._describe_status(response))
    return response

  def _wait_s(self, attempt: int, failure: _Transient) -> float:
    """Returns the wait before a retry in seconds, with full jitter.

    Source: Brooker, "Exponential Backoff And Jitter", 2015.
    """
    longest = self._config.max_wait_s
    if failure.retry_after > longest:
      raise BackendError(
        f'{failure}; the server asks to wait {failure.retry_after:.0f} s, '
        f'more than max_wait_s={longest}'
      )
    ceiling = min(self._config.backoff_s * 2 ** (attempt - 1), longest)
    return max(self._jitter.uniform(0, ceiling), failure.retry_after)

  def _body(self, request: Request) -> dict[str, Any]:
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
    return body

  def _parse(self, response: httpx.Response, is_text: bool) -> Completion:
    where = f'answer of {self._config.base_url}'
    try:
      answer = response.json()
    except ValueError:
      raise BackendError(
        f'{where} is not JSON: {self._excerpt(response)}; is base_url right?'
      ) from None
    try:
      if not answer['choices']:
        raise BackendError(f'{where} has no choices: {self._excerpt(response)}')
      choice, usage = answer['choices'][0], answer['usage']
      if choice.get('finish_reason') == 'content_filter':
        raise BackendError(f'{where} was withheld by a content filter')
      # Null for an empty completion.
      text = (choice['text'] if is_text else choice['message']['content']) or ''
      if not isinstance(text, str):
        raise TypeError(f'content is {type(text).__name__}')
      return Completion(
        text=text,
        prompt_tokens=int(usage['prompt_tokens']),
        completion_tokens=int(usage['completion_tokens']),
        finish_reason=(
          'length' if choice.get('finish_reason') == 'length' else 'stop'
        ),
      )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
      raise BackendError(
        f'{where} lacks what a completion has ({error!r}): '
        f'{self._excerpt(response)}'
      ) from None

  def _describe(self, error: Exception) -> str:
    server = self._config.base_url
    if isinstance(error, httpx.ConnectError):
      return f'no connection to {server} ({error}); is the server running?'
    if isinstance(error, (TimeoutError, httpx.TimeoutException)):
      return (
        f'{server} did not answer in time ({type(error).__name__}; limits: '
        f'connect {self._config.connect_timeout_s} s, read '
        f'{self._config.read_timeout_s} s, total {self._config.timeout_s} s)'
      )
    return f'request to {server} broke ({type(error).__name__}: {error})'

  def _describe_status(self, response: httpx.Response) -> str:
    hint = ''
    if response.status_code in (401, 403):
      hint = f'; check the key in ${self._config.api_key_env}'
    elif response.status_code == 404:
      hint = f'; check base_url and the model name {self._model!r}'
    return (
      f'{self._config.base_url} answered HTTP {response.status_code}: '
      f'{self._excerpt(response)}{hint}'
    )

  def _excerpt(self, response: httpx.Response) -> str:
    """Returns the start of a body, with the API key masked."""
    text = ' '.join(response.text.split())
    if self._key:
      text = text.replace(self._key, '***')
    return repr(text[:200])


def _read_key(variable: str, optional: bool) -> str:
  key = os.environ.get(variable, '').strip() if variable else ''
  if variable and not key and not optional:
    raise ValueError(
      f'environment variable {variable} holds no key; set it, or set '
      "api_key_env='' for a server that needs none"
    )
  if not (key.isascii() and key.isprintable()):
    raise ValueError(
      f'the key in environment variable {variable} has characters that cannot '
      'be sent in a header'
    )
  return key


def _is_loopback(host: str) -> bool:
  if host == 'localhost':
    return True
  try:
    return ipaddress.ip_address(host).is_loopback
  except ValueError:
    return False


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
