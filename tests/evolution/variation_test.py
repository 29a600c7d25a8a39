"""How sections are mutated, crossed, merged and guided."""

import collections

import numpy as np
import pytest

from promptrl_jax.evolution import edits, variation
from promptrl_jax.evolution.hints import Anneal, Hint
from promptrl_jax.evolution.rewording import RewordingConfig, SectionWriter
from promptrl_jax.evolution.variation import SectionEdit
from promptrl_jax.operators.lexical import LexicalConfig
from promptrl_jax.prompts import wording
from promptrl_jax.prompts.genome import PromptGenome
from promptrl_jax.testing.instructed import InstructedBackend
from tests.evolution.genomes import ONE, TWO, refuse, rng, shout

HINT = Hint('use bullets', 'format')


def test_no_section_is_mutated_at_rate_0_and_each_at_rate_1():
  assert variation.mutate_genome(ONE, shout, 0.0, rng=rng(0)) == ONE
  mutated = variation.mutate_genome(ONE, shout, 1.0, rng=rng(0))
  assert dict(mutated.sections) == {
    'role': 'a tutor!',
    'tone': '',
    'format': 'lists!',
  }
  empty = PromptGenome()
  assert variation.mutate_genome(empty, shout, 1.0, rng=rng(0)) == empty


def test_sections_are_mutated_as_often_as_the_rate_says():
  counts = collections.Counter()
  for seed in range(1000):
    mutated = variation.mutate_genome(ONE, shout, 0.3, rng=rng(seed))
    counts.update(n for n in ONE.filled if '!' in mutated.sections[n])
  assert all(250 < counts[name] < 350 for name in ONE.filled)


def test_a_crossover_at_rate_1_is_the_first_parent_and_at_rate_0_the_second():
  assert variation.crossover_genomes(ONE, TWO, 1.0, rng=rng(0)) == ONE
  second = variation.crossover_genomes(ONE, TWO, 0.0, rng=rng(0))
  assert second.sections == TWO.sections


def test_each_section_of_a_crossover_is_that_of_one_parent():
  counts = collections.Counter()
  for seed in range(1000):
    child = variation.crossover_genomes(ONE, TWO, 0.5, rng=rng(seed))
    for name in ('role', 'tone', 'format', 'limits'):
      text = child.sections.get(name)
      assert text in {ONE.sections.get(name), TWO.sections.get(name)}
      counts[name] += text == ONE.sections.get(name)
  assert all(450 < count < 550 for count in counts.values())


def test_a_merge_asks_where_parents_differ():
  draft = variation.draw_merge(ONE, TWO.with_section('tone', 'kind'), rng(0))
  asked = [(e.section, e.text, e.other) for e in draft.edits]
  assert asked == [
    ('role', 'a tutor', 'a judge'),
    ('format', 'lists', 'prose'),
  ]
  (child,) = variation.carry_out([draft], edits.lexical())
  assert dict(child.sections) == {
    'role': 'a tutor\na judge',
    'tone': 'kind',
    'format': 'lists\nprose',
    'limits': 'none',
  }
  same = variation.draw_merge(ONE, ONE, rng(0))
  assert not same.edits and same.genome == ONE


@pytest.mark.parametrize('strength', [0.0, 0.3, 0.8, 1.0])
def test_a_hint_is_followed_with_the_probability_of_its_strength(strength):
  followed = 0
  for seed in range(1000):
    child = variation.guided_mutation(
      ONE, HINT, edits.lexical(), strength, rng=rng(seed)
    )
    if child != ONE:
      assert child == ONE.with_section('format', 'lists\nuse bullets')
      followed += 1
  if strength in (0.0, 1.0):
    assert followed == 1000 * strength
  assert abs(followed / 1000 - strength) <= 0.05


def test_a_strength_is_annealed():
  anneal = Anneal(1.0, 0.2, 4)
  strengths = [anneal(generation) for generation in range(6)]
  assert np.allclose(strengths, [1, 0.8, 0.6, 0.4, 0.2, 0.2])
  assert Anneal(1.0, 0.2, 0)(0) == 0.2
  with pytest.raises(ValueError, match='end=1.5: expected a probability'):
    Anneal(1.0, 1.5)


def test_a_hint_stands_in_its_section_once():
  edit = SectionEdit('format', 'lists\n', hint='use bullets')
  assert edits.follow(edit) == 'lists\nuse bullets'
  again = SectionEdit('format', edits.follow(edit), hint='use bullets')
  assert edits.follow(again) == 'lists\nuse bullets'
  assert edits.follow(SectionEdit('tone', '', hint='be kind')) == 'be kind'


def test_synonyms_are_drawn_by_the_seed_of_an_edit():
  edit_fn = edits.lexical(LexicalConfig(probability=1.0))
  text = 'Return the largest number of the list.'
  drawn = edit_fn([SectionEdit('role', text, seed=s) for s in range(20)])
  assert text not in drawn and len(set(drawn)) > 1
  assert drawn == edit_fn(
    [SectionEdit('role', text, seed=s) for s in range(20)]
  )


def test_wordings_are_drawn_from_a_bank():
  bank = {'tone': ['be kind', 'be strict and brief', 'be playful']}
  edit_fn = edits.choose_from(bank)
  drawn = edit_fn([SectionEdit('tone', 'be kind', seed=s) for s in range(30)])
  assert set(drawn) == {'be strict and brief', 'be playful'}
  hints = [
    SectionEdit('tone', 'be kind', hint='Brief answers, please!'),
    SectionEdit('tone', 'be kind', hint='cite sources'),
    SectionEdit('role', 'a tutor', hint='cite sources'),
    SectionEdit('role', 'a tutor'),
  ]
  assert edit_fn(hints) == [
    'be strict and brief',
    'be kind\ncite sources',
    'a tutor\ncite sources',
    'a tutor',
  ]


def test_all_edits_are_made_in_one_call():
  calls = []
  drafts = [variation.draw_mutation(ONE, 1.0, rng(s)) for s in range(3)]
  variation.carry_out(drafts, lambda e: calls.append(len(e)) or refuse(e))
  assert calls == [6]
  untouched = variation.Draft(ONE)
  assert variation.carry_out([untouched], None) == [ONE]  # Nothing is asked.
  with pytest.raises(ValueError, match='returned 0 texts: expected 2, one for'):
    variation.carry_out(drafts[:1], lambda e: [])


@pytest.mark.parametrize('rate', [-0.1, 1.1, float('nan')])
def test_what_is_no_probability_is_refused(rate):
  with pytest.raises(ValueError, match='expected a probability in 0..1'):
    variation.mutate_genome(ONE, shout, rate, rng=rng(0))
  with pytest.raises(ValueError, match='expected a probability in 0..1'):
    variation.crossover_genomes(ONE, TWO, rate, rng=rng(0))
  with pytest.raises(ValueError, match='expected a probability in 0..1'):
    variation.guided_mutation(ONE, HINT, shout, rate, rng=rng(0))


# By a model.


def reply(text):
  return lambda request, number: f'Sure! <task>{text}</task>'


EDITS = [
  SectionEdit('tone', 'Be brief.', seed=7),
  SectionEdit('tone', 'Be brief.', 'Be kind.'),
  SectionEdit('house', '', hint='Name your sources.'),
]


def test_a_model_is_asked_for_all_sections_in_one_batch():
  model = InstructedBackend(
    {
      'mutate_section': reply('Use few words.'),
      'cross_sections': reply('Be brief and kind.'),
      'guide_section': reply('Say where each fact is from.'),
    }
  )
  write = SectionWriter(model, RewordingConfig(temperature=0.5, words=20))
  assert write(EDITS) == [
    'Use few words.',
    'Be brief and kind.',
    'Say where each fact is from.',
  ]
  assert [kind for kind, _ in model.asked] == [
    *('mutate_section', 'cross_sections', 'guide_section'),
  ]
  assert len(model.batches) == 1 and write.calls == 3 and not write.refused
  mutate, cross, guide = (request for _, request in model.asked)
  assert (mutate.seed, mutate.temperature, mutate.max_tokens) == (7, 0.5, 256)
  assert 'at most 20 words' in mutate.messages[0].content
  assert mutate.messages[-1].content.startswith('tone: how it speaks')
  assert 'Second version: Be kind.' in cross.messages[-1].content
  assert guide.messages[-1].content.startswith('house\n')
  assert 'Hint: Name your sources.' in guide.messages[-1].content
  assert write([]) == [] and len(model.batches) == 1


def test_what_a_model_cannot_mean_is_refused_and_counted():
  model = InstructedBackend(
    {
      'mutate_section': lambda request, number: 'Use few words.',
      'cross_sections': reply(wording.INSTRUCTIONS['cross_sections'][:70]),
      'guide_section': reply('Name sources. ' * 40),
    },
    cut=('guide_section',),
  )
  write = SectionWriter(model)
  assert write(EDITS) == ['Be brief.', 'Be brief.', '']
  assert write.refused == {'malformed': 1, 'instruction': 1, 'cut': 1}
  model.cut = ()
  assert write(EDITS[2:]) == [''] and write.refused['overlong'] == 1
  long = SectionEdit('tone', 'word ' * 20_000)
  assert write([long]) == [long.text] and write.refused['no_room'] == 1
  assert write.calls == 4


def test_a_section_may_be_one_word_and_hold_code():
  model = InstructedBackend({'mutate_section': reply('Formal.')})
  assert SectionWriter(model)(EDITS[:1]) == ['Formal.']
  code = 'Q: add\nA:\n```python\ndef add(a, b):\n  return a + b\n```'
  model = InstructedBackend({'mutate_section': reply(code)})
  assert SectionWriter(model)([SectionEdit('examples', 'add')]) == [code]
