"""The figures of the model card, for scripted models of known abilities."""

import dataclasses
import re

import pytest

from promptrl_jax.evaluation import headroom
from promptrl_jax.tasks import splits
from promptrl_jax.testing import tiny
from promptrl_jax.testing.scripted import ScriptedBackend

# The coder solves the four canonical statements and not the four noisy ones.
CANONICAL = [
  dataclasses.replace(t, register='canonical', canonical=t.statement)
  for t in tiny.tasks(4, 'test')
]
NOISY = [
  dataclasses.replace(
    t,
    task_id=f'{t.task_id}/noisy',
    statement=f'Hello! Please raise it by {i}, thanks.',
    register='noisy',
  )
  for i, t in enumerate(CANONICAL)
]
TASKS = [*CANONICAL, *NOISY]


def code(request):
  """Solves the canonical wording, and one in four samples of the noisy one."""
  prompt = request.messages[-1].content
  if found := re.search(r'add (\d+)', prompt):
    return f'\n  return x + {found.group(1)}'
  number = re.search(r'by (\d+)', prompt)
  if request.temperature and request.seed % 4 == 0 and number:
    return f'\n  return x + {number.group(1)}'
  return '\n  return y'


def rewrite(request):
  """Restores the canonical wording of two of the four noisy statements."""
  number = re.search(r'(?:by|add) (\d+)', request.messages[-1].content)
  assert number
  if 'raise' in request.messages[-1].content and int(number.group(1)) > 1:
    return ' Write a function to mumble.'
  return f' Write a function to add {number.group(1)} to a number.'


@pytest.fixture(scope='module')
def figures(pool):
  return headroom.measure(
    ScriptedBackend(code),
    ScriptedBackend(rewrite),
    TASKS,
    pool,
    samples=8,
    k=4,
  )


def test_direct_is_greedy_on_the_statements_as_they_are(figures):
  assert figures['problems'] == 8
  assert figures['direct']['mean'] == 0.5
  assert figures['direct']['low'] < 0.5 < figures['direct']['high']
  by_register = figures['direct_by_register']
  assert {k: v['mean'] for k, v in by_register.items()} == {
    'canonical': 1.0,
    'noisy': 0.0,
  }


def test_the_canonical_statement_is_the_upper_bound_of_rewriting(figures):
  assert figures['canonical_substituted']['mean'] == 1.0
  assert figures['rewritten']['mean'] == 0.75
  assert figures['rewritten_exact']['mean'] == 0.75


def test_pass_at_k_is_that_of_the_samples(figures):
  # Two of eight samples of a noisy statement are right: pass@4 is
  # 1 - C(6, 4) / C(8, 4).
  noisy = {1: 2 / 8, 4: 1 - 15 / 70}
  sampling = figures['sampling']
  assert sampling['pass@1'] == pytest.approx((1 + noisy[1]) / 2)
  assert sampling['pass@4'] == pytest.approx((1 + noisy[4]) / 2)
  assert sampling['gain'] == pytest.approx((noisy[4] - noisy[1]) / 2)


def test_failures_are_counted_by_what_was_raised(figures):
  assert figures['failures'] == {'NameError': 4}


def test_failing_the_visible_test_alone_is_no_failure(pool):
  codes = ['def add(x): return x if x > 1 else 7']
  assert headroom._failures(codes, CANONICAL[:1], pool) == {}


def test_failures_of_other_kinds_have_names_too(pool):
  codes = ['def add(x): return 7', 'def add(x) return x', '']
  failures = headroom._failures(codes, CANONICAL[:3], pool)
  assert failures == {'failed': 1, 'syntax_error': 1, 'no_code': 1}


def test_every_sample_has_a_different_seed():
  coder = ScriptedBackend(code)
  problems = [splits.reveal(t, 'visible1') for t in TASKS]
  drawn = headroom.programs(
    coder, problems, temperature=0.8, samples=3, max_tokens=9
  )
  assert [len(codes) for codes in drawn] == [3] * 8
  (requests,) = coder.batches
  assert len({r.seed for r in requests}) == 24
  assert {r.max_tokens for r in requests} == {9}
