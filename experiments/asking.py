"""Which question comes next, and which prompts may answer it.

Questions come in the order of a list, from its beginning again after its end.
One that a person asks again comes before them, and is answered by other prompts
than those that led to what was shown. All of it follows from what is in the
store, so that a run that was killed goes on with the same question.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Iterator, Sequence

from promptrl_jax.feedback.events import Response
from promptrl_jax.feedback.store import Store
from promptrl_jax.training.gpro.loop import Loop
from promptrl_jax.training.gpro.people import People


class Questions:
  """The questions of a session, in their order."""

  def __init__(self, store: Store, session: str, texts: Sequence[str]):
    """Goes on after what the store says was shown.

    Args:
      texts: what is asked.
    """
    self._store, self._session, self._texts = store, session, texts
    self._place = 0
    shown = {one.question_id: one.query for one in store.responses(session)}
    for query in shown.values():
      # What was asked again stands there once more, out of its turn.
      self._place += query == self._following

  @property
  def _following(self) -> str:
    return self._texts[self._place % len(self._texts)]

  def show_next(self, people: People) -> tuple[Response, ...]:
    """Shows the next question, or another answer to one that was asked again.

    Raises:
      BackendError, StoreError: see `People.show`.
    """
    again = self._store.asked_again(self._session)
    if again:
      query = again[0].query
      shown = [
        r for r in self._store.responses(self._session) if r.query == query
      ]
      with without(people.loop, prompts_behind(shown)):
        return people.show(query)
    responses = people.show(self._following)
    self._place += 1
    return responses


def prompts_behind(shown: Sequence[Response]) -> set[str]:
  """Ids of all prompts that led to one of the texts that were shown."""
  texts = {response.text for response in shown}
  return {
    candidate.prompt_id
    for response in shown
    for candidate in response.candidates
    if candidate.text in texts
  }


@contextlib.contextmanager
def without(loop: Loop, ids: Collection[str]) -> Iterator[None]:
  """Keeps prompts of a loop from answering; all may if none would be left."""
  population, history = loop.population, loop.history
  few = tuple(one for one in population.individuals if one.id not in ids)
  if few:
    loop.population = dataclasses.replace(population, individuals=few)
    loop.history = {k: v for k, v in history.items() if k not in ids}
  try:
    yield
  finally:
    loop.population, loop.history = population, history
