"""The message formats of requests for programs and rewrites.

`PLAIN` is the format of the embedded models, which complete text, `CHAT` that
of instruction-tuned models, and `CODE` one in which a model of code continues a
file. `BASE` is for base models, which only continue texts: they are asked for
programs as in `CODE`, and for a rewrite as the next line of a text.
`TestPrompt` is for instruction-tuned models alone, see `generated_tests.py`.
"""

from __future__ import annotations

import dataclasses

from promptrl_jax.prompts import code_template, extract, rewrite
from promptrl_jax.prompts.examples import WorkedExample
from promptrl_jax.prompts.template import CoderPrompt as CoderPrompt
from promptrl_jax.prompts.template import FitsFn as FitsFn
from promptrl_jax.prompts.template import Messages as Messages
from promptrl_jax.prompts.template import (
  PromptTooLongError as PromptTooLongError,
)
from promptrl_jax.prompts.template import RewritePrompt as RewritePrompt
from promptrl_jax.prompts.template import Template as Template
from promptrl_jax.prompts.template import TestPrompt as TestPrompt
from promptrl_jax.prompts.template import fit as fit

# Characters. A shorter completion of the embedded rewriter is a fragment, such
# as a lone function name, and states no task.
_SHORTEST_REWRITE = 11


def _first_failure(feedback: str) -> str:
  """Returns the first failed test; the embedded models read one line."""
  return feedback.partition('FAILED: ')[2].split('\n', 1)[0]


def _plain_coder(prompt: CoderPrompt) -> Messages:
  parts = [prompt.instruction] if prompt.instruction else []
  for example in reversed(prompt.examples):  # The nearest one stands last.
    parts += [example.statement, *example.tests, '###', f'{example.code}\n']
  parts += [prompt.statement, *prompt.tests]
  if prompt.attempt:
    failure = _first_failure(prompt.feedback)
    parts += ['# wrong:', prompt.attempt.rstrip(), f'# {failure}']
  parts += [f'# {" ".join(note.split())}' for note in prompt.notes]
  return (('user', '\n'.join([*parts, '###', prompt.signature])),)


def _plain_program(prompt: CoderPrompt, reply: str) -> str:
  return f'{prompt.signature}{reply}'


def _plain_rewriter(prompt: RewritePrompt) -> Messages:
  failure = _first_failure(prompt.feedback)
  feedback = f'\n# {failure}' if failure else ''
  name = f'\nname: {prompt.function_name}'
  return (('user', f'{prompt.statement}{name}{feedback}\n=>'),)


def _plain_rewrite(prompt: RewritePrompt, reply: str) -> str:
  del prompt
  text = ' '.join(reply.split())
  return text if len(text) >= _SHORTEST_REWRITE else ''


PLAIN = Template(
  'plain',
  _plain_coder,
  _plain_program,
  _plain_rewriter,
  _plain_rewrite,
  lambda prompt: prompt.statement,
  instructed=False,
)

CODER_INSTRUCTION = (
  'You are an expert Python programmer. Answer with one complete Python '
  'program in a single ```python code block and nothing else.'
)
_REWRITER_SYSTEM = (
  'You rewrite programming tasks so that a code model understands them. State '
  'what the Python function takes, what it returns, and any detail that the '
  'feedback reveals. Answer with one sentence that begins '
  f'"{rewrite.PREFIX}", names the function, contains the words "Python '
  'function", and has no code.'
)


def _chat_task(prompt: CoderPrompt | WorkedExample) -> list[str]:
  parts = [prompt.statement, f'Begin with: {prompt.signature}']
  if prompt.tests:
    parts.append('It must pass:\n' + '\n'.join(prompt.tests))
  return parts


def _chat_coder(prompt: CoderPrompt) -> Messages:
  messages = [('system', prompt.instruction or CODER_INSTRUCTION)]
  for example in reversed(prompt.examples):  # The nearest one stands last.
    messages += [
      ('user', '\n\n'.join(_chat_task(example))),
      ('assistant', f'```python\n{example.code}\n```'),
    ]
  parts = _chat_task(prompt)
  if prompt.attempt:
    said = (
      f'This attempt is wrong:\n```python\n{prompt.attempt}\n```',
      prompt.feedback,
      'Give a corrected program.',
    )
    parts.append('\n'.join(text for text in said if text))
  if prompt.notes:
    notes = '\n'.join(f'- {note}' for note in prompt.notes)
    parts.append(f'Keep in mind:\n{notes}')
  return (*messages, ('user', '\n\n'.join(parts)))


def _chat_program(prompt: CoderPrompt, reply: str) -> str:
  return extract.extract_code(reply, prompt.function_name)


def _rewriter_task(prompt: RewritePrompt) -> list[str]:
  parts = [prompt.statement, f'Function name: {prompt.function_name}']
  if prompt.feedback:
    parts.append(f'Feedback on the last program: {prompt.feedback}')
  return parts


def _chat_rewriter(prompt: RewritePrompt) -> Messages:
  asked = '\n\n'.join(_rewriter_task(prompt))
  return (('system', _REWRITER_SYSTEM), ('user', asked))


# Two rewrites that show what is wanted. Without them SmolLM2 135M answers with
# programs: of 24 greedy replies none states a task, with them all do.
_REWRITES = (
  (
    RewritePrompt(
      'Write a function to find the largest number in a list.', 'largest'
    ),
    'Write a Python function largest that takes a list of numbers and returns '
    'the greatest of them.',
  ),
  (
    RewritePrompt(
      'Write a python function to count how often a character occurs in a '
      'string.',
      'count_char',
    ),
    'Write a Python function count_char that takes a string and a character '
    'and returns how many times the character is in the string.',
  ),
)


def _shown_rewriter(prompt: RewritePrompt) -> Messages:
  system, asked = _chat_rewriter(prompt)
  shown = [
    message
    for example, written in _REWRITES
    for message in (
      _chat_rewriter(example)[1],
      ('assistant', f'{rewrite.PREFIX} {written}'),
    )
  ]
  return (system, *shown, asked)


def _chat_rewrite(prompt: RewritePrompt, reply: str) -> str:
  if rewrite.validate_rewrite(reply, prompt.function_name):
    return ''
  return rewrite.extract_rewrite(reply)


def _chat_stand_in(prompt: RewritePrompt) -> str:
  return rewrite.extract_rewrite(
    rewrite.repair_rewrite(prompt.function_name, prompt.statement)
  )


CHAT = Template(
  'chat',
  _chat_coder,
  _chat_program,
  _chat_rewriter,
  _chat_rewrite,
  _chat_stand_in,
  rewrite_prefix=rewrite.PREFIX,
)
# A rewriter is asked in words, whatever the format of programs is.
CODE = Template(
  'code',
  code_template.coder,
  code_template.program,
  _shown_rewriter,
  _chat_rewrite,
  _chat_stand_in,
  code_template.STOP,
  rewrite_prefix=rewrite.PREFIX,
)


def _base_rewriter(prompt: RewritePrompt) -> Messages:
  def entry(prompt: RewritePrompt, written: str) -> str:
    lines = [' '.join(part.split()) for part in _rewriter_task(prompt)]
    return '\n'.join(
      [f'Task: {lines[0]}', *lines[1:], rewrite.PREFIX + written]
    )

  shown = [entry(example, f' {written}') for example, written in _REWRITES]
  return (('text', '\n\n'.join([*shown, entry(prompt, '')])),)


def _base_rewrite(prompt: RewritePrompt, reply: str) -> str:
  line = reply.strip().partition('\n')[0]
  return _chat_rewrite(prompt, f'{rewrite.PREFIX} {line}') if line else ''


BASE = dataclasses.replace(
  CODE,
  name='base',
  rewriter=_base_rewriter,
  read_rewrite=_base_rewrite,
  rewrite_stop=('\n',),
  rewrite_prefix='',  # It ends the request.
  instructed=False,
)
TEMPLATES = {t.name: t for t in (PLAIN, CHAT, CODE, BASE)}
