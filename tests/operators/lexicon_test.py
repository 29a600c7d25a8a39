from __future__ import annotations

import pytest

from promptrl_jax.operators.lexicon import load_embedded, parse


def test_embedded_lexicon_has_a_vocabulary_and_no_stop_word_in_it():
  lexicon = load_embedded()
  words = {word for word, _ in lexicon.groups}
  assert len(words) > 350
  assert not words & lexicon.stop
  targets = {
    target
    for senses in lexicon.groups.values()
    for sense in senses.values()
    for target in sense
  }
  assert not targets & (lexicon.stop - {'least'})
  assert all(w.isalpha() and w.islower() for w in words | targets)


def test_every_pair_states_a_similarity_of_the_scale():
  for senses in load_embedded().groups.values():
    for sense in senses.values():
      assert set(sense.values()) <= {0.5, 0.7, 0.9}


def test_condition_chooses_the_sense():
  lexicon = load_embedded()
  assert 'count' in lexicon.synonyms('number', 'noun', following='of')
  assert 'count' not in lexicon.synonyms('number', 'noun', following='in')
  assert 'provided' in lexicon.synonyms('given', 'adj', previous='the')
  assert not lexicon.synonyms('given', 'adj', previous='')


def test_groups_are_symmetric_arrows_are_not_and_the_closest_pair_counts():
  lexicon = parse(
    'noun 0.9: a b\nnoun 0.5: a b c\nnoun 0.7: c -> d\nnoun 0.9: c b'
  )
  assert lexicon.synonyms('a', 'noun') == {'b': 0.9, 'c': 0.5}
  assert lexicon.synonyms('c', 'noun') == {'a': 0.5, 'b': 0.9, 'd': 0.7}
  assert lexicon.readings('d') == frozenset()


@pytest.mark.parametrize(
  'line', ['noun: a b', 'noun 0.9:', 'noun 0.9 a b', 'pronoun 0.9: a b', 'x']
)
def test_line_that_is_not_understood_is_named(line):
  with pytest.raises(ValueError, match=f'line 2 .*{line}'):
    parse(f'stop: a\n{line}')
