"""The decisions of GEPA on a recorded model, by hand-worked numbers."""

import collections
import dataclasses
import itertools

import numpy as np
import pytest

import promptrl_jax as pr
from promptrl_jax.strategies.texts import gepa, merging
from promptrl_jax.strategies.texts.pool import (
  Pool,
)
from promptrl_jax.strategies.texts.requests import (
  Evaluate,
  Proposal,
  Seen,
)
from promptrl_jax.strategies.texts.searches import until_ended
from promptrl_jax.testing.scripted import ScriptedBackend

# Scores on four examples.
TABLE = {
  'start': (0, 0, 0, 0),
  'A': (0, 1, 0, 0),
  'B': (0, 0, 1, 0),
  'C': (1, 0, 0, 1),
  'M': (1, 0, 1, 1),
  'N': (1, 1, 0, 1),
  'O': (0, 1, 1, 0),
  'L': (0, 0, 0, 0),
  'Q': (1, 1, 1, 1),
}
REPLIES = ('A', 'B', 'C', 'M', 'N', '', 'O', 'L', 'Q')
# Minibatches of seed 0, two epochs of two in a row, drawn apart from the rest.
BATCHES = [(3, 1), (2, 0), (0, 3), (1, 2), (1, 3), (0, 2), (2, 0), (3, 1)]
BETTER, NOT_BETTER = 'better on its minibatch', 'not better on its minibatch'
# Kind, parents, text, place, why, examples, sums of the parents, own sum, front
# and calls. A look costs 1 + 2 calls and 2 more if the text is taken; what is
# known of a parent is not paid again.
GOLDEN = [
  ('start', (), 'start', 0, 'the start', (), (), None, (0,), 4),
  ('reflect', (0,), 'A', 1, BETTER, (3, 1), (0,), 1, (1,), 9),
  # A is best at 0, 1, 3 and B at 0, 2, 3. B is A's child: no merge.
  ('reflect', (1,), 'B', 2, BETTER, (2, 0), (0,), 1, (1, 2), 14),
  ('reflect', (1,), 'C', 3, BETTER, (0, 3), (0,), 2, (1, 2, 3), 19),
  # B and C come from A, whose 0.25 is not above them. B is better at 2, C at 0
  # and 3, both the same at 1. M then does without B and C, not without A.
  (
    *('merge', (2, 3), 'M', 4, 'as good as its better parent'),
    *((2, 0, 1), (1, 1), 2, (1, 4), 24),
  ),
  ('reflect', (4,), 'N', None, NOT_BETTER, (1, 2), (1,), 1, (1, 4), 27),
  ('reflect', (4,), '', None, 'empty', (1, 3), (1,), None, (1, 4), 28),
  # In between M was drawn with (0, 2), where it is perfect: nothing was asked.
  ('reflect', (1,), 'O', 5, BETTER, (2, 0), (0,), 1, (4, 5), 33),
  (
    *('merge', (4, 5), 'L', None, 'worse than its better parent'),
    *((0, 1, 2), (2, 2), 0, (4, 5), 37),
  ),
  ('reflect', (4,), 'Q', 6, BETTER, (3, 1), (1,), 2, (6,), 42),
]


def recorded(replies=REPLIES):
  """A model that answers with one text after the other."""
  left = iter(replies)
  return ScriptedBackend(lambda request: f'<text>\n{next(left)}\n</text>')


def run(model, budget=60, **options):
  settings = {'minibatch': 2, 'merge_examples': 3, 'perfect': 1.0, **options}
  return pr.optimize(
    'start',
    lambda text, example: (
      TABLE[text][example],
      f'{text} at {example}',
    ),
    budget,
    model=model,
    examples=range(4),
    held_out=0.0,
    **settings,
  )


def test_the_decisions_are_those_worked_by_hand():
  model = recorded()
  result = run(model)
  drawn = [tuple(gepa.minibatch(range(4), 2, i, 0)) for i in range(8)]
  assert drawn == BATCHES
  steps = [
    (
      *(s.kind, s.parents, s.text, s.candidate, s.why, s.examples),
      *(s.before, s.after, s.front, s.calls),
    )
    for s in result.history
  ]
  assert steps == GOLDEN
  assert result.ended == 'a text is perfect on all search examples'
  assert (result.text, result.score, result.start_score) == ('Q', 1.0, 0.0)
  assert result.calls == 42 == 4 * 7 + len(REPLIES) + 2 + 3
  assert [c.parents for c in result.candidates] == [
    *((), (0,), (1,), (1,), (2, 3), (1,), (4,)),
  ]


def test_a_reflection_is_shown_its_minibatch_and_a_merge_both_texts():
  model = recorded()
  run(model)
  first, merge = model.prompts[0], model.prompts[3]
  assert '<text>\nstart\n</text>' in first
  assert '# Input 1\n3\nScore: 0\nFeedback:\nstart at 3' in first
  assert '# Input 2\n1\nScore: 0\nFeedback:\nstart at 1' in first
  assert '# Input 3' not in first
  assert '<text>\nB\n</text>' in merge and '<text>\nC\n</text>' in merge
  assert 'Score' not in merge
  seeds = [request.seed for batch in model.batches for request in batch]
  assert len(set(seeds)) == len(seeds)


@pytest.mark.parametrize('budget', range(19, 42))
def test_no_budget_is_exceeded_and_a_smaller_one_is_a_prefix(budget):
  result = run(recorded(), budget)
  assert result.calls <= budget
  assert result.history == run(recorded()).history[: len(result.history)]
  assert 'the next step could take' in result.ended


def test_without_merges_none_is_asked_for():
  model = recorded(('A', 'B', 'C', *'NOMLQ', *['Q'] * 20))
  result = run(model, merges=0)
  assert {step.kind for step in result.history} == {'start', 'reflect'}


def test_of_several_proposals_the_one_that_gains_most_is_looked_at():
  # Minibatches (3, 1) and (2, 0), both of `start`: gains of 1 and 2.
  table = {'start': (0, 0, 0, 0), 'A': (0, 1, 0, 0), 'B': (1, 0, 1, 0)}
  replies = iter(('A', 'B'))
  pool = Pool('start', validation=range(4), train=range(4), budget=14)
  search = until_ended(
    gepa.search(pool, gepa.GepaConfig(minibatch=2, proposals=2))
  )
  batches, answers = [], None
  with pytest.raises(StopIteration):
    while True:
      requests = search.send(answers)
      batches.append(requests)
      answers = [
        Seen(float(table[r.text][r.example]))
        if isinstance(r, Evaluate)
        else Proposal(next(replies))
        for r in requests
      ]
  # The start; both proposals at once; their minibatches at once; the rest of B.
  assert [len(batch) for batch in batches] == [4, 2, 4, 2]
  assert [(s.text, s.candidate, s.why) for s in pool.steps[1:]] == [
    ('A', None, 'better on its minibatch, but another one gains more'),
    ('B', 1, BETTER),
  ]
  assert pool.calls == 12


def test_examples_that_are_shown_may_be_others_than_those_that_choose():
  pool = Pool('start', validation=(2, 3), train=(0, 1), budget=100)
  config = gepa.GepaConfig(minibatch=2)
  assert gepa.price(pool, config) == 1 + 2 + 2 + 2
  search = until_ended(gepa.search(pool, config))
  first = search.send(None)
  assert [request.example for request in first] == [2, 3]
  shown = search.send([Seen(0.0)] * 2)
  assert sorted(request.example for request in shown) == [0, 1]


def test_parents_are_drawn_by_the_examples_where_they_are_best():
  draws = collections.Counter()
  for seed in range(600):
    pool = Pool('start', validation=range(4), train=range(4), budget=100)
    pool.seed = seed
    pool._add('start', (), [Seen(float(i == 0)) for i in range(4)])
    pool._add('A', (0,), [Seen(float(i > 0)) for i in range(4)])
    trials = gepa._trials(pool, gepa.GepaConfig(), 0, 0)
    draws[next(trials)[0].text] += 1
  # A fourth of 600, four standard deviations of 10.6.
  assert abs(draws['start'] - 150) < 43
  assert draws['A'] == 600 - draws['start']


@pytest.mark.parametrize(('count', 'size'), [(4, 2), (5, 2), (5, 3), (2, 3)])
def test_an_epoch_of_minibatches_has_every_example(count, size):
  per_epoch = -(-count // min(size, count))
  for epoch in range(3):
    numbers = range(epoch * per_epoch, (epoch + 1) * per_epoch)
    batches = [gepa.minibatch(range(count), size, n, 7) for n in numbers]
    assert set(itertools.chain(*batches)) == set(range(count))
    for batch in batches:
      assert len(set(batch)) == len(batch) == min(size, count)


def test_a_merge_is_decided_where_its_parents_differ():
  scores = np.array([[1, 1, 1, 0, 0.5, 0.5], [0, 0, 0, 1, 0.5, 0.5]])
  for seed in range(20):
    chosen = merging.deciding_examples(scores, 5, np.random.default_rng(seed))
    assert len(set(chosen)) == 5
    # Two of the three, the only one, both ties.
    assert len({0, 1, 2} & set(chosen)) == 2 and {3, 4, 5} <= set(chosen)
  few = merging.deciding_examples(scores[:, :2], 5, np.random.default_rng(0))
  assert sorted(few) == [0, 1]


@pytest.mark.parametrize(
  'options', [{'minibatch': 0}, {'proposals': 0}, {'merges': -1}]
)
def test_settings_without_sense_are_refused(options):
  (name,) = options
  with pytest.raises(ValueError, match=name):
    gepa.GepaConfig(**options)


def test_every_knob_changes_the_history():
  knobs = {
    'minibatch': 1,
    'proposals': 2,
    'merges': 0,
    'merge_examples': 1,
    'perfect': 0.5,
  }
  assert knobs.keys() == {f.name for f in dataclasses.fields(gepa.GepaConfig)}

  def history(**options):
    model = recorded(itertools.cycle(REPLIES))
    return run(model, **options).history, model.batches

  usual = history()
  for name, value in knobs.items():
    assert history(**{name: value}) != usual, name
