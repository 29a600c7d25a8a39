"""Prompts as files for other programs, byte for byte what a model was sent.

  text       one file per message, its content and nothing else
  openai     the list of messages of a chat request, as JSON
  promptfoo  a configuration with all prompts, as YAML

An instruction is exported inside the request that carries it, with a place for
what changes from input to input.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from promptrl_jax.files import write_atomically
from promptrl_jax.prompts import templates
from promptrl_jax.prompts.code_template import TEXT
from promptrl_jax.prompts.templates import Messages

# Characters for private use mark a place until a format writes it in its way.
_OPEN, _CLOSE = '\ue000', '\ue001'
_PLACE = re.compile(f'{_OPEN}(\\w+){_CLOSE}')
# What the template language of promptfoo would read as its own.
_THEIRS = re.compile(r'\{\{|\{%|\{#')
_NAME = re.compile(r'[^\w.-]+')


def place(name: str) -> str:
  """Returns the text that stands for an input until it is known."""
  return f'{_OPEN}{name}{_CLOSE}'


def fill(messages: Messages, values: Mapping[str, str]) -> Messages:
  """Puts inputs into the places of messages."""
  return tuple(
    (role, _PLACE.sub(lambda found: values[found[1]], content))
    for role, content in messages
  )


def coder_messages(template: str, instruction: str) -> Messages:
  """A request for a program, with places `statement`, `signature`, `test`."""
  prompt = templates.CoderPrompt(
    place('statement'),
    place('signature'),
    (place('test'),),
    instruction=instruction,
  )
  return templates.TEMPLATES[template].coder(prompt)


def instruction_messages(template: str, instruction: str) -> Messages:
  """A request with an instruction for one input, which has the place `input`.

  `template` has `{instruction}` and `{input}` in it.
  """
  values = {'instruction': instruction, 'input': place('input')}
  content = re.sub(
    r'\{(instruction|input)\}', lambda found: values[found[1]], template
  )
  return (('user', content),)


def to_text(prompts: Mapping[str, Messages]) -> dict[str, str]:
  """Returns the content of each message by the name of its file.

  A place is written `{name}`.
  """
  files = {}
  for name, messages in prompts.items():
    for number, (role, content) in enumerate(messages):
      mark = f'.{number}_{role}' if len(messages) > 1 else ''
      files[f'{_file(name)}{mark}.txt'] = _braced(content)
  return files


def to_openai(prompts: Mapping[str, Messages]) -> dict[str, str]:
  """Returns the messages of each prompt as JSON by the name of its file.

  A place is written `{name}`.

  Raises:
    ValueError: a text that is continued as it stands has no messages.
  """
  files = {}
  for name, messages in prompts.items():
    if messages[0][0] == TEXT:
      raise ValueError(
        f'{name} is a text that a model continues and no conversation: '
        'expected the format text or promptfoo'
      )
    content = [{'role': r, 'content': _braced(c)} for r, c in messages]
    text = json.dumps(content, ensure_ascii=False, indent=2)
    files[f'{_file(name)}.json'] = f'{text}\n'
  return files


def to_promptfoo(prompts: Mapping[str, Messages]) -> dict[str, str]:
  """Returns a configuration of promptfoo with all prompts.

  A place is a variable. Its provider `echo` answers with the prompt, so that
  `promptfoo eval` shows what would be sent until another one is named.
  """
  lines = [
    '# promptfoo eval -c promptfooconfig.yaml',
    "description: 'prompts that promptrl_jax found'",
    'providers:',
    '  - echo  # replies with the prompt; name the model here',
    'prompts:',
  ]
  names: dict[str, None] = {}
  for name, messages in prompts.items():
    for _, content in messages:
      names |= dict.fromkeys(_PLACE.findall(content))
    lines.append(f'  - label: {_quoted(name)}')
    lines.append(f'    raw: {_quoted(_raw(messages))}')
  lines.append('tests:')
  values = ''.join(f'      {name}: ""\n' for name in names)
  lines.append(f'  - vars:\n{values}' if names else '  - vars: {}\n')
  return {'promptfooconfig.yaml': '\n'.join(lines)}


FORMATS = {'text': to_text, 'openai': to_openai, 'promptfoo': to_promptfoo}


def write(
  folder: str | os.PathLike[str],
  prompts: Mapping[str, Messages],
  form: str = 'text',
) -> list[pathlib.Path]:
  """Writes prompts as files; returns their paths.

  Args:
    folder: created if missing.
    prompts: messages by name.
    form: one of `FORMATS`.

  Raises:
    ValueError: there is no such format, or it cannot hold a prompt.
  """
  if form not in FORMATS:
    raise ValueError(f'format {form!r}: expected one of {", ".join(FORMATS)}')
  files = FORMATS[form](prompts)
  return [
    write_atomically(pathlib.Path(folder, name), text.encode())
    for name, text in files.items()
  ]


def _raw(messages: Messages) -> str:
  """A prompt of promptfoo: JSON of a conversation, or a text as it stands."""
  if messages[0][0] == TEXT:
    return _escaped(messages[0][1])
  content: list[dict[str, Any]] = [
    {'role': role, 'content': _escaped(text)} for role, text in messages
  ]
  return json.dumps(content, ensure_ascii=False)


def _escaped(content: str) -> str:
  """Keeps promptfoo from reading anything but places as variables."""
  parts = []
  for number, part in enumerate(_PLACE.split(content)):
    if number % 2:
      part = f'{{{{{part}}}}}'
    elif _THEIRS.search(part):
      if re.search(r'\{%-?\s*endraw', part):
        raise ValueError(
          f'{part[:80]!r} has the end of a raw block of promptfoo in it: '
          'expected another format'
        )
      part = f'{{% raw %}}{part}{{% endraw %}}'
    parts.append(part)
  return ''.join(parts)


def _braced(content: str) -> str:
  return _PLACE.sub(r'{\1}', content)


def _quoted(text: str) -> str:
  """A double-quoted scalar of YAML in ASCII: its line breaks are escaped."""
  parts = (
    f'\\U{ord(c):08x}' if ord(c) > 0xFFFF else json.dumps(c)[1:-1] for c in text
  )
  return f'"{"".join(parts)}"'


def _file(name: str) -> str:
  """A name of a file: task ids have slashes."""
  return _NAME.sub('_', name).strip('._') or 'prompt'
