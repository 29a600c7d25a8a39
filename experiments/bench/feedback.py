"""Measures the feedback page's server under load: rate, delays, losses.

  python -m experiments.bench.feedback --seconds=30

Some connections, each of a client of its own, send ratings at a fixed rate,
each at its planned time whatever the answers before it took. Every fifth rating
is sent twice, as a page does that got no answer. Afterwards the store is read:
each rating that was acknowledged must be there, and each only once.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import json
import multiprocessing
import pathlib
import tempfile
import time
from typing import Any

import httpx
import numpy as np
from absl import app, flags

from promptrl_jax.feedback.events import Response
from promptrl_jax.feedback.store import Store
from promptrl_jax.feedback.web.limits import Limits
from promptrl_jax.feedback.web.server import FeedbackServer

_TWICE = 5  # each rating of this number is sent twice
_ANSWERS = 100
_HOUR_S = 3600.0


@dataclasses.dataclass(frozen=True)
class Load:
  """What is sent.

  Attributes:
    rate: requests per second of all connections together.
    connections: clients, each with a connection of its own.
    seconds: for how long.
  """

  rate: float = 200.0
  connections: int = 50
  seconds: float = 30.0


def measure(load: Load, folder: pathlib.Path) -> dict[str, Any]:
  """Puts a load on a server with a store in a folder.

  The clients are a process of their own, so that they do not share a lock with
  the server.

  Returns:
    requests, requests_per_s, p50_ms, p99_ms, max_ms, failed: of requests;
    server_cpu_ms: processor time of the server for one, which other programs
    on the machine change little;
    lost: ratings that were acknowledged and are not stored; doubled: ratings
    that are stored more than once.
  """
  limits = Limits(
    writes_per_minute=int(2 * load.rate * 60) + 1,
    connections=4 * load.connections,
  )
  with (
    Store.open(folder / 'load.sqlite') as store,
    FeedbackServer(store, limits=limits) as page,
    multiprocessing.get_context('spawn').Pool(1) as pool,
  ):
    store.add_responses([_answer(i) for i in range(_ANSWERS)])
    begin = time.process_time()
    clients = pool.apply_async(_clients, (page.address, page.token, load))
    delays, acknowledged, failed, seconds = clients.get(_HOUR_S)
    cpu_s = time.process_time() - begin
    stored = collections.Counter(event.id for event in store.events())
  p50, p99, most = (float(np.percentile(delays, q)) for q in (50, 99, 100))
  return {
    'requests': len(delays),
    'requests_per_s': round(len(delays) / seconds, 1),
    'p50_ms': round(1000 * p50, 1),
    'p99_ms': round(1000 * p99, 1),
    'max_ms': round(1000 * most, 1),
    'server_cpu_ms': round(1000 * cpu_s / len(delays), 2),
    'failed': failed,
    'stored': len(stored),
    'lost': len(set(acknowledged) - stored.keys()),
    'doubled': sum(count > 1 for count in stored.values()),
  }


def _answer(place: int) -> Response:
  fields = {'query': 'q', 'text': 't', 'prompt_id': 'p', 'shown_at': 0.0}
  return Response(id=f'r{place}', **fields)


def _clients(
  address: str, token: str, load: Load
) -> tuple[list[float], list[str], int, float]:
  return asyncio.run(_all_clients(address, token, load))


async def _all_clients(address: str, token: str, load: Load):
  delays: list[float] = []
  acknowledged: list[str] = []
  failed = 0
  every_s = load.connections / load.rate

  async def send(http: httpx.AsyncClient, number: int, begin: float) -> None:
    nonlocal failed
    for i in range(int(load.seconds / every_s)):
      planned = begin + every_s * (i + number / load.connections)
      await asyncio.sleep(planned - time.monotonic())
      place = i - 1 if i % _TWICE == 1 else i
      event = _event(f'{number}/{place}', place)
      reply = await http.post('/api/events', json={'events': [event]})
      delays.append(time.monotonic() - planned)
      if reply.status_code == 200:
        acknowledged.append(event['id'])
      else:
        failed += 1

  async with contextlib.AsyncExitStack() as stack:
    clients = [
      await stack.enter_async_context(
        httpx.AsyncClient(
          base_url=address,
          headers={'authorization': f'Bearer {token}'},
          limits=httpx.Limits(max_connections=1),
          timeout=60,
          verify=False,  # Reading certificates takes longer than the load.
        )
      )
      for _ in range(load.connections)
    ]
    begin = time.monotonic() + 0.1
    await asyncio.gather(
      *(send(http, number, begin) for number, http in enumerate(clients))
    )
    return delays, acknowledged, failed, time.monotonic() - begin


def _event(name: str, place: int) -> dict[str, Any]:
  return {
    'id': name,
    'kind': 'explicit',
    'response_id': f'r{place % _ANSWERS}',
    'value': place % 5 + 1,
    'scale': 'rating_1_5',
    'at': float(place),
  }


def _define() -> None:
  default = Load()
  flags.DEFINE_float('rate', default.rate, 'Requests per second.')
  flags.DEFINE_integer('connections', default.connections, 'Clients.')
  flags.DEFINE_float('seconds', default.seconds, 'How long.')


def main(argv: list[str]) -> None:
  del argv
  values = flags.FLAGS
  load = Load(values.rate, values.connections, values.seconds)
  with tempfile.TemporaryDirectory() as folder:
    print(json.dumps(measure(load, pathlib.Path(folder))))


if __name__ == '__main__':
  _define()
  app.run(main)
