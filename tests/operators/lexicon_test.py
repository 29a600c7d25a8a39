from __future__ import annotations

import sys

import pytest

from promptrl_jax.operators import lexical
from promptrl_jax.operators.lexicon import WordNetLexicon, load, parse


class Sense:
  """A synset with nothing but its words."""

  def __init__(self, *names):
    self._names = names

  def lemma_names(self):
    return list(self._names)


class TinyWordNet:
  """Answers like the corpus reader of NLTK, for the verb `find`."""

  def synsets(self, lemma, pos):
    senses = [
      Sense('find', 'happen', 'come_across'),
      Sense('detect', 'find', 'Find'),
      Sense('happen', 'find'),
      Sense('see'),
    ]
    return senses if pos == 'v' and lemma in ('find', 'finds') else []


def test_embedded_lexicon_has_a_vocabulary_and_no_stop_word_in_it():
  lexicon = load('embedded')
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
  for senses in load('embedded').groups.values():
    for sense in senses.values():
      assert set(sense.values()) <= {0.5, 0.7, 0.9}


def test_condition_chooses_the_sense():
  lexicon = load('embedded')
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


def test_missing_wordnet_is_an_error_only_if_asked_for(monkeypatch):
  monkeypatch.setitem(sys.modules, 'nltk', None)
  monkeypatch.setitem(sys.modules, 'nltk.corpus', None)
  with pytest.raises(RuntimeError, match='pip install nltk'):
    load('wordnet')
  assert load('auto') is load('embedded')


def test_unknown_source_is_refused():
  with pytest.raises(ValueError, match="source is 'fasttext'"):
    load('fasttext')


def test_wordnet_synonyms_rank_by_frequency_of_the_sense():
  lexicon = WordNetLexicon(TinyWordNet())
  assert lexicon.readings('find') == {'verb'}
  assert lexicon.readings('finds') == frozenset()
  assert lexicon.synonyms('find', 'verb') == {'happen': 0.9, 'detect': 0.8}


def test_mutation_takes_wordnet_as_its_lexicon():
  config = lexical.LexicalConfig(similarity_threshold=0.85)
  [word] = lexical.replaceable_words(
    'Finding the list.', config, lexicon=WordNetLexicon(TinyWordNet())
  )
  assert word.options == ('Happening',)


def test_installed_wordnet_loads():
  pytest.importorskip('nltk')
  try:
    lexicon = load('wordnet')
  except RuntimeError:
    pytest.skip('the corpus is not installed')
  assert 'verb' in lexicon.readings('find')
