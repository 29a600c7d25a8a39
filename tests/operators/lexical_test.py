from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptrl_jax.operators import lexicon as lexicon_lib
from promptrl_jax.operators.lexical import (
  LexicalConfig,
  mutate,
  replaceable_words,
)
from promptrl_jax.operators.spans import protected_spans

ALWAYS = LexicalConfig(probability=1.0)
STATEMENT = (
  'Write a function to find the largest number in the given list of integers.'
)
HUMANEVAL = '''\
def below_zero(operations: list[int]) -> bool:
    """Given a list of operations, check  if the balance falls below zero.

    Return True then. The list may be empty.
    >>> below_zero([1, 2, 3])
    False
    >>> below_zero([1, 2, -4, 5])  # the largest number
    True
    """
'''
FRAGMENTS = [
  *(w for w, _ in sorted(lexicon_lib.load_embedded().groups)),
  *('Write', 'LIST', 'Given', 'Newman', 'sum_list', 'sum(', 'numbers', 'found'),
  *('the', 'a', 'to', 'of', '  ', '\n', '\n\n', '\t', '.', ',', ' "list" '),
  *('`list`', '\n>>> sum(list)\n', '\n    list = [1]\n', '3', 'list.sort', '-'),
  *('\n```\nlist\n```\n', "'", '[', ']', '"', 'é', "user's", '\r\n'),
]
texts = st.lists(
  st.tuples(st.sampled_from(FRAGMENTS), st.sampled_from([' ', ' ', '', '  '])),
  max_size=25,
).map(lambda pairs: ''.join(a + b for a, b in pairs))


def options(text, word, config=LexicalConfig(), protected=()):
  for found in replaceable_words(text, config, protected):
    if text[found.start : found.end] == word:
      return found.options
  return ()


@given(texts, st.integers(0, 9))
def test_probability_zero_is_the_identity(text, seed):
  config = LexicalConfig(probability=0.0)
  assert mutate(text, random.Random(seed), config) == text


@given(texts, st.integers(0, 9))
def test_everything_but_replaced_words_is_kept_byte_for_byte(text, seed):
  mutated = mutate(text, random.Random(seed), ALWAYS)
  words = r'[A-Za-z]+'
  assert re.sub(words, 'w', mutated) == re.sub(words, 'w', text)
  pairs = zip(re.findall(words, text), re.findall(words, mutated), strict=True)
  lexicon = lexicon_lib.load_embedded()
  for before, after in pairs:
    if before != after:
      assert before.lower() not in lexicon.stop
      assert before.isupper() == after.isupper() or len(before) == 1
      assert before[0].isupper() == after[0].isupper()


def test_only_open_class_words_change_at_probability_one():
  closed = lexicon_lib.load_embedded().stop
  text = ' list '.join(sorted(closed))
  mutated = mutate(text, random.Random(0), ALWAYS).split()
  assert mutated != text.split()
  for before, after in zip(text.split(), mutated, strict=True):
    assert before == after or before == 'list'


@given(texts)
def test_no_replaceable_word_touches_a_protected_span(text):
  spans = protected_spans(text, ['sum', 'list'])
  for word in replaceable_words(text, ALWAYS, ['sum', 'list']):
    assert all(word.end <= a or b <= word.start for a, b in spans)
    assert text[word.start : word.end] not in ('sum', 'list')
    assert text[word.start : word.end] not in word.options


def test_same_seed_gives_the_same_text_and_seeds_differ():
  mutants = [mutate(STATEMENT, random.Random(s)) for s in range(20)]
  assert mutants == [mutate(STATEMENT, random.Random(s)) for s in range(20)]
  assert len(set(mutants)) > 10


def test_share_of_replaced_words_is_the_probability():
  text = ' '.join([STATEMENT] * 200)
  found = replaceable_words(text)
  mutant = mutate(text, random.Random(0), LexicalConfig(probability=0.25))
  changed = sum(
    a != b for a, b in zip(text.split(), mutant.split(), strict=True)
  )
  assert len(found) == 200 * 7
  assert changed / len(found) == pytest.approx(0.25, abs=0.04)


def test_cap_keeps_the_closest_options():
  every = options(STATEMENT, 'find')
  assert len(every) > 3
  capped = options(STATEMENT, 'find', LexicalConfig(max_candidates=3))
  assert capped == every[:3]
  assert set(capped[:2]) == {'determine', 'identify'}
  assert (
    mutate(STATEMENT, random.Random(0), LexicalConfig(1.0, max_candidates=0))
    == STATEMENT
  )


def test_threshold_is_effective_and_above_one_replaces_nothing():
  loose = options(STATEMENT, 'find')
  close = options(STATEMENT, 'find', LexicalConfig(similarity_threshold=0.9))
  assert set(close) < set(loose)
  config = LexicalConfig(1.0, similarity_threshold=1.01)
  assert mutate(STATEMENT, random.Random(0), config) == STATEMENT


def test_doctest_and_indentation_of_a_docstring_survive():
  mutated = mutate(HUMANEVAL, random.Random(0), ALWAYS)
  before, after = HUMANEVAL.split('\n'), mutated.split('\n')
  assert len(before) == len(after)
  assert before[:1] + before[4:] == after[:1] + after[4:]
  assert before[1] != after[1] and before[3] != after[3]
  assert after[1].startswith('    """Given a ') and '  if ' in after[1]


@pytest.mark.parametrize(
  ('text', 'word', 'expected'),
  [
    ('the elements', 'elements', {'items', 'entries', 'members'}),
    ('by finding the sum', 'finding', {'determining', 'computing'}),
    ('it was located', 'located', {'found'}),
    ('Remove the item', 'Remove', {'Delete', 'Drop'}),
    ('REMOVE the item', 'REMOVE', {'DELETE', 'DROP'}),
    ('the indices of x', 'indices', {'positions'}),
    ('it contains x', 'contains', {'includes', 'holds'}),
  ],
)
def test_replacement_keeps_form_and_case(text, word, expected):
  assert expected <= set(options(text, word))


@pytest.mark.parametrize(
  ('text', 'word', 'excluded'),
  [
    ('the number of ways', 'number', 'value'),
    ('in order to sort', 'order', 'sort'),
    ('the sum of it', 'sum', 'add'),
    ('Given a list', 'Given', 'Provided'),
    ('a list', 'list', 'array'),
    ('an element', 'element', 'member'),
    ('at least', 'least', 'smallest'),
    ('a prime number', 'number', 'value'),
    ('the list comprehension', 'list', 'array'),
  ],
)
def test_context_rules_out_wrong_senses_and_articles(text, word, excluded):
  assert excluded not in options(text, word)


def test_word_that_is_noun_and_verb_is_read_in_its_clause():
  assert 'Tally' in options('Count the words', 'Count')
  assert options('return the count', 'count') == ()
  assert 'total' in options('the sum of it', 'sum')
  assert 'order' in options('to sort the list', 'sort')
  assert options('the bubble sort', 'sort') == ()


@pytest.mark.parametrize(
  'text',
  [
    'The Largest Number of Smith',
    'sum(list) list_sum list2 listSum math.sum',
    'list-sum list/sum @list #list x=list',
    'list[0] and list.sort',
    'x "the largest number" y',
    'assert largest(list) == number',
  ],
)
def test_names_code_and_quotations_are_not_words(text):
  assert not list(replaceable_words(text, ALWAYS))


def test_protected_names_stay_and_other_words_do_not():
  text = 'Find the largest total of totals.'
  assert options(text, 'total') != ()
  assert options(text, 'total', protected=['total']) == ()
  assert options(text, 'totals', protected=['total']) != ()


@pytest.mark.parametrize(
  ('settings', 'message'),
  [
    ({'probability': 1.5}, 'probability is 1.5'),
    ({'probability': float('nan')}, 'probability is nan'),
    ({'max_candidates': -1}, 'max_candidates is -1'),
    ({'synonyms': 'fasttext'}, "synonyms is 'fasttext'"),
    ({'wordnet_path': 'x'}, "wordnet_path is 'x'; it needs synonyms="),
    ({'embedding': 'x'}, "embedding is 'x'; it needs synonyms="),
  ],
)
def test_bad_settings_are_refused(settings, message):
  with pytest.raises(ValueError, match=message):
    LexicalConfig(**settings)
