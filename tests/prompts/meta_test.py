import pytest

from promptrl_jax.prompts import meta, templates

SAY = 'Say {input} twice.'


def test_each_family_renders_its_text_with_the_instruction_once():
  for family in ('generic_a', 'generic_b', 'minicode'):
    prompt = meta.MetaConfig(family)
    ((role, content),) = meta.render(prompt, SAY)
    assert role == 'user'
    assert content == prompt.request.replace('{instruction}', SAY)
    assert content.count(SAY) == 1


def test_the_generic_families_differ_and_end_as_in_the_paper():
  a, b = (
    meta.render(meta.MetaConfig(f), SAY)[0][1]
    for f in ('generic_a', 'generic_b')
  )
  assert a != b
  assert a.endswith(f'\nInstruction: {SAY}')
  assert b.endswith(f'\nInstruction: {SAY}')


def test_the_embedded_rewriter_reads_what_it_was_trained_on():
  plain = templates.PLAIN.rewriter(templates.RewritePrompt(SAY, 'solve'))
  assert meta.render(meta.MetaConfig('minicode'), SAY) == plain


def test_a_custom_text_is_used_as_it_is():
  custom = meta.MetaConfig('custom', 'Shorter: {instruction} {braces}')
  assert meta.render(custom, SAY)[0][1] == (
    'Shorter: Say {input} twice. {braces}'
  )


@pytest.mark.parametrize('text', ['', 'no place', '{instruction}' * 2])
def test_a_custom_text_needs_one_place_for_the_instruction(text):
  with pytest.raises(ValueError, match='expected {instruction} in it, once'):
    meta.MetaConfig('custom', text)


def test_unknown_families_and_stray_texts_are_refused():
  with pytest.raises(ValueError, match="'fancy': expected generic_a"):
    meta.MetaConfig('fancy')
  with pytest.raises(ValueError, match='needs family "custom"'):
    meta.MetaConfig('generic_a', 'text {instruction}')


@pytest.mark.parametrize(
  ('reply', 'text'),
  [
    (' Add them. ', 'Add them.'),
    ('Instruction: Add them.', 'Add them.'),
    ('New instruction: "Add them."', 'Add them.'),
    ('```text\nAdd them.\nThen stop.\n```', 'Add them.\nThen stop.'),
    ('"yes" or "no"', '"yes" or "no"'),
    ('\u201cAdd them.\u201d', 'Add them.'),
    ('"', '"'),
  ],
)
def test_a_reply_is_read_without_what_is_put_around_it(reply, text):
  assert meta.read(reply) == text


@pytest.mark.parametrize('reply', ['', ' \n', 'Instruction:', '""'])
def test_a_reply_without_an_instruction_is_read_as_empty(reply):
  assert meta.read(reply) == ''
