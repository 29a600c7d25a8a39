"""Worked examples: which are found, and where they stand in a prompt."""

import dataclasses

import numpy as np
import pytest

from promptrl_jax.prompts import examples, templates
from promptrl_jax.prompts.examples import ExampleLibrary, WorkedExample
from promptrl_jax.tasks import splits
from promptrl_jax.testing import tiny

TASKS = tiny.tasks(3, 'train')
PROBLEM = splits.reveal(TASKS[0], 'visible1')


def example(name, statement, code='def f(x):\n  return x'):
  return WorkedExample(
    name, statement, 'def f(x):', ('assert f(1) == 1',), code
  )


LIBRARY = [
  example('sum', 'Find the sum of the numbers in a list.'),
  example('sorted', 'Sort the words in a list by length.'),
  example('vowels', 'Count the vowels in a text.'),
  example('digits', 'Find the sum of the digits of a number.'),
]


def problem(statement, task_id='new'):
  return dataclasses.replace(PROBLEM, statement=statement, task_id=task_id)


def names(found):
  return [example.task_id for example in found]


def test_the_nearest_by_words_come_first_and_rare_words_count_more():
  library = ExampleLibrary(LIBRARY)
  found = library.nearest(problem('Count all vowels of the words.'), 2)
  assert names(found) == ['vowels', 'sorted']
  assert names(library.nearest(problem('the sum of digits'), 9))[0] == 'digits'
  assert library.nearest(problem('Count'), 0) == ()


def test_a_task_is_not_shown_to_itself_nor_its_twin():
  library = ExampleLibrary([*LIBRARY, example('twin', 'Count the vowels!')])
  found = library.nearest(problem('Count the vowels!', 'vowels'), 9)
  assert not {'vowels', 'twin'} & {*names(found)}
  assert len(found) == 3


def test_an_embedding_decides_where_there_is_one():
  places = {e.statement: i for i, e in enumerate(LIBRARY)}

  def embed(texts):
    angles = np.array([places.get(text, 2.2) for text in texts]) / 2
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)

  library = ExampleLibrary(LIBRARY, embed)
  found = library.nearest(problem('something else'), 3)
  assert names(found) == ['vowels', 'digits', 'sorted']


def test_an_empty_library_has_no_example():
  assert ExampleLibrary(()).nearest(PROBLEM, 3) == ()


def test_tasks_with_a_program_become_examples():
  bare = dataclasses.replace(TASKS[1], reference='')
  found = examples.from_tasks([TASKS[0], bare])
  assert names(found) == [TASKS[0].task_id]
  assert found[0].code == TASKS[0].reference.strip()
  assert found[0].tests == TASKS[0].tests[:1]


PROMPT = templates.CoderPrompt(
  'Count the vowels.',
  'def g(x):',
  ('assert g("a") == 1',),
  examples=tuple(LIBRARY[:2]),
)


def test_a_chat_shows_examples_as_turns_the_nearest_last():
  messages = templates.CHAT.coder(PROMPT)
  roles = [role for role, _ in messages]
  assert roles == ['system', 'user', 'assistant', 'user', 'assistant', 'user']
  assert 'Sort the words' in messages[1][1]
  assert 'sum of the numbers' in messages[3][1]
  assert messages[4][1] == '```python\ndef f(x):\n  return x\n```'
  assert 'Count the vowels' in messages[5][1]


def test_a_plain_prompt_shows_examples_before_the_task():
  ((_, text),) = templates.PLAIN.coder(PROMPT)
  assert text.index('Sort the') < text.index('sum of') < text.index('vowels')
  assert text.endswith('###\ndef g(x):')
  alone = dataclasses.replace(PROMPT, examples=())
  assert text.endswith(templates.PLAIN.coder(alone)[0][1])


@pytest.mark.parametrize(
  ('kept', 'expected'), [(0, [False] * 2), (1, [True, False]), (2, [True] * 2)]
)
def test_examples_are_left_out_before_words_are_cut(kept, expected):
  size = lambda messages: sum(len(text.split()) for _, text in messages)
  least = dataclasses.replace(PROMPT, examples=PROMPT.examples[:kept])
  limit = size(templates.PLAIN.coder(least))
  fits = lambda messages: size(messages) <= limit
  ((_, text),) = templates.fit(templates.PLAIN.coder, PROMPT, fits)
  assert [e.statement in text for e in PROMPT.examples] == expected
  assert 'Count the vowels.' in text
