"""Checks of replies: programs by tests, words by a metric."""

import dataclasses
from concurrent.futures import Future

import pytest

from promptrl_jax.execution import ProgramResult
from promptrl_jax.rewards import checking
from promptrl_jax.tasks import splits
from promptrl_jax.testing import tiny
from promptrl_jax.types import (
  Answers,
  Example,
  Examples,
  ProgramExamples,
  Task,
)

TESTS = tiny.tasks(2)[1].checker
CAPITAL = Answers(('Lima', 'Ciudad de los Reyes'))
WORDS = Examples(
  '{instruction} {input}',
  (Example('a', ('1',)), Example('b', ('2',))),
  'numeric',
)


def test_programs_and_words_are_checked_in_one_call(pool):
  pairs = [
    (CAPITAL, 'lima '),
    (TESTS, 'def add(x):\n  return x + 1'),
    (WORDS, ('It is 1', 'none')),
    (TESTS, 'def add(x):\n  return 2'),
    (CAPITAL, 'Quito'),
  ]
  outcomes = checking.check(pairs, pool)
  assert [o.status for o in outcomes] == [
    'passed',
    'passed',
    'failed',
    'failed',
    'failed',
  ]
  assert [o.score for o in outcomes] == [1.0, 1.0, 0.5, 1 / 3, 0.0]
  assert outcomes[2].scores == (1.0, 0.0)
  assert outcomes[3].scores == (1.0, 0.0, 0.0)
  assert [t.status for t in outcomes[3].tests][:2] == ['passed', 'failed']
  assert [o.reply for o in outcomes] == [reply for _, reply in pairs]


def test_a_failure_of_the_pool_has_no_score():
  class Failing:
    def submit(self, programs):
      future = Future()
      future.set_result(ProgramResult('infra_error', None, (), message='lost'))
      return [future]

  (outcome,) = checking.check([(TESTS, 'x = 1')], Failing())
  assert outcome.score is None and not outcome.passed
  assert (outcome.status, outcome.message) == ('infra_error', 'lost')


PROGRAMS = ProgramExamples(tiny.tasks(3))


def test_a_program_for_each_task_of_an_instruction(pool):
  codes = tuple(f'def add(x):\n  return x + {k}' for k in (0, 1, 1))
  (outcome,) = checking.check([(PROGRAMS, codes)], pool)
  assert outcome.scores == (1.0, 1.0, 0.0)
  assert (outcome.status, outcome.reply) == ('failed', codes)
  assert outcome.score == pytest.approx(2 / 3)
  with pytest.raises(ValueError, match='2 programs for 3 tasks'):
    checking.check([(PROGRAMS, codes[:2])], pool)
  with pytest.raises(ValueError, match='holds no task'):
    checking.check([(ProgramExamples(()), ())], pool)


def test_one_program_that_the_pool_lost_leaves_no_score():
  class Failing:
    def submit(self, programs):
      futures = [Future() for _ in programs]
      for i, future in enumerate(futures):
        lost = ProgramResult('infra_error', None, (), message='lost')
        future.set_result(lost if i == 1 else ProgramResult('passed', 1.0, ()))
      return futures

  (outcome,) = checking.check([(PROGRAMS, ('', '', ''))], Failing())
  assert outcome.score is None and outcome.message == 'lost'


def test_what_cannot_be_checked_is_refused():
  with pytest.raises(ValueError, match='need an execution pool'):
    checking.check([(TESTS, 'x = 1')])
  with pytest.raises(ValueError, match='1 answers for 2 examples'):
    checking.check([(WORDS, ('1',))])
  with pytest.raises(ValueError, match="metric 'bleu'"):
    checking.check([(dataclasses.replace(CAPITAL, metric='bleu'), 'x')])


@pytest.mark.parametrize('checker', [CAPITAL, WORDS])
def test_the_visible_part_of_right_answers_checks_nothing(checker):
  task = Task('x/1', 'Where?', checker, 'train')
  for protocol in ('blind', 'visible1', 'visible_all'):
    problem = splits.reveal(task, protocol)
    assert not any(checking.right_answers(problem.visible))
    with pytest.raises(ValueError, match='no right answer'):
      checking.check_words(problem.visible, 'Lima')
    assert problem.reward is None
    trained = splits.reveal_for_training(task, protocol)
    assert splits.for_reward(trained) == checker
    with pytest.raises(ValueError, match='has no hidden part'):
      splits.for_reward(problem)
  assert splits.reveal(task, 'oracle').visible == checker
  assert splits.hidden(task, 'blind') == checker


def test_a_program_for_words_is_refused():
  task = Task('x/1', 'Where?', CAPITAL)
  with pytest.raises(TypeError, match='x/1 is checked by Answers'):
    _ = task.tests
  with pytest.raises(TypeError, match='x/1 is checked by Answers'):
    _ = splits.reveal(task, 'blind').signature


def test_unit_tests_are_split_by_the_protocol():
  task = tiny.tasks(1)[0]
  assert splits.visible(task, 'visible1').tests == task.tests[:1]
  assert splits.hidden(task, 'visible1').tests == task.tests[1:]
  problem = splits.reveal_for_training(task, 'visible1')
  assert splits.for_reward(problem) == task.checker
