"""Serves the page of a store until Ctrl-C.

  python -m promptrl_jax.feedback.web --store=feedback.sqlite --port=8321

The token is new with each start, unless `PROMPTRL_FEEDBACK_TOKEN` holds one: a
flag would show it to everybody on the machine.
"""

from __future__ import annotations

import os
import pathlib
import sys
import threading

from absl import app, flags

from promptrl_jax.feedback.store import Store
from promptrl_jax.feedback.web.server import TOKEN_VARIABLE, FeedbackServer


def _define() -> None:
  flags.DEFINE_string('store', None, 'File of the store.', required=True)
  flags.DEFINE_integer('port', 8321, 'Port; 0 for any that is free.')
  flags.DEFINE_string('host', '127.0.0.1', 'Address to listen on.')
  flags.DEFINE_string('session', None, 'Shows this session alone.')
  flags.DEFINE_bool(
    'allow_remote', False, 'Has to be set for a host that others reach.'
  )


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {argv[1:]}')
  values = flags.FLAGS
  try:
    path = pathlib.Path(values.store)
    if not path.is_file():
      raise ValueError(
        f'--store={path}: expected a file that a run, or Store.open, made'
      )
    with (
      Store.open(path) as store,
      FeedbackServer(
        store,
        values.port,
        values.host,
        os.environ.get(TOKEN_VARIABLE),
        values.session,
        allow_remote=values.allow_remote,
      ) as page,
    ):
      print(f'open {page.url}\n(Ctrl-C ends it)', flush=True)
      threading.Event().wait()
  except KeyboardInterrupt:
    sys.exit(0)
  except (ValueError, OSError, ImportError) as error:
    sys.exit(f'error: {error}')


if __name__ == '__main__':
  _define()
  app.run(main)
