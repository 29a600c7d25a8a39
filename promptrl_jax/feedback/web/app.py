"""The Starlette app: routes to functions, errors to statuses."""

from __future__ import annotations

import asyncio
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from promptrl_jax import extras
from promptrl_jax.feedback import scales as scales_lib
from promptrl_jax.feedback.errors import FeedbackError
from promptrl_jax.feedback.store import Store
from promptrl_jax.feedback.web import problems, routes
from promptrl_jax.feedback.web.limits import Limits
from promptrl_jax.feedback.web.security import Guard
from promptrl_jax.feedback.web.watch import POLL_S, Watch

if TYPE_CHECKING:
  from starlette.applications import Starlette
  from starlette.requests import Request
  from starlette.responses import Response

LOOPBACK = ('127.0.0.1', 'localhost', '[::1]')
# Scales that the page has keys and buttons for, in their order on it.
SCALES = ('thumbs', 'rating_1_5', 'rating_1_10')
_STATIC = pathlib.Path(__file__).parent / 'static'
_KINDS = {
  '.html': 'text/html; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
}


def make_app(
  store: Store,
  *,
  token: str,
  session: str | None = None,
  hosts: Sequence[str] = LOOPBACK,
  limits: Limits = Limits(),
  scales: Sequence[str] = SCALES,
  can_ask_again: bool = False,
) -> Starlette:
  """Returns the page of a store, for any ASGI server.

  Args:
    store: what it shows and keeps; stays the caller's to close.
    token: whoever has it may rate; 16 characters or more.
    session: shows the responses of one session alone; None: all of them.
    hosts: names under which the page may be asked for, without ports.
    limits: sizes and rates.
    scales: which scales a person may choose from, the first one at first.
    can_ask_again: whether the program gives another answer to what a person
      asks again; see `Store.asked_again`.

  Raises:
    ImportError: the extra `serve` is not installed.
    ValueError: the token or a scale does not fit.
  """
  extras.require('starlette', 'serve', 'the feedback page')
  from starlette.applications import Starlette
  from starlette.middleware import Middleware
  from starlette.routing import Route

  unknown = [name for name in scales if name not in SCALES]
  if unknown or not scales:
    raise ValueError(
      f'scales={tuple(scales)}: expected some of {", ".join(SCALES)}'
    )
  page = _Page(store, session, limits, tuple(scales), can_ask_again)
  files = {f.name: f.read_bytes() for f in sorted(_STATIC.iterdir())}
  assets = [
    Route(f'/{name}', _file(name, content), methods=['GET'])
    for name, content in files.items()
    if name != 'page.html'
  ]
  api = {
    '/api/settings': ('GET', page.settings),
    '/api/questions': ('GET', page.questions),
    '/api/events': ('POST', page.events),
  }
  app = Starlette(
    routes=[
      Route('/', _file('page.html', files['page.html']), methods=['GET']),
      *assets,
      *(Route(p, _answered(f), methods=[m]) for p, (m, f) in api.items()),
    ],
    middleware=[
      # It cannot be left out by a route, as it stands before them.
      Middleware(Guard, token=token, hosts=tuple(hosts), limits=limits)
    ],
    exception_handlers={404: _missing, 405: _missing},
  )
  app.state.watch = page.watch
  # Built now, so that a token that does not fit is told to whoever gave it.
  app.middleware_stack = app.build_middleware_stack()
  return app


class _Page:
  """The routes of the page, with what they share."""

  def __init__(
    self,
    store: Store,
    session: str | None,
    limits: Limits,
    scales: tuple[str, ...],
    can_ask_again: bool,
  ):
    self._store = store
    self._session = session
    self._limits = limits
    self._scales = scales
    self._can_ask_again = can_ask_again
    self.watch = Watch(store)

  async def settings(self, request: Request) -> dict[str, Any]:
    return {
      'scales': [
        {'name': name, 'expected': scales_lib.SCALES[name].expected}
        for name in self._scales
      ],
      # Under which the browser keeps what was not acknowledged yet.
      'store': routes.identity(self._store),
      'session': self._session or '',
      'can_ask_again': self._can_ask_again,
    }

  async def questions(self, request: Request) -> dict[str, Any]:
    query = request.query_params
    session = routes.read_session(self._session, query)
    limit = routes.read_limit(query)
    wait_s = routes.read_number(query, 'wait_s', 0, self._limits.wait_s)
    deadline = time.monotonic() + wait_s
    mark = None
    while True:
      latest = await self.watch.mark() if wait_s else (0, 0)
      is_late = time.monotonic() >= deadline or self.watch.is_over
      if latest != mark:
        mark = latest
        answer = await asyncio.to_thread(
          routes.questions, self._store, session, limit
        )
        if answer['tag'] != query.get('seen') or is_late:
          return answer
      if is_late or await request.is_disconnected():
        return answer
      await asyncio.sleep(POLL_S)

  async def events(self, request: Request) -> dict[str, Any]:
    events = routes.read_events(
      request.headers.get('content-type', ''),
      await request.body(),
      self._limits,
    )
    return await asyncio.to_thread(
      routes.add_events, self._store, self._session, events
    )


def _answered(function: Callable[[Request], Any]) -> Callable[[Request], Any]:
  """Returns a handler that answers with JSON, whatever happens."""
  from starlette.responses import JSONResponse

  async def handle(request: Request) -> Response:
    try:
      return JSONResponse(await function(request))
    except FeedbackError as error:
      refused = problems.of_store(error)
    except problems.Refused as error:
      refused = error
    return JSONResponse(
      refused.fields, status_code=refused.status, headers=refused.headers
    )

  return handle


async def _missing(request: Request, error: Any) -> Response:
  from starlette.responses import JSONResponse

  refused = problems.Refused(
    error.status_code,
    'UnknownPath' if error.status_code == 404 else 'WrongMethod',
    f'{request.method} {request.url.path!r:.80} is not part of this page',
    error.headers,
  )
  return JSONResponse(
    refused.fields, status_code=refused.status, headers=refused.headers
  )


def _file(name: str, content: bytes) -> Callable[[Request], Any]:
  from starlette.responses import Response

  kind = _KINDS[pathlib.PurePath(name).suffix]

  async def handle(request: Request) -> Response:
    return Response(content, media_type=kind)

  return handle
