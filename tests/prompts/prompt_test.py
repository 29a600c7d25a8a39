"""Versions of a prompt, the loop that refines it, and who comes from whom."""

import copy
import dataclasses
import pickle

import pytest

from promptrl_jax.prompts import lineage
from promptrl_jax.prompts.lineage import Node
from promptrl_jax.prompts.prompt import Prompt, PromptHistory
from promptrl_jax.prompts.refinement import RefinementLoop


def test_a_refinement_is_the_next_version_and_leaves_its_source_as_it_was():
  known = {'by': 'me', 'score': 0.25}
  first = Prompt('Answer.', metadata=known)
  known['by'] = 'somebody else'
  second = first.with_refinement('Answer briefly.', score=0.5)
  assert (second.text, second.version) == ('Answer briefly.', 1)
  assert dict(second.metadata) == {'by': 'me', 'score': 0.5}
  assert second.parent is first
  assert first == Prompt('Answer.', 0, {'by': 'me', 'score': 0.25})
  assert (str(second), len(second)) == ('Answer briefly.', 15)
  with pytest.raises(TypeError):
    first.metadata['by'] = 'nobody'
  with pytest.raises(dataclasses.FrozenInstanceError):
    first.text = 'Ask.'


def test_what_is_no_prompt_is_refused():
  with pytest.raises(ValueError, match='version=-1: expected 0 or more'):
    Prompt('Answer.', version=-1)
  with pytest.raises(TypeError, match='text=None: expected a string'):
    Prompt(None)


def test_an_empty_prompt_is_one_and_can_be_copied():
  prompt = Prompt('', metadata={'tags': ['a']})
  assert prompt and len(prompt) == 0
  assert pickle.loads(pickle.dumps(prompt)) == prompt
  assert copy.deepcopy(prompt) == prompt


def test_a_history_ends_with_the_current_prompt():
  history = PromptHistory()
  assert history.current is None and len(history) == 0
  history.append(Prompt('a'))
  history.append(Prompt('b'))
  assert history.current == Prompt('b') and len(history) == 2
  assert [p.text for p in history] == ['a', 'b'] and history[0].text == 'a'


def add_mark(prompt):
  return prompt.with_refinement(prompt.text + '!')


def test_a_loop_has_as_many_prompts_as_steps():
  history = RefinementLoop(add_mark, max_steps=4).run(Prompt('Go'))
  assert [p.text for p in history] == ['Go', 'Go!', 'Go!!', 'Go!!!']
  assert len(RefinementLoop(add_mark, max_steps=1).run(Prompt('Go'))) == 1


def test_a_loop_stops_after_the_prompt_that_the_rule_stops_at():
  seen = []

  def is_enough(before, after):
    seen.append((before.text, after.text))
    return after.version == 2

  history = RefinementLoop(add_mark, stop_fn=is_enough).run(Prompt('Go'))
  assert len(history) == 3
  assert seen == [('Go', 'Go!'), ('Go!', 'Go!!')]


def test_a_loop_refuses_what_cannot_be_run():
  with pytest.raises(ValueError, match='max_steps=0: expected 1 or more'):
    RefinementLoop(add_mark, max_steps=0)
  with pytest.raises(TypeError, match="returned 'Go': expected a Prompt"):
    RefinementLoop(str).run(Prompt('Go'))


def test_a_forest_hangs_each_node_below_its_main_parent():
  nodes = [
    Node('a', text='Answer.', score=0.5),
    Node('b', ('a',), 'Answer briefly.', 0.75),
    Node('x', text='Ask.'),
    Node('c', ('a', 'x'), 'Answer or ask.'),
    Node('d', ('b',), 'Answer in\n one word.'),
    Node('e', ('pruned', 'x'), 'Ask back.'),
  ]
  rows = lineage.forest(nodes)
  assert [(row.node.id, row.depth) for row in rows] == [
    *(('a', 0), ('b', 1), ('d', 2), ('c', 1), ('x', 0), ('e', 1)),
  ]
  assert lineage.draw(rows, width=12).split('\n') == [
    'a 0.500: Answer.',
    '├─ b 0.750: Answer brie…',
    '│  └─ d: Answer in o…',
    '└─ c (with x): Answer or a…',
    'x: Ask.',
    '└─ e (with pruned): Ask back.',
  ]


def test_versions_share_their_ancestors():
  first = Prompt('Go', metadata={'score': 0.5})
  left, right = first.with_refinement('Stop'), add_mark(first)
  nodes = lineage.of_prompts([left, right, first])
  assert [(n.text, n.parents) for n in nodes] == [
    *(('Go', ()), ('Stop', ('0',)), ('Go!', ('0',))),
  ]
  assert nodes[0].score == 0.5


def test_leaves_stand_below_each_other_and_parents_amid_their_children():
  nodes = [Node('a'), *(Node(n, ('a',)) for n in 'bcd'), Node('e', ('b',))]
  nodes += [Node('f', ('b',)), Node('x'), Node('y', ('x',))]
  rows = lineage.forest(nodes)
  assert [row.node.id for row in rows] == list('abefcdxy')
  assert lineage.places(rows) == [1.75, 0.5, 0, 1, 2, 3, 4, 4]
  assert lineage.places([]) == []


def test_a_long_lineage_is_drawn():
  history = RefinementLoop(add_mark, max_steps=3000).run(Prompt('Go'))
  rows = lineage.forest(lineage.of_prompts([history.current]))
  assert rows[-1].depth == 2999 and repr(history.current)


def test_what_is_no_forest_is_refused():
  with pytest.raises(ValueError, match="id 'a' occurs twice"):
    lineage.forest([Node('a'), Node('a')])
  with pytest.raises(ValueError, match="'b' is an ancestor of its own"):
    lineage.forest([Node('a'), Node('b', ('c',)), Node('c', ('b',))])
  assert lineage.forest([]) == []
