"""Prompts in sections: their order, and what is rendered of them."""

import pickle

import pytest

from promptrl_jax.prompts.genome import SECTIONS, PromptGenome

GENOME = PromptGenome(
  {
    'role': 'You are a tutor.\n',
    'tone': '  ',
    'constraints': 'Use at most\n\n40 words.',
    'format': '  Use bullets.',
  },
  {'by': 'me'},
)


def test_sections_that_are_not_blank_are_joined_by_one_blank_line():
  assert GENOME.render() == (
    'You are a tutor.\n\nUse at most\n\n40 words.\n\nUse bullets.'
  )
  assert GENOME.filled == ('role', 'constraints', 'format')


def test_an_order_puts_sections_first():
  assert GENOME.render(['format', 'examples', 'role']) == (
    'Use bullets.\n\nYou are a tutor.\n\nUse at most\n\n40 words.'
  )


def test_a_genome_has_five_empty_sections_unless_it_is_told_others():
  assert tuple(PromptGenome().sections) == SECTIONS
  assert PromptGenome().render() == '' and PromptGenome({}).render() == ''


def test_a_change_makes_another_genome():
  other = GENOME.with_section('tone', 'Be kind.').with_section('hints', 'Hm.')
  assert GENOME.sections['tone'] == '  ' and 'hints' not in GENOME.sections
  assert other.filled == ('role', 'tone', 'constraints', 'format', 'hints')
  assert other.metadata == {'by': 'me'}
  with pytest.raises(TypeError):
    GENOME.sections['tone'] = 'Be kind.'
  assert pickle.loads(pickle.dumps(other)) == other


@pytest.mark.parametrize(
  ('sections', 'error', 'message'),
  [
    ({'': 'x'}, ValueError, "section name '': expected a name"),
    ({3: 'x'}, ValueError, 'section name 3: expected a name'),
    ({'tone': None}, TypeError, "section 'tone' is None: expected a string"),
  ],
)
def test_sections_that_cannot_be_rendered_are_refused(sections, error, message):
  with pytest.raises(error, match=message):
    PromptGenome(sections)
