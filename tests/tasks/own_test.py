"""A task of a user's own."""

import pytest

from promptrl_jax.tasks import own


def test_assertions_are_tests_and_the_rest_runs_before_them():
  task = own.to_task(
    ' Add numbers. ',
    'import math\n\n@print\ndef near(x, y):\n  return math.isclose(x, y)\n'
    'assert near(add(1, 2), 3)  # why\nassert (\n  add(0, 0) == 0\n)\n',
  )
  assert (task.task_id, task.statement) == ('own/add', 'Add numbers.')
  assert task.tests == (
    'assert near(add(1, 2), 3)  # why',
    'assert (\n  add(0, 0) == 0\n)',
  )
  assert task.setup.startswith('import math\n@print\ndef near')
  assert task.signature == 'def add(a, b):'


@pytest.mark.parametrize(
  ('tests', 'signature'),
  [
    ('assert f() == 1', 'def f():'),
    ('assert f(1, n=2) == 1', 'def f(a, n):'),
    ('assert f(1, a=2) == 1', 'def f(b, a):'),
    ('assert f(1) == f(1, 2)', 'def f(*args, **kwargs):'),
    ('assert f(*[1]) == 1', 'def f(*args, **kwargs):'),
    ('assert f(**{}) == 1', 'def f(*args, **kwargs):'),
  ],
)
def test_a_signature_takes_what_the_tests_pass(tests, signature):
  assert own.to_task('Write f.', tests).signature == signature


def test_a_signature_may_be_given():
  task = own.to_task('Write f.', 'assert f(1)', signature='def f(nums):')
  assert task.signature == 'def f(nums):'


@pytest.mark.parametrize(
  ('statement', 'source', 'signature', 'reason'),
  [
    (' ', 'assert f(1)', '', 'statement'),
    ('Write f.', 'x = 1', '', 'mine.py has no assertion'),
    ('Write f.', 'x = 1\nassert f(', '', 'mine.py:2: no Python'),
    ('Write f.', 'assert 1 == 1', '', 'no assertion calls a function'),
    ('Write f.', 'assert f(1)', 'def g(x):', r'expected "def f\('),
    ('Write f.', 'assert f(1)', 'def f(x)', r'expected "def f\('),
  ],
)
def test_what_is_no_task_is_refused(statement, source, signature, reason):
  with pytest.raises(ValueError, match=reason):
    own.to_task(statement, source, 'mine.py', signature)
