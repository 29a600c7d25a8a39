"""A request as the beginning of a file, which a model of code continues.

Worked examples are functions further up in the file; the task and its tests are
comments. A small model that was trained on code more than on conversations
solves as many tasks this way, with a quarter of the tokens: see `docs/mbpp.md`.
"""

from __future__ import annotations

import ast

from promptrl_jax.prompts import extract, parsing
from promptrl_jax.prompts.examples import WorkedExample
from promptrl_jax.prompts.template import CoderPrompt, Messages

# The role of a message that is continued as it stands, without a chat template.
TEXT = 'text'
# What begins after the function: nothing of it is wanted.
STOP = ('\ndef ', '\nclass ', '\nassert', '\nprint', '\n#', '\n```', '\nif __')
STOP += ('\n"""', "\n'''")


def coder(prompt: CoderPrompt) -> Messages:
  """The file up to the function's signature."""
  parts = [f'{_comment(prompt.instruction)}\n'] if prompt.instruction else []
  for example in reversed(prompt.examples):  # The nearest one stands last.
    parts += [*_task(example), f'{example.code}\n\n']
  parts += _task(prompt)
  parts += [_comment(f'Keep in mind: {note}') for note in prompt.notes]
  if prompt.attempt:
    said = ('This attempt is wrong:', prompt.attempt, prompt.feedback)
    # An empty comment would be continued by another one, not by a program.
    parts += [_comment(text) for text in said if text]
    parts.append(_comment('A correct program:'))
  return ((TEXT, '\n'.join([*parts, prompt.signature])),)


def program(prompt: CoderPrompt, reply: str) -> str:
  """The function, below what the examples in the file import."""
  text = f'{prompt.signature}{reply}'
  code = extract.extract_code(text, prompt.function_name)
  imports = [i for e in prompt.examples for i in _imports(e.code)]
  return '\n'.join([*dict.fromkeys(imports), code]) if code else ''


def _task(prompt: CoderPrompt | WorkedExample) -> list[str]:
  return [_comment(text) for text in (prompt.statement, *prompt.tests)]


def _comment(text: str) -> str:
  return '\n'.join(f'# {line}'.rstrip() for line in text.split('\n'))


def _imports(code: str) -> list[str]:
  statements = parsing.parse(code).body
  return [
    ast.unparse(s)
    for s in statements
    if isinstance(s, (ast.Import, ast.ImportFrom))
  ]
