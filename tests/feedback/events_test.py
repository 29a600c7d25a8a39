import json

import pytest

from promptrl_jax.feedback import events
from promptrl_jax.feedback.errors import MalformedFeedback
from tests.feedback.build import answer, candidate, correct, pair, prefer, rate


def test_a_response_comes_back_from_json():
  response = answer(
    'a',
    version=3,
    model='adapter 7',
    candidates=(
      candidate('x', 0.25, score=-1.5),
      candidate('abcd', 0.75, version=3),
    ),
    shown_index=1,
    metadata={'logps': (-0.5, -1.0)},
  )
  text = json.dumps(events.response_to_fields(response))
  assert events.response_from_fields(json.loads(text)) == response
  assert response.question_id == 'a'  # It is shown alone.


GOOD = events.to_fields(rate('e', 'a', 4))


@pytest.mark.parametrize(
  ('fields', 'named'),
  [
    (GOOD | {'kind': 'praise'}, "kind='praise'"),
    (GOOD | {'kind': ['explicit']}, 'explicit, implicit, preference'),
    (GOOD | {'stars': 4}, 'unknown fields stars'),
    ({k: v for k, v in GOOD.items() if k != 'at'}, 'missing fields at'),
    (GOOD | {'id': ''}, "id=''"),
    (GOOD | {'id': 'x' * 201}, '1 to 200 characters'),
    (GOOD | {'id': 7}, 'id=7'),
    (GOOD | {'at': '2024'}, "at='2024'"),
    (GOOD | {'at': float('nan')}, 'at=nan'),
    (GOOD | {'value': 10**400}, 'value=1000'),
    (GOOD | {'value': None}, 'value=None'),
    (GOOD | {'comment': 'half \ud83d'}, 'unpaired surrogate at character 5'),
    (GOOD | {'metadata': {'x': float('inf')}}, 'JSON data'),
    (GOOD | {'metadata': 'x'}, 'metadata'),
    ([GOOD], 'an object'),
    (events.to_fields(prefer('e', 'a')) | {'other_id': 'a'}, 'other_id'),
  ],
)
def test_malformed_events_are_refused_in_one_line(fields, named):
  with pytest.raises(MalformedFeedback) as error:
    events.from_fields(fields)
  assert named in str(error.value)
  assert '\n' not in str(error.value) and len(str(error.value)) < 300


@pytest.mark.parametrize(
  ('change', 'named'),
  [
    ({'version': -1}, 'version=-1'),
    ({'version': 1.0}, 'version=1.0'),
    ({'shown_index': 0}, 'without candidates'),
    ({'candidates': (candidate('abcd', 1.0),)}, 'shown_index=None'),
    ({'candidates': (candidate('x', 1.0),), 'shown_index': 0}, 'differ'),
  ],
)
def test_responses_that_contradict_themselves_are_refused(change, named):
  with pytest.raises(MalformedFeedback, match=named):
    answer('a', **change)


def test_a_propensity_is_a_probability():
  with pytest.raises(MalformedFeedback, match='propensity=1.5'):
    candidate('x', 1.5)


def test_all_kinds_have_a_name_of_their_own():
  assert list(events.KINDS) == [
    'explicit',
    'implicit',
    'preference',
    'correction',
    'skip',
    'undo',
  ]
  assert correct('e', pair()[0].id, 'x').kind == 'correction'
