"""The table of rewards."""

import numpy as np
import pytest

from promptrl_jax.rewards import registry
from promptrl_jax.rewards.checking import Outcome
from promptrl_jax.testing import tiny
from promptrl_jax.types import Answers, Example, Examples, Task

CODE = tiny.tasks(1)[0]
QUESTION = Task('q', 'Sum?', Answers(('4',), 'numeric'))
MANY = Task(
  'm', 'Spell.', Examples('{instruction}', (Example('', ('a b',)),) * 2)
)


@pytest.fixture
def table(monkeypatch):
  monkeypatch.setattr(registry.REWARDS, '_plugins', dict(registry.REWARDS))
  return registry.REWARDS


def test_built_in_rewards_by_hand():
  half = Outcome('failed', 0.5, (1.0, 0.0), ('a b', 'b c'))
  value = lambda name, task=MANY, **options: registry.make_reward_fn(
    name, options
  )(task, 'two words', half)
  assert value('score') == 0.5
  assert value('solved') == 0.0
  assert value('solved', share_weight=1.0, word_cost=0.1) == pytest.approx(0.3)
  assert value('solved', share_weight=0.1, word_cost=0.1) == 0.0  # not less
  assert value('em') == 0.5
  assert value('f1') == pytest.approx((1 + 0.5) / 2)
  passed = Outcome('passed', 1.0, (1.0,), '4')
  assert registry.make_reward_fn('numeric')(QUESTION, 'x', passed) == 1.0
  assert registry.make_reward_fn('solved')(CODE, 'x', passed) == 1.0
  weighed = Outcome('failed', 0.0, label_logps=(np.log([0.5, 0.25]),))
  assert registry.make_reward_fn('perplexity')(
    QUESTION, 'x', weighed
  ) == pytest.approx(-np.log(8) / 2)


def test_a_registered_reward_is_found_with_its_options(table):
  def short(task, text, outcome, *, cost=0.5):
    return outcome.score - cost * len(text)

  registry.register('short', short)
  outcome = Outcome('passed', 1.0)
  assert registry.make_reward_fn('short')(CODE, 'x', outcome) == 0.5
  reward = registry.make_reward_fn('short', {'cost': 0.25})
  assert reward(CODE, 'x', outcome) == 0.75
  with pytest.raises(ValueError, match="'short' is registered already"):
    registry.register('short', short)


@pytest.mark.parametrize(
  'function',
  [
    lambda task, text: 0.0,
    lambda pairs: [],
    lambda outcome, text, task: 0.0,
    lambda task, text, outcome, cost: 0.0,
    lambda task, text, outcome, *, cost: 0.0,
    lambda *args: 0.0,
  ],
)
def test_another_signature_is_refused_where_it_is_registered(table, function):
  with pytest.raises(ValueError, match=r'expected \(task, text, outcome\)'):
    registry.register('own', function)
  assert 'own' not in table


def test_unknown_names_and_options_list_the_known_ones():
  with pytest.raises(ValueError, match="'bleu': expected one of solved, score"):
    registry.REWARDS['bleu']
  with pytest.raises(ValueError, match="no option 'n'; expected solved_bonus"):
    registry.make_reward_fn('solved', {'n': 1})
  with pytest.raises(ValueError, match="no option 'n'; expected none"):
    registry.make_reward_fn('score', {'n': 1})


def test_rewards_that_do_not_suit_a_task_are_refused():
  with pytest.raises(ValueError, match='accuracy needs labels'):
    registry.check_task('accuracy', QUESTION)
  for name in ('em', 'perplexity'):
    with pytest.raises(ValueError, match='checked by unit tests'):
      registry.check_task(name, CODE)
  for name in ('score', 'solved'):
    for task in (CODE, QUESTION, MANY):
      registry.check_task(name, task)
