"""Serves the page from a thread of a process that does something else.

with FeedbackServer(store) as page:
  print(page.url)
"""

from __future__ import annotations

import errno
import ipaddress
import secrets
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

from promptrl_jax import extras
from promptrl_jax.feedback.store import Store
from promptrl_jax.feedback.web import app as app_lib
from promptrl_jax.feedback.web.limits import Limits

# Environment variable of a token that outlives a run: a flag would show it to
# everybody on the machine.
TOKEN_VARIABLE = 'PROMPTRL_FEEDBACK_TOKEN'
_START_S = 30.0
_STOP_S = 5.0  # until a thread that does not end is left behind


class FeedbackServer:
  """The page of a store, on a port of this machine.

  Attributes:
    url: the link to open, with the token; it is a secret.
    address: the same without it.
    token: whoever has it may rate.
    port: the port that is listened on.
  """

  def __init__(
    self,
    store: Store,
    port: int = 0,
    host: str = '127.0.0.1',
    token: str | None = None,
    session: str | None = None,
    *,
    allow_remote: bool = False,
    hosts: Sequence[str] = (),
    limits: Limits = Limits(),
    scales: Sequence[str] = app_lib.SCALES,
    can_ask_again: bool = False,
  ):
    """Takes the port; `start`, or `with`, begins to answer.

    Args:
      store: what is shown and kept; stays the caller's to close.
      port: 0 for any that is free.
      host: address or name to listen on.
      token: 16 or more letters and digits; None: a new one. With the one of an
        earlier run, pages that are open go on without a new link.
      session: shows the responses of this session alone; None: all of them.
      allow_remote: has to be set for a host that other machines reach. What is
        sent is not encrypted: a tunnel is better, see docs/feedback.md.
      hosts: further names under which browsers reach this machine.
      limits, scales, can_ask_again: see `app.make_app`.

    Raises:
      ImportError: the extra `serve` is not installed.
      OSError: the port is taken, or the host not one of this machine.
      ValueError: a host that other machines reach without `allow_remote`, or a
        token or scale that does not fit.
    """
    uvicorn = extras.require('uvicorn', 'serve', 'the feedback page')
    if not (allow_remote or is_loopback(host)):
      raise ValueError(
        f'host={host!r}: other machines reach it, and what they send is not '
        'encrypted; expected 127.0.0.1, or allow_remote=True'
      )
    self.token = secrets.token_urlsafe(32) if token is None else token
    names = [*hosts, *_names(host), *app_lib.LOOPBACK]
    self._app = app_lib.make_app(
      store,
      token=self.token,
      session=session,
      hosts=names,
      limits=limits,
      scales=scales,
      can_ask_again=can_ask_again,
    )
    self._socket = listen(host, port)
    self.port: int = self._socket.getsockname()[1]
    self.address = f'http://{names[0]}:{self.port}/'
    self.url = f'{self.address}?token={self.token}'
    self._server: Any = uvicorn.Server(
      uvicorn.Config(
        self._app,
        # Its configuration would close the log handlers of the whole program.
        log_config=None,
        log_level='error',
        access_log=False,  # It would hold the token.
        lifespan='off',
        http='h11',
        ws='none',
        server_header=False,
        proxy_headers=False,  # Anybody could choose an address by them.
        limit_concurrency=limits.connections,
        timeout_keep_alive=limits.idle_s,
        timeout_graceful_shutdown=1,
      )
    )
    self._failure: BaseException | None = None
    self._thread = threading.Thread(
      target=self._run, name='feedback-page', daemon=True
    )

  def __enter__(self) -> FeedbackServer:
    self.start()
    return self

  def __exit__(self, *unused: object) -> None:
    self.stop()

  def start(self) -> None:
    """Returns once the page answers.

    Raises:
      RuntimeError: the server ended at once; says why.
    """
    self._thread.start()
    deadline = time.monotonic() + _START_S
    while not self._server.started:
      if not self._thread.is_alive() or time.monotonic() > deadline:
        self.stop()
        raise RuntimeError(
          f'the feedback page at {self.address} did not start: '
          f'{self._failure or f"nothing for {_START_S:g} s"}'
        ) from self._failure
      time.sleep(0.005)

  def stop(self) -> None:
    """Ends the server within seconds, whoever waits for a question."""
    self._app.state.watch.is_over = True
    self._server.should_exit = True
    if self._thread.ident is not None:
      self._thread.join(_STOP_S)
    self._socket.close()

  def _run(self) -> None:
    try:
      self._server.run(sockets=[self._socket])
    except BaseException as error:  # `start` raises it where it is seen.
      self._failure = error


def is_loopback(host: str) -> bool:
  """Whether a host is reached from this machine alone."""
  if host == 'localhost':
    return True
  try:
    return ipaddress.ip_address(host.strip('[]')).is_loopback
  except ValueError:
    return False


def listen(host: str, port: int) -> socket.socket:
  """Takes a port of this machine.

  Raises:
    OSError: it is taken, or there is no such host here; in one line.
  """
  address = host.strip('[]')
  try:
    family, *_ = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
      # A server that was just stopped does not keep the port.
      listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
      listener.bind((address, port))
      listener.listen(128)
    except BaseException:
      listener.close()
      raise
  except OverflowError:
    raise ValueError(f'port={port}: expected 0 to 65535') from None
  except OSError as error:
    if error.errno == errno.EADDRINUSE:
      raise OSError(
        f'port {port} of {host} is taken by another program: choose another '
        'one, or 0 for any that is free'
      ) from None
    raise OSError(f'cannot listen on {host}:{port}: {error}') from None
  return listener


def _names(host: str) -> list[str]:
  """Names under which a browser asks for a host, the best one first."""
  address = host.strip('[]')
  if address in ('0.0.0.0', '::'):  # All addresses of this machine.
    return [socket.gethostname().lower()]
  return [f'[{address}]' if ':' in address else address.lower()]
