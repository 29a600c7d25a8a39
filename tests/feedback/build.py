"""Small responses and events for tests."""

from promptrl_jax.feedback.events import (
  Candidate,
  Correction,
  Explicit,
  Implicit,
  Preference,
  Response,
  Skip,
  Undo,
)


def answer(id, **fields):
  """A response, of prompt `p` unless something else is said."""
  defaults = {'query': 'q', 'text': 'abcd', 'prompt_id': 'p', 'shown_at': 1.0}
  return Response(id=id, **(defaults | fields))


def pair():
  """Two responses to one question, of prompts `p` and `other`."""
  return [
    answer('a', question_id='q1'),
    answer('b', question_id='q1', prompt_id='other'),
  ]


def rate(id, response_id, value, scale='rating_1_5', **fields):
  return Explicit(
    id=id, response_id=response_id, value=value, scale=scale, at=2.0, **fields
  )


def signal(id, response_id, value, scale, **fields):
  return Implicit(
    id=id, response_id=response_id, value=value, scale=scale, at=2.0, **fields
  )


def prefer(id, value, response_id='a', other_id='b'):
  return Preference(
    id=id, response_id=response_id, other_id=other_id, value=value, at=2.0
  )


def correct(id, response_id, text):
  return Correction(id=id, response_id=response_id, value=text, at=2.0)


def skip(id, response_id, **fields):
  return Skip(id=id, response_id=response_id, at=2.0, **fields)


def undo(id, response_id, event_id):
  return Undo(id=id, response_id=response_id, event_id=event_id, at=3.0)


def candidate(text, propensity, **fields):
  return Candidate(text=text, prompt_id='p', propensity=propensity, **fields)
