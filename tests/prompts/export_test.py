"""Prompts as files: what is read back and sent is what was sent before."""

import json
import re

import pytest
import yaml

from promptrl_jax.llm.backend import Message, Request
from promptrl_jax.prompts import export, templates
from promptrl_jax.testing.scripted import ScriptedBackend

# What formats like to lose: ends of lines, blanks, braces, other alphabets.
HARD = (
  '  Two blanks, "quotes" \\ and a tab\t\r\n\n{{name}} {% if x %} {# no #}\n'
  'ünïcode 漢字 🦊 \u2028 \x85 \x7f \ufeff #: - & * !\n\n'
)
CHAT = (('system', HARD), ('user', 'Again: ' + HARD))
TEXT = (('text', HARD + 'def f(x):'),)


def send(messages):
  """The bytes that a model gets."""
  backend = ScriptedBackend(lambda request: '')
  backend.complete([Request(tuple(Message(*m) for m in messages))])
  return [(m.role, m.content.encode()) for m in backend.batches[0][0].messages]


def rendered(raw, values):
  """What the template language makes of a prompt: raw blocks and variables."""

  def render(text):
    parts = re.split(r'\{% raw %\}(.*?)\{% endraw %\}', text, flags=re.DOTALL)
    return ''.join(
      part
      if number % 2
      else re.sub(r'\{\{(\w+)\}\}', lambda found: values[found[1]], part)
      for number, part in enumerate(parts)
    )

  try:
    return tuple((m['role'], render(m['content'])) for m in json.loads(raw))
  except json.JSONDecodeError:
    return (('text', render(raw)),)


def test_a_text_is_the_content_alone():
  files = export.to_text({'mbpp/11': TEXT, 'chat': CHAT})
  assert files['mbpp_11.txt'].encode() == send(TEXT)[0][1]
  again = [
    (role, files[f'chat.{i}_{role}.txt'])
    for i, role in enumerate(('system', 'user'))
  ]
  assert send(again) == send(CHAT)
  assert len(files) == 3


def test_messages_of_a_chat_are_read_back_to_the_byte():
  (text,) = export.to_openai({'chat': CHAT}).values()
  read = [(m['role'], m['content']) for m in json.loads(text.encode())]
  assert send(read) == send(CHAT)


def test_a_text_that_is_continued_has_no_messages():
  with pytest.raises(ValueError, match='no conversation'):
    export.to_openai({'code': TEXT})


def test_a_configuration_of_promptfoo_is_read_back_to_the_byte():
  prompts = {'a: "b"': CHAT, 'mbpp/11': TEXT}
  (name,) = (files := export.to_promptfoo(prompts))
  assert name == 'promptfooconfig.yaml'
  config = yaml.safe_load(files[name].encode())
  assert config['providers'] == ['echo']
  assert [prompt['label'] for prompt in config['prompts']] == list(prompts)
  for prompt, messages in zip(config['prompts'], prompts.values(), strict=True):
    assert send(rendered(prompt['raw'], {})) == send(messages)


@pytest.mark.parametrize('template', ['chat', 'code', 'plain'])
def test_an_instruction_has_places_that_a_task_fills(template):
  task = {
    'statement': 'Add {{one}}.',
    'signature': 'def f(x):',
    'test': 'assert f(1) == 2',
  }
  instruction = 'Use {statement}, not {% raw %}.'
  asked = templates.TEMPLATES[template].coder(
    templates.CoderPrompt(
      task['statement'],
      task['signature'],
      (task['test'],),
      instruction=instruction,
    )
  )
  messages = export.coder_messages(template, instruction)
  assert send(export.fill(messages, task)) == send(asked)
  text = export.to_promptfoo({'found': messages})['promptfooconfig.yaml']
  config = yaml.safe_load(text)
  assert set(config['tests'][0]['vars']) == set(task)
  (prompt,) = config['prompts']
  assert send(rendered(prompt['raw'], task)) == send(asked)


def test_an_instruction_in_words_has_a_place_for_the_input():
  messages = export.instruction_messages(
    '{instruction}\n\nInput: {input}', 'Say {input} twice.'
  )
  assert export.fill(messages, {'input': 'x'}) == (
    ('user', 'Say {input} twice.\n\nInput: x'),
  )
  assert list(export.to_text({'qa': messages}).values()) == [
    'Say {input} twice.\n\nInput: {input}'
  ]


def test_the_end_of_a_raw_block_cannot_be_written():
  with pytest.raises(ValueError, match='raw block'):
    export.to_promptfoo({'odd': (('user', '{{x}} {% endraw %}'),)})


@pytest.mark.parametrize('form', list(export.FORMATS))
def test_files_are_written_in_a_format(tmp_path, form):
  paths = export.write(tmp_path / 'new', {'chat': CHAT}, form)
  expected = export.FORMATS[form]({'chat': CHAT})
  assert {path.name: path.read_bytes() for path in paths} == {
    name: text.encode() for name, text in expected.items()
  }
  with pytest.raises(ValueError, match="'yaml': expected one of text, openai"):
    export.write(tmp_path, {'chat': CHAT}, 'yaml')
