"""Servers on this machine that stand in for those of models, and break.

  with FakeOpenAI(lambda body: 'hi', faults=[Reply(500), CUT]) as server:
    HttpBackend('m', HttpConfig(server.url))

Each request takes the next of `faults`, in order, and is answered once they are
used up. A server listens on a free port of 127.0.0.1.
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.server
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from promptrl_jax.llm.backend import Completion

PROMPT_TOKENS, COMPLETION_TOKENS = 7, 2  # of an answer that is only a text


@dataclasses.dataclass(frozen=True)
class Reply:
  """A response as it is sent.

  Attributes:
    body: sent as it stands if it is bytes, as JSON otherwise.
    cut: the connection is closed in the middle of the body.
    hang: nothing is sent until the server is released or closed; what follows
      then is the answer.
  """

  status: int = 200
  body: Any = dataclasses.field(default_factory=dict)
  headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
  cut: bool = False
  hang: bool = False


HANG = Reply(hang=True)
CUT = Reply(body={'choices': 'a body that is cut in the middle'}, cut=True)
WRONG_JSON = Reply(body=b'{"choices": [')


def rate_limited(retry_after: str) -> Reply:
  """Too many requests: come back after some seconds, or at a date."""
  return Reply(429, headers={'Retry-After': retry_after})


# A fake answers the body of a request with a text, a completion or a fault.
AnswerFn = Callable[[Mapping[str, Any]], str | Completion | Reply]


class FakeServer:
  """Records requests and answers them in threads.

  Attributes:
    answer_fn: what a model would say to the body of a request.
    faults: what the next requests get instead.
    url: base URL for a client.
    bodies, headers, paths: of all requests so far; a GET has no body.
    most_in_flight: requests that were open at once.
  """

  prefix = ''

  def __init__(self, answer_fn: AnswerFn, faults: Iterable[Reply] = ()):
    self.answer_fn = answer_fn
    self.faults = list(faults)
    self.bodies: list[Any] = []
    self.headers: list[dict[str, str]] = []
    self.paths: list[str] = []
    self.most_in_flight = self._in_flight = 0
    self._lock = threading.Lock()
    self._released = threading.Event()
    self._server = http.server.ThreadingHTTPServer(
      ('127.0.0.1', 0), _handler(self)
    )
    self._server.daemon_threads = True
    self.url = f'http://127.0.0.1:{self._server.server_port}{self.prefix}'
    self._thread = threading.Thread(
      target=self._server.serve_forever, args=(0.01,), daemon=True
    )
    self._thread.start()

  def __enter__(self) -> FakeServer:
    return self

  def __exit__(self, *unused: object) -> None:
    self.close()

  def release(self) -> None:
    """Lets requests that hang go on."""
    self._released.set()

  def close(self) -> None:
    self.release()
    self._server.shutdown()
    self._thread.join()
    self._server.server_close()

  def respond(self, path: str, body: Any) -> Reply | list[Any]:
    """Returns a response with its status, or the lines of a stream of JSON."""
    raise NotImplementedError

  def complete(self, body: Mapping[str, Any]) -> Completion | Reply:
    """Returns what `answer_fn` says, a text as a completion."""
    answer = self.answer_fn(body)
    if isinstance(answer, str):
      return Completion(answer, PROMPT_TOKENS, COMPLETION_TOKENS, 'stop')
    return answer

  def take(self, path: str, headers: dict[str, str], body: Any) -> Any:
    """Records a request; returns the response to it."""
    with self._lock:
      self.paths.append(path)
      self.headers.append(headers)
      self.bodies.append(body)
      self._in_flight += 1
      self.most_in_flight = max(self.most_in_flight, self._in_flight)
      fault = self.faults.pop(0) if self.faults else None
    try:
      response = fault or self.respond(path.removeprefix(self.prefix), body)
      if isinstance(response, Reply) and response.hang:
        self._released.wait(30)
        response = self.respond(path.removeprefix(self.prefix), body)
      return response
    finally:
      with self._lock:
        self._in_flight -= 1


def _handler(fake: FakeServer) -> type[http.server.BaseHTTPRequestHandler]:
  class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def do_GET(self):
      self._answer(None)

    def do_POST(self):
      length = int(self.headers['content-length'])
      self._answer(json.loads(self.rfile.read(length)))

    def _answer(self, body: Any) -> None:
      response = fake.take(self.path, dict(self.headers), body)
      with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        if isinstance(response, Reply):
          self._send(response)
        else:
          self._send_lines(response)

    def _send(self, response: Reply) -> None:
      data = response.body
      if not isinstance(data, bytes):
        data = json.dumps(data).encode()
      self.send_response(response.status)
      for name, value in response.headers.items():
        self.send_header(name, value)
      self.send_header('content-length', str(len(data)))
      self.end_headers()
      self.wfile.write(data[: len(data) // 2] if response.cut else data)
      self.close_connection = self.close_connection or response.cut

    def _send_lines(self, lines: Iterator[Any]) -> None:
      """Sends a line at a time; a `CUT` among them ends the connection."""
      self.send_response(200)
      self.send_header('transfer-encoding', 'chunked')
      self.end_headers()
      for line in lines:
        if line is CUT:
          self.close_connection = True
          return
        data = json.dumps(line).encode() + b'\n'
        self.wfile.write(b'%x\r\n%s\r\n' % (len(data), data))
        self.wfile.flush()
      self.wfile.write(b'0\r\n\r\n')

    def log_message(self, *unused: object) -> None:
      pass

  return Handler
