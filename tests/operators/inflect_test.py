from __future__ import annotations

import pytest

from promptrl_jax.operators.inflect import analyses, inflect
from promptrl_jax.operators.lexicon import load_embedded

FORMS = [
  ('entry', 'noun', 's', 'entries'),
  ('array', 'noun', 's', 'arrays'),
  ('index', 'noun', 's', 'indices'),
  ('match', 'verb', 's', 'matches'),
  ('specify', 'verb', 's', 'specifies'),
  ('compute', 'verb', 'ing', 'computing'),
  ('drop', 'verb', 'ing', 'dropping'),
  ('occur', 'verb', 'ing', 'occurring'),
  ('group', 'verb', 'ing', 'grouping'),
  ('show', 'verb', 'ing', 'showing'),
  ('lie', 'verb', 'ing', 'lying'),
  ('split', 'verb', 'ing', 'splitting'),
  ('modify', 'verb', 'ed', 'modified'),
  ('trim', 'verb', 'ed', 'trimmed'),
  ('find', 'verb', 'ed', 'found'),
  ('give', 'verb', 'ed', 'gave'),
  ('give', 'verb', 'en', 'given'),
  ('large', 'adj', '', 'large'),
]


@pytest.mark.parametrize(('lemma', 'reading', 'form', 'word'), FORMS)
def test_form_is_made_and_recognised(lemma, reading, form, word):
  assert inflect(lemma, reading, form) == word
  assert (lemma, reading, form) in set(analyses(word))


def test_every_form_of_every_lexicon_word_is_recognised():
  for (lemma, reading), _ in load_embedded().groups.items():
    forms = {'noun': ['', 's'], 'verb': ['', 's', 'ing', 'ed', 'en']}
    for form in forms.get(reading, ['']):
      word = inflect(lemma, reading, form)
      assert (lemma, reading) in {a[:2] for a in analyses(word)}, word


def test_unknown_form_is_refused():
  with pytest.raises(ValueError, match="form is 'er'"):
    inflect('large', 'adj', 'er')
