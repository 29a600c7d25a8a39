"""Inputs mutated from the calls of a test."""

import ast
import os
import pathlib
import subprocess
import sys

import pytest

from promptrl_jax.rewards.inputs import mutated_calls

ROOT = pathlib.Path(__file__).parents[2]


def arguments(text):
  (call,) = ast.parse(text).body
  return [ast.literal_eval(argument) for argument in call.value.args]


@pytest.mark.parametrize(
  ('argument', 'expected'),
  [
    # One to three steps away from 5 and from a text of one character.
    ('5', {0, 4, 6, -5}),
    ('-2.5', {0.0, -3.5, -1.5, 2.5}),
    ("'Ab'", {'A', 'b', 'AbAb', 'bA', 'aB'}),
    ("b'Ab'", {b'A', b'b', b'AbAb', b'bA', b'aB'}),
    ('[3, 1]', {(), (3,), (1,), (3, 1, 3, 1), (1, 3), (4, 1), (3, 0)}),
    ('(3, 1)', {(), (3,), (1,), (3, 1, 3, 1), (1, 3), (4, 1), (3, 0)}),
    ('[]', set()),
    ('None', set()),
    ("''", set()),
  ],
)
def test_each_type_has_its_mutations_and_keeps_its_type(argument, expected):
  found = mutated_calls([f'assert f({argument}) == 1'], 'f', 400, seed=0)
  (kind,) = {type(value) for text in found for value in arguments(text)} or {
    type(ast.literal_eval(argument))
  }
  assert kind is type(ast.literal_eval(argument))
  hashable = {
    tuple(value) if isinstance(value, list) else value
    for text in found
    for value in arguments(text)
  }
  assert expected <= hashable
  assert bool(hashable) == bool(expected)


def test_true_becomes_false_and_no_number():
  assert mutated_calls(['assert f(True)'], 'f', 9, seed=0) == ('f(False)',)


def test_containers_are_changed_inside_and_outside():
  test = "assert f({'a': [1, 2]}, {3, 4}, key=(True, None)) == 1"
  found = mutated_calls([test], 'f', 300, seed=0)
  for expected in (
    "f({'A': [1, 2]}, {3, 4}, key=(True, None))",
    "f({'a': [1, 3]}, {3, 4}, key=(True, None))",
    "f({'a': []}, {3, 4}, key=(True, None))",
    'f({}, {3, 4}, key=(True, None))',
    "f({'a': [1, 2]}, {3, 0}, key=(True, None))",
    "f({'a': [1, 2]}, {*()}, key=(True, None))",
    "f({'a': [1, 2]}, {3, 4}, key=(False, None))",
  ):
    assert expected in found


def test_inputs_are_new_distinct_and_no_more_than_asked_for():
  tests = ['assert f(1, 2) == 3', 'assert f(1, 3) == 4']
  found = mutated_calls(tests, 'f', 12, seed=3)
  assert len(found) == len(set(found)) == 12
  assert not {'f(1, 2)', 'f(1, 3)'} & set(found)


def test_a_seed_chooses_in_every_process():
  test = "assert f({'one', 'two', 'three'}, {'a': 1, 'b': 2}) == 1"
  code = (
    'from promptrl_jax.rewards.inputs import mutated_calls\n'
    f'print(mutated_calls([{test!r}], "f", 30, 5))'
  )
  printed = {
    subprocess.run(
      [sys.executable, '-c', code],
      cwd=ROOT,
      env=os.environ | {'PYTHONHASHSEED': seed},
      capture_output=True,
      text=True,
      check=True,
    ).stdout.strip()
    for seed in ('1', '2')
  }
  assert printed == {repr(mutated_calls([test], 'f', 30, 5))}
  assert mutated_calls([test], 'f', 30, 5) != mutated_calls([test], 'f', 30, 6)


@pytest.mark.parametrize(
  'test',
  [
    'assert f() == 1',
    'assert f(None) == 1',
    'x = 3\nassert f(x) == 1',  # What `x` is may be anything.
    'assert g(3) == 1',
    'assert f(',
  ],
)
def test_where_nothing_can_be_mutated_there_is_no_input(test):
  assert mutated_calls([test], 'f', 8, seed=0) == ()


def test_long_inputs_are_left_out():
  test = f'assert f({"x" * 900!r}) == 1'
  found = mutated_calls([test], 'f', 20, seed=0)
  assert found and max(map(len, found)) <= 1000


def test_no_inputs_at_all_is_a_slip():
  with pytest.raises(ValueError, match='count=0'):
    mutated_calls(['assert f(1)'], 'f', 0, seed=0)
