"""Tests of requests and completions as JSON data."""

import dataclasses
import json

import pytest

from promptrl_jax.llm.backend import (
  Completion,
  Confidence,
  Message,
  Request,
)

_REQUEST = Request(
  (Message('system', 'Be brief.'), Message('user', 'Why?')),
  temperature=0.4,
  top_p=0.9,
  seed=3,
  max_tokens=16,
  stop=('\n', '#'),
  scope='test',
)
_COMPLETION = Completion('Because.', 9, 2, 'stop')


def test_a_request_is_written_field_by_field():
  # Keys of caches are hashes of this data.
  assert _REQUEST.to_fields() == dataclasses.asdict(_REQUEST)
  assert list(_REQUEST.to_fields()) == list(dataclasses.asdict(_REQUEST))


@pytest.mark.parametrize('confidence', [None, Confidence(-0.5, -2.0, 1.5)])
def test_a_completion_is_read_as_it_was_written(confidence):
  completion = dataclasses.replace(_COMPLETION, confidence=confidence)
  fields = json.loads(json.dumps(completion.to_fields()))
  assert ('confidence' in fields) == (confidence is not None)
  assert Completion.from_fields(fields) == completion


def test_what_was_written_can_be_changed_without_changing_the_message():
  fields = _REQUEST.to_fields()
  fields['messages'][0]['content'] = 'Be long.'
  assert _REQUEST.messages[0].content == 'Be brief.'


@pytest.mark.parametrize('fields', [{}, {'text': 'a', 'tokens': 1}])
def test_fields_of_something_else_are_refused(fields):
  with pytest.raises(TypeError):
    Completion.from_fields(fields)
