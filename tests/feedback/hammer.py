"""Writers that rate at once, as a process of its own that can be killed.

  python -m tests.feedback.hammer STORE ACKNOWLEDGED RATINGS WRITER [WRITER ...]

Each writer, a thread, stores its ratings one after the other, and adds the id
of each to a file once the store has acknowledged it. They begin when a line
comes in.
"""

import os
import sys
import threading

from promptrl_jax.feedback.events import Explicit, Response
from promptrl_jax.feedback.store import Store


def ratings_of(writer, count):
  """Ratings of a writer, whose ids and values never change."""
  return [
    Explicit(
      id=f'{writer}/{i}',
      response_id=f'answer to {writer}',
      value=i % 10 + 1,
      scale='rating_1_10',
      at=float(i),
      comment=f'rating {i} of {writer}',
    )
    for i in range(count)
  ]


def answer_to(writer):
  return Response(
    id=f'answer to {writer}',
    query='q',
    text='t',
    prompt_id='p',
    shown_at=0.0,
  )


def main(path, acknowledged, count, *writers):
  with Store.open(path) as store:
    # What is written to a file outlives the process; that it exists says that
    # the store is open.
    log = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    sys.stdin.readline()

    def rate(writer):
      store.add_response(answer_to(writer))
      for rating in ratings_of(writer, int(count)):
        store.add_event(rating)
        os.write(log, f'{rating.id}\n'.encode())

    threads = [threading.Thread(target=rate, args=(w,)) for w in writers]
    for thread in threads:
      thread.start()
    for thread in threads:
      thread.join()


if __name__ == '__main__':
  main(*sys.argv[1:])
