"""Who may ask, as one ASGI middleware before everything else.

In this order: the Host header is one of ours (else another site could have its
name resolved to this machine), the Origin is the page itself, the token is
right, the client does not write too often, and the body is not too large.
Everything that is answered carries the headers below.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hmac
import json
import re
import urllib.parse
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any

from promptrl_jax.feedback.web.limits import Limits, SlidingWindow
from promptrl_jax.feedback.web.problems import Refused

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

HEADERS = {
  'content-security-policy': (
    "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'none'"
  ),
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cache-control': 'no-store',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
}
WELCOME = (
  'This page needs the link that the program printed when it started, with its '
  'token: open that link once in this browser.'
)
_TOKEN = re.compile(r'[\w-]{16,256}', re.ASCII)
_HOST = re.compile(r'(\[[0-9a-f:.]+\]|[^:\[\]/@?#\s]+)(?::(\d{1,5}))?')
_SAFE = ('GET', 'HEAD', 'OPTIONS')


@dataclasses.dataclass(frozen=True)
class Request:
  """What a decision needs to know of a request.

  Attributes:
    method, path: as they came.
    host: the Host header in lower case, with its port.
    headers: names in lower case; the last of several values.
    query: names and values behind the `?`.
    client: address of the client.
  """

  method: str
  path: str
  host: str
  headers: dict[str, str]
  query: dict[str, str]
  client: str

  @property
  def is_api(self) -> bool:
    return self.path.startswith('/api/')

  @property
  def is_write(self) -> bool:
    return self.is_api and self.method not in _SAFE

  @property
  def is_link(self) -> bool:
    """Whether it is the link that the program printed."""
    return (self.method, self.path) == ('GET', '/') and 'token' in self.query


def read_request(scope: Scope) -> Request:
  """Reads what a decision needs.

  Raises:
    Refused: there are several Host headers, or none.
  """
  headers: dict[str, str] = {}
  hosts = []
  for name, value in scope['headers']:
    headers[name.decode('latin-1').lower()] = value.decode('latin-1')
    if name.lower() == b'host':
      hosts.append(value.decode('latin-1').lower())
  if len(hosts) != 1:
    raise Refused(
      400, 'BadHost', f'{len(hosts)} Host headers: expected exactly one'
    )
  query = urllib.parse.parse_qsl(
    scope['query_string'].decode('latin-1'), keep_blank_values=True
  )
  client = scope.get('client') or ('',)
  return Request(
    scope['method'], scope['path'], hosts[0], headers, dict(query), client[0]
  )


def check_token(token: str) -> None:
  """Makes sure that a token fits into a link and a cookie.

  Raises:
    ValueError: it does not, or is short enough to be guessed.
  """
  if not _TOKEN.fullmatch(token):
    raise ValueError(
      f'token of {len(token)} characters: expected 16 to 256 letters, digits, '
      '- and _, such as those of secrets.token_urlsafe(32)'
    )


def check_host(request: Request, hosts: frozenset[str]) -> None:
  """Refuses a request for a name that is not one of ours."""
  parts = _HOST.fullmatch(request.host)
  if parts is None or parts[1] not in hosts:
    raise Refused(
      421,
      'ForeignHost',
      f'Host {request.host!r:.80}: expected one of {", ".join(sorted(hosts))}',
    )


def check_origin(request: Request) -> None:
  """Refuses what another site has the browser send."""
  origin = request.headers.get('origin')
  ours = (f'http://{request.host}', f'https://{request.host}')
  if origin is not None and origin.lower() not in ours:
    raise Refused(
      403, 'ForeignOrigin', f'Origin {origin!r:.80}: expected {ours[0]}'
    )
  # Old browsers send no Origin with some requests, newer ones this.
  site = request.headers.get('sec-fetch-site', 'none')
  if request.is_api and site not in ('same-origin', 'none'):
    raise Refused(
      403, 'ForeignOrigin', f'Sec-Fetch-Site {site!r:.80}: expected same-origin'
    )


def cookie_name(request: Request) -> str:
  """Name of the cookie; ports of one host share cookies, so it holds the port.

  It is the port that the browser knows, at the near end of a tunnel.
  """
  parts = _HOST.fullmatch(request.host)
  return f'promptrl_feedback_{(parts and parts[2]) or "default"}'


def is_known(request: Request, token: str) -> bool:
  """Whether a request carries the token, as a cookie, bearer or link."""
  given = []
  scheme, _, bearer = request.headers.get('authorization', '').partition(' ')
  if scheme.lower() == 'bearer':
    given.append(bearer.strip())
  try:
    cookie = SimpleCookie(request.headers.get('cookie', ''))
  except CookieError:
    cookie = SimpleCookie()
  if cookie_name(request) in cookie:
    given.append(cookie[cookie_name(request)].value)
  if request.is_link:
    given.append(request.query['token'])
  # In constant time, and of bytes: a text may hold more than ASCII.
  wanted = token.encode()
  matches = [
    hmac.compare_digest(text.encode('utf-8', 'surrogatepass'), wanted)
    for text in given
  ]
  return any(matches)


class Guard:
  """Middleware that lets through what may pass, and answers the rest."""

  def __init__(
    self, app: App, token: str, hosts: tuple[str, ...], limits: Limits
  ):
    """Guards an app; see `check_token` for the token."""
    check_token(token)
    self._app = app
    self._token = token
    self._hosts = frozenset(host.lower() for host in hosts)
    self._limits = limits
    self._writes = SlidingWindow(limits.writes_per_minute)

  async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
    if scope['type'] == 'lifespan':
      await self._app(scope, receive, send)
      return
    if scope['type'] != 'http':
      await send({'type': 'websocket.close', 'code': 1008})
      return
    send = _with_headers(send)
    is_api = scope['path'].startswith('/api/')
    try:
      request = read_request(scope)
      self._check(request)
      if request.is_link:
        await _enter(send, request, self._token)
        return
      body = await _read(request, receive, self._limits)
    except Refused as refused:
      await _refuse(send, refused, is_api)
      return
    await self._app(scope, _replayed(body, receive), send)

  def _check(self, request: Request) -> None:
    check_host(request, self._hosts)
    check_origin(request)
    if not is_known(request, self._token):
      raise Refused(401, 'WrongToken', WELCOME, {'www-authenticate': 'Bearer'})
    if request.is_write and (wait_s := self._writes.wait_s(request.client)):
      raise Refused(
        429,
        'TooManyRequests',
        f'more than {self._limits.writes_per_minute} requests in a minute: '
        f'wait {wait_s} s',
        {'retry-after': str(wait_s)},
      )


async def _read(request: Request, receive: Receive, limits: Limits) -> bytes:
  """Returns the body, counted as it comes in, whatever its header says."""
  too_large = Refused(
    413,
    'TooLarge',
    f'a body of more than {limits.body_bytes} bytes: expected fewer events, or '
    'shorter ones',
    {'connection': 'close'},
  )
  length = request.headers.get('content-length', '0')
  if length.isdecimal() and int(length[:20]) > limits.body_bytes:
    raise too_large
  body = bytearray()
  try:
    async with asyncio.timeout(limits.body_s):
      while True:
        message = await receive()
        if message['type'] != 'http.request':
          raise Refused(400, 'Disconnected', 'the client left')
        body += message.get('body', b'')
        if len(body) > limits.body_bytes:
          raise too_large
        if not message.get('more_body', False):
          return bytes(body)
  except TimeoutError:
    raise Refused(
      408,
      'TooSlow',
      f'the body did not come within {limits.body_s:g} s',
      {'connection': 'close'},
    ) from None


def _replayed(body: bytes, receive: Receive) -> Receive:
  """Returns a `receive` that begins with a body that was read already."""
  messages = [{'type': 'http.request', 'body': body, 'more_body': False}]

  async def replay() -> Message:
    return messages.pop() if messages else await receive()

  return replay


def _with_headers(send: Send) -> Send:
  async def guarded(message: Message) -> None:
    if message['type'] == 'http.response.start':
      ours = [(k.encode(), v.encode()) for k, v in HEADERS.items()]
      names = {name for name, _ in ours}
      rest = [h for h in message.get('headers', []) if h[0] not in names]
      message = {**message, 'headers': [*rest, *ours]}
    await send(message)

  return guarded


async def _enter(send: Send, request: Request, token: str) -> None:
  """Puts the token into a cookie, and out of the address bar."""
  cookie = f'{cookie_name(request)}={token}; HttpOnly; SameSite=Strict; Path=/'
  headers = {'set-cookie': cookie}
  if request.headers.get('sec-fetch-site', 'none') in ('none', 'same-origin'):
    await _answer(send, 303, b'', headers | {'location': '/'})
    return
  # A link on another site, in a mail say: a browser that is redirected would
  # not send the cookie, one that reloads by itself does.
  headers |= {'refresh': '0; url=/', 'content-type': 'text/plain'}
  await _answer(send, 200, b'The page opens.\n', headers)


async def _refuse(send: Send, refused: Refused, is_api: bool) -> None:
  if is_api:
    body, kind = json.dumps(refused.fields).encode(), 'application/json'
  else:
    body, kind = f'{refused.message}\n'.encode(), 'text/plain; charset=utf-8'
  headers = {'content-type': kind, **refused.headers}
  await _answer(send, refused.status, body, headers)


async def _answer(
  send: Send, status: int, body: bytes, headers: dict[str, str]
) -> None:
  pairs = [(k.encode(), v.encode()) for k, v in headers.items()]
  pairs.append((b'content-length', str(len(body)).encode()))
  await send(
    {'type': 'http.response.start', 'status': status, 'headers': pairs}
  )
  await send({'type': 'http.response.body', 'body': body})
