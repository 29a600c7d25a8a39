"""Many JSON requests to one server: concurrency, rate limits and retries.

  posts ──> slots ──> rate limits ──> attempt ──> parse ──> (index, answer)
                          ^              │ overload, 5xx, broken connection
                          └── back-off <─┘

A batch becomes concurrent requests in a private event loop, at most
`concurrency` at a time. Answers are handed out as they come in, so that a
caller can store them before the rest of the batch is done, or fails. `http.py`
and `ollama.py` hold the protocols of servers.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import logging
import queue
import random
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import httpx

from promptrl_jax.llm import http_config
from promptrl_jax.llm.backend import BackendError
from promptrl_jax.llm.http_config import HttpConfig
from promptrl_jax.llm.http_errors import Reader, Transient
from promptrl_jax.llm.rate import RateLimits

_LOG = logging.getLogger(__name__)
_Answer = TypeVar('_Answer')
# Reads the JSON of a response: the answer, and the tokens that it used. A
# LookupError, TypeError, AttributeError or ValueError is an answer that lacks
# something, a BackendError says what is wrong with it.
ParseFn = Callable[[Any], tuple[_Answer, int]]
_Puts = Callable[[Any], None]


@dataclasses.dataclass(frozen=True)
class Post:
  """One request: `POST {base_url}{path}`, or `GET` if there is no body.

  Attributes:
    tokens: upper estimate of the tokens that it uses.
  """

  path: str
  body: Mapping[str, Any] | None = None
  tokens: int = 0


class Transport:
  """A client of one server, in an event loop and a thread of its own."""

  def __init__(self, name: str, config: HttpConfig):
    """Reads the API key; opens no connection yet.

    Args:
      name: of the model, for errors.
      config: address, time-outs, retries and limits.

    Raises:
      ValueError: the key is missing or cannot be sent in a header.
    """
    self._name = name
    self._config = config
    local = http_config.is_loopback(httpx.URL(config.base_url).host)
    key = http_config.read_key(config.api_key_env, optional=local)
    self._reader = Reader(name, config, key)
    self._client = httpx.AsyncClient(
      headers={'Authorization': f'Bearer {key}'} if key else {},
      timeout=httpx.Timeout(
        config.read_timeout_s, connect=config.connect_timeout_s, pool=None
      ),
      limits=httpx.Limits(max_connections=None),  # `_slots` is the limit.
      trust_env=not local,  # A proxy cannot reach servers on this machine.
    )
    self._slots = asyncio.Semaphore(config.concurrency)
    self._rate = RateLimits(
      config.requests_per_minute, config.tokens_per_minute
    )
    self._run_ends: float | None = None  # Set by the first request.
    self._jitter = random.Random()  # Waiting times need not be reproducible.
    self._loop = asyncio.new_event_loop()
    self._thread = threading.Thread(
      target=self._loop.run_forever, name='llm-http', daemon=True
    )
    self._thread.start()

  def each(
    self, posts: Sequence[Post], parse: ParseFn[_Answer]
  ) -> Iterator[tuple[int, _Answer]]:
    """Yields (index, answer) pairs in the order in which answers come in.

    One failed request cancels the rest, and so does a caller that stops early
    or an interrupt (Ctrl-C).

    Raises:
      BackendError: refused connection, time-out, HTTP error or a response that
        cannot be read; the text names the server, the cause and what to do.
        Answers that came in before have been yielded.
    """
    return self._received(lambda put: self._run(posts, parse, put))

  def one(self, post: Post, parse: ParseFn[_Answer]) -> _Answer:
    """Returns the answer to a single request; raises as `each`."""
    ((_, answer),) = self.each([post], parse)
    return answer

  def lines(self, post: Post) -> Iterator[Any]:
    """Yields the JSON of each line of a response, as the lines come in.

    It is tried once and has no time limit as a whole; raises as `each`.
    """
    return self._received(lambda put: self._read_lines(post, put))

  def close(self) -> None:
    """Closes the connections and stops the event loop and its thread."""
    if self._loop.is_closed():
      return
    asyncio.run_coroutine_threadsafe(self._shut_down(), self._loop).result()
    self._loop.call_soon_threadsafe(self._loop.stop)
    self._thread.join()
    self._loop.close()

  def _received(
    self, work_fn: Callable[[_Puts], Coroutine[Any, Any, None]]
  ) -> Iterator[Any]:
    """Yields what work in the event loop puts out, until it is done."""
    if self._loop.is_closed():
      raise BackendError(f'backend {self._name!r} was closed')
    items: queue.SimpleQueue = queue.SimpleQueue()
    future = asyncio.run_coroutine_threadsafe(work_fn(items.put), self._loop)
    future.add_done_callback(lambda _: items.put(None))
    try:
      while (item := items.get()) is not None:
        yield item
      future.result()
    except concurrent.futures.CancelledError:
      raise BackendError(f'call of {self._name!r} was cancelled') from None
    finally:
      future.cancel()

  async def _run(
    self, posts: Sequence[Post], parse: ParseFn[Any], put: _Puts
  ) -> None:
    """Puts out (index, answer) pairs."""
    answered = 0

    async def work(index: int, post: Post) -> None:
      nonlocal answered
      put((index, await self._answer(post, parse)))
      answered += 1

    tasks = []
    try:
      async with asyncio.timeout_at(self._start_run()):
        await asyncio.sleep(0)  # After the end of the run nothing is sent.
        tasks = [asyncio.create_task(work(*item)) for item in enumerate(posts)]
        await asyncio.gather(*tasks)
    except TimeoutError:
      raise BackendError(
        f'run_timeout_s={self._config.run_timeout_s} is over since the first '
        f'request to {self._config.base_url}; {answered} of the last '
        f'{len(posts)} requests were answered, and a cache has kept them: '
        'start again, or raise the limit'
      ) from None
    finally:
      for task in tasks:
        task.cancel()
      await asyncio.gather(*tasks, return_exceptions=True)

  def _start_run(self) -> float | None:
    """When the run ends, by the clock of the loop; None: it has no limit."""
    if self._run_ends is None and self._config.run_timeout_s:
      self._run_ends = self._loop.time() + self._config.run_timeout_s
    return self._run_ends

  async def _shut_down(self) -> None:
    pending = asyncio.all_tasks() - {asyncio.current_task()}
    for task in pending:
      task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    await self._client.aclose()

  async def _answer(self, post: Post, parse: ParseFn[Any]) -> Any:
    async with self._slots:
      attempt = 1
      while True:
        await self._rate.enter(post.tokens)
        used = 0
        try:
          response = await self._attempt(post)
          answer, used = self._reader.parse(response, parse)
          return answer
        except Transient as failure:
          if attempt > self._config.max_retries:
            raise BackendError(
              f'gave up after {attempt} attempts: {failure}'
            ) from None
          wait = self._wait_s(attempt, failure)
          _LOG.warning('%s; trying again in %.2f s', failure, wait)
        finally:
          self._rate.give_back(post.tokens - used)
        await asyncio.sleep(wait)
        attempt += 1

  async def _attempt(self, post: Post) -> httpx.Response:
    """Makes one attempt; returns a response with status 200, or raises."""
    try:
      async with asyncio.timeout(self._config.timeout_s):
        response = await self._client.send(self._build(post))
    except (httpx.TransportError, TimeoutError) as error:
      raise Transient(self._reader.describe(error)) from None
    except httpx.HTTPError as error:
      raise BackendError(self._reader.describe(error)) from None
    self._reader.check(response)
    return response

  async def _read_lines(self, post: Post, put: _Puts) -> None:
    request = self._build(post)
    try:
      response = await self._client.send(request, stream=True)
      try:
        if response.status_code != 200:
          await response.aread()
          self._reader.check(response)
        async for line in response.aiter_lines():
          if line.strip():
            put(self._reader.loads(line))
      finally:
        await response.aclose()
    except httpx.HTTPError as error:
      raise BackendError(self._reader.describe(error)) from None
    except Transient as failure:
      raise BackendError(str(failure)) from None

  def _build(self, post: Post) -> httpx.Request:
    return self._client.build_request(
      'GET' if post.body is None else 'POST',
      self._config.base_url.rstrip('/') + post.path,
      json=post.body,
    )

  def _wait_s(self, attempt: int, failure: Transient) -> float:
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
