"""Candidates by operator, counted by hand."""

import pytest

from promptrl_jax.evaluation import diversity


def candidate(statement, operator, *parents, refused=''):
  return {
    'statement': statement,
    'operator': operator,
    'parents': parents,
    'refused': refused,
  }


def generation(candidates, fitness, row=0, seed=0, budget=8):
  return {
    'strategy': 'epic',
    'protocol': 'visible1',
    'budget': budget,
    'seed': seed,
    'row': row,
    'action': 'generation',
    'candidates': candidates,
    'fitness': fitness,
  }


FIRST = generation(
  [
    candidate('start', 'original'),
    candidate('a', 'elaborate', 'start'),  # distinct, improved
    candidate('start', 'elaborate', 'start', refused='cut'),
    candidate('b', 'elaborate', 'start'),  # distinct, no better
    candidate('a', 'elaborate', 'start'),  # the same again
  ],
  [0.4, 0.6, 0.4, 0.4, 0.6],
)
SECOND = generation(
  [
    candidate('a', 'survive', 'a'),
    candidate('ab', 'cross', 'a', 'b'),  # better than one parent alone
    candidate('ba', 'cross', 'b', 'a'),  # better than both
    candidate('b', 'cross', 'b', 'b'),  # was there in the first
  ],
  [0.6, 0.5, 0.8, 0.4],
)
CLOSED = {
  **{key: SECOND[key] for key in ('strategy', 'protocol', 'budget')},
  **{'seed': 0, 'row': 0, 'action': 'close', 'statement': 'ba'},
}


def test_what_the_operators_of_a_population_bring():
  rows = diversity.Operators([FIRST, {'action': 'meet'}, SECOND, CLOSED]).rows()
  shared = {
    **{'strategy': 'epic', 'protocol': 'visible1', 'budget': 8},
    'populations': 1,
  }
  assert rows == [
    shared
    | {'operator': 'elaborate', 'proposed': 4, 'refused': {'cut': 1}}
    | {'distinct': 2, 'improved': 1, 'kept': 2},
    shared
    | {'operator': 'cross', 'proposed': 3, 'refused': {}}
    | {'distinct': 2, 'improved': 1, 'kept': 1},
  ]


def test_populations_know_nothing_of_each_other():
  same = FIRST['candidates'], FIRST['fitness']
  others = [generation(*same, row=1), generation(*same, seed=1)]
  larger = generation(*same, budget=16)
  small, large = diversity.Operators([FIRST, *others, larger]).rows()
  assert (small['budget'], small['populations']) == (8, 3)
  assert (small['proposed'], small['distinct'], small['improved']) == (12, 6, 3)
  assert small['refused'] == {'cut': 3}
  assert (large['budget'], large['populations']) == (16, 1)
  assert large['proposed'] == 4


def step(kind, text='', why='', candidate=None, before=(), after=None):
  return {
    **{'kind': kind, 'text': text, 'why': why, 'candidate': candidate},
    **{'before': before, 'after': after},
  }


def test_what_the_operators_of_a_search_bring():
  history = [
    step('start', 'x', 'the start', 0),
    step('reflect', 'y', 'better on its minibatch', 1, (1.0,), 2.0),
    step('reflect', 'z', 'not better on its minibatch', None, (2.0,), 2.0),
    step('reflect', '', 'empty', None, (2.0,)),
    step('reflect', '', 'a text that was there before', None, (2.0,)),
    step('reflect', 'w', 'evaluate raised KeyError', None, (2.0,)),
    step('merge', 'yz', 'as good as its better parent', 2, (1.0, 3.0), 3.0),
    step('rewrite', 'v', 'scored', 3),  # Compared with nothing.
  ]
  reflect, merge, rewrite = diversity.of_search('gepa', 'visible1', history)
  assert reflect['proposed'] == 5
  assert reflect['refused'] == {
    'empty': 1,
    'a text that was there before': 1,
    'could not be scored': 1,
  }
  assert (reflect['distinct'], reflect['improved']) == (2, 1)
  assert (merge['proposed'], merge['distinct'], merge['improved']) == (1, 1, 0)
  assert (rewrite['distinct'], rewrite['improved']) == (1, 0)
  assert reflect['budget'] is None and reflect['populations'] == 1
  assert [row['kept'] for row in (reflect, merge, rewrite)] == [1, 1, 1]


def test_the_table_names_the_reasons_most_frequent_first():
  refused = {'cut | off': 1, 'empty': 2}
  (row,) = diversity.Operators(
    [generation(FIRST['candidates'], [0.0] * 5)]
  ).rows()
  lines = diversity.to_markdown([row | {'refused': refused}]).splitlines()
  assert lines[-1] == (
    '| epic | 8 | elaborate | 1 | 4 | 3 (2 empty; 1 cut \\| off) | 2 | 0 | 0 |'
  )


def test_islands_are_averaged_over_generations_problems_and_seeds():
  def numbers(candidates, distinct, jaccard):
    return {
      **{'candidates': candidates, 'distinct': distinct, 'jaccard': jaccard}
    }

  first = FIRST | {'islands': [numbers(4, 3, 0.5), numbers(2, 2, 1.0)]}
  other = SECOND | {'row': 1, 'islands': [numbers(2, 2, 0.0)]}
  shared = {'strategy': 'epic', 'protocol': 'visible1', 'budget': 8}
  rows = diversity.Islands([first, {'action': 'close'}, other]).rows()
  assert rows == [
    shared | {'island': 0, 'generations': 2} | numbers(3.0, 2.5, 0.25),
    shared | {'island': 1, 'generations': 1} | numbers(2.0, 2.0, 1.0),
  ]
  table = diversity.islands_to_markdown(rows)
  assert '| epic | 8 | 1 | 2 | 3.0 | 2.5 | 0.25 |' in table


def test_the_pool_of_a_search_is_one_island_at_its_end():
  history = [
    step('start', 'a b', 'the start', 0),
    step('reflect', 'c d', 'better', 1, (1.0,), 2.0),
    step('reflect', 'e f', 'not better', None, (2.0,), 2.0),
    step('merge', 'a d', 'as good', 2, (1.0, 3.0), 3.0),
  ]
  (row,) = diversity.pool_of_search('gepa', 'visible1', history)
  assert (row['candidates'], row['distinct'], row['budget']) == (3, 3, None)
  # a b | c d share nothing, the two others one word of three.
  assert row['jaccard'] == pytest.approx((1 + 2 / 3 + 2 / 3) / 3)
  assert '| gepa | search | 1 | 1 | 3.0 | 3.0 | 0.78 |' in (
    diversity.islands_to_markdown([row])
  )
