"""Rivals that lack a part: what they ask without it."""

import pytest

from experiments import ablations
from promptrl_jax.strategies.base import STRATEGIES
from tests.golden.strategies import REFLECTIONS, TESTS, in_turn, upto

REFLEXION = {
  'tests': in_turn(TESTS),
  'reflect': in_turn(*REFLECTIONS),
  'program': in_turn(upto(1), upto(2), upto(3), upto(99)),
}


@pytest.mark.parametrize(
  ('name', 'shown', 'calls'),
  [
    ('reflexion', REFLECTIONS, 8),
    ('reflexion_memory_1', REFLECTIONS[2:3], 8),
    ('reflexion_memory_0', (), 8),
    ('reflexion_without_reflection', (), 5),
  ],
)
def test_what_the_last_prompt_remembers(play, name, shown, calls):
  (played,), model = play(name, REFLEXION)
  last = model.of_kind('program')[3].messages[-1].content
  assert [text for text in REFLECTIONS if text in last] == list(shown)
  assert played.attempt.calls == calls and '99' in played.submission


def test_without_mutation_children_say_what_their_parents_said(play):
  answers = {
    'tests': in_turn(TESTS),
    'elaborate': lambda request, number: f'<task>Make it big, {number}.</task>',
    'program': in_turn(upto(1)),
  }
  texts = {}
  for name in ('epic_fixed', 'epic_fixed_without_mutation'):
    (played,), _ = play(name, answers, budget=40)
    rows = [r for r in played.attempt.trace if r['action'] == 'generation']
    texts[name] = [{c['statement'] for c in r['candidates']} for r in rows]
    operators = {c['operator'] for r in rows[1:] for c in r['candidates']}
    assert operators == {'survive', 'lexical'}
  first, *later = texts['epic_fixed_without_mutation']
  assert later and all(made <= first for made in later)
  assert any(not made <= first for made in texts['epic_fixed'][1:])


def test_they_are_registered_with_what_they_cost():
  assert ablations.__doc__ is not None
  for name in STRATEGIES:
    if name.startswith(('reflexion_', 'epic_fixed_')):
      assert STRATEGIES[name].instructed
  costs = {
    name: STRATEGIES[name].cost.calls
    for name in ('reflexion', 'reflexion_memory_0', 'reflexion_memory_1')
  }
  assert set(costs.values()) == {2}
  assert STRATEGIES['reflexion_without_reflection'].cost.calls == 1
