"""Each setting of the lexical mutation changes what it does.

A field that is added without a row here fails `test_every_setting_has_a_row`.
"""

import dataclasses
import random

import pytest

from promptrl_jax.operators import lexical
from promptrl_jax.operators.lexical import LexicalConfig

STATEMENT = 'Find the large list quickly, and find the largest number of it.'
CHANGES = {
  'probability': 1.0,
  'max_candidates': 1,
  'similarity_threshold': 0.9,
  'synonyms': 'wordnet',
  'wordnet_path': 'other',
  'embedding': 'shipped',
}
# Of WordNet: what is in the folder, and how its synonyms are ranked.
OF_WORDNET = ('synonyms', 'wordnet_path', 'embedding')


def test_every_setting_has_a_row():
  assert {f.name for f in dataclasses.fields(LexicalConfig)} == CHANGES.keys()


@pytest.mark.parametrize('name', [n for n in CHANGES if n not in OF_WORDNET])
def test_each_setting_changes_the_mutants(name):
  config = LexicalConfig(similarity_threshold=0.5)
  changed = dataclasses.replace(config, **{name: CHANGES[name]})

  def mutants(config):
    return [
      lexical.mutate(STATEMENT, random.Random(seed), config)
      for seed in range(5)
    ]

  assert mutants(changed) != mutants(config)


def test_each_setting_of_wordnet_changes_what_is_loaded(monkeypatch):
  asked = []
  monkeypatch.setattr(
    lexical.wordnet, 'load', lambda *where: asked.append(where)
  )
  config = LexicalConfig(synonyms='wordnet')
  lexical.load_lexicon(config)
  for name in ('wordnet_path', 'embedding'):
    lexical.load_lexicon(dataclasses.replace(config, **{name: CHANGES[name]}))
  assert asked == [('', ''), ('other', ''), ('', 'shipped')]
  assert lexical.load_lexicon(LexicalConfig()) is not None and len(asked) == 3
