"""Edits that turned a failure into a pass, from the trace of any experiment.

In an episode, a program failed for one wording of a statement and another one
passed for a later wording: a rewriter may learn to write the second when it is
shown the first.

  trace.jsonl --read_trace--> rows --find--> edits --keep_true--> --to_chats-->
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from promptrl_jax.execution import ExecutionPool, Program
from promptrl_jax.prompts import feedback as feedback_lib
from promptrl_jax.prompts import templates
from promptrl_jax.prompts.template import function_name
from promptrl_jax.rewards import guards
from promptrl_jax.tasks import splits
from promptrl_jax.training.supervised.chat import Chat
from promptrl_jax.types import Task

_FIELDS = {'task_id': str, 'step': int, 'visible_passed': bool, 'feedback': str}
_EPISODE = ('strategy', 'protocol', 'budget', 'seed', 'row', 'task_id')
FEEDBACK = ('with', 'without', 'both')
KEEP_AS = ('copy', 'nothing')


@dataclasses.dataclass(frozen=True)
class Edit:
  """A wording that failed and a later one that passed.

  Attributes:
    function_name: the function that the statement is about.
    before: statement for which the program failed.
    feedback: feedback on that program.
    after: statement for which a program passed the visible tests.
    code: the program that passed, or '' if all tests have been run.
  """

  task_id: str
  function_name: str
  before: str
  feedback: str
  after: str
  code: str


def read_trace(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
  """The rows of a `trace.jsonl`.

  Raises:
    FileNotFoundError: the file does not exist.
    ValueError: a line is no row of a trace; names file, line and field.
  """
  if not os.path.isfile(path):
    raise FileNotFoundError(
      f'no trace at {os.fspath(path)}: expected the trace.jsonl of a workdir'
    )
  with open(path, encoding='utf-8') as file:
    for number, line in enumerate(file, 1):
      where = f'{os.fspath(path)}:{number}'
      try:
        row = json.loads(line)
      except ValueError as error:
        raise ValueError(f'{where}: no JSON ({error}): {line[:60]!r}') from None
      _check(row, where)
      yield row


def _check(row: Any, where: str) -> None:
  if not isinstance(row, dict):
    raise ValueError(f'{where}: expected an object, got {type(row).__name__}')
  for field, kind in _FIELDS.items():
    if not isinstance(row.get(field), kind):
      raise ValueError(
        f'{where}: field {field!r} must be {kind.__name__}, got '
        f'{row.get(field)!r}: is this the trace of an experiment?'
      )
  prompt = row.get('prompt')
  fields = ('statement', 'signature', 'attempt')
  if prompt is not None and not (
    isinstance(prompt, dict)
    and all(isinstance(prompt.get(field), str) for field in fields)
  ):
    raise ValueError(
      f'{where}: field "prompt" must be null or have the texts '
      f'{", ".join(fields)}, got {prompt!r}'
    )


def find(rows: Iterable[Mapping[str, Any]]) -> list[Edit]:
  """All distinct edits of one trace, in its order.

  A wording that failed before it passed did so by another sample, which is no
  success of the edit; nor is a repair, which was shown a program. If an episode
  that rewrites first passes a task that another episode failed as it was
  worded, that rewrite is an edit.
  """
  episodes: dict[tuple, list[Mapping[str, Any]]] = {}
  failed: dict[str, Mapping[str, Any]] = {}  # As it was worded, by task.
  edits: dict[Edit, None] = {}
  for row in rows:
    key = tuple(row.get(name) for name in _EPISODE)
    earlier = episodes.setdefault(key, [])
    if earlier and row['step'] <= earlier[-1]['step']:
      earlier.clear()  # Another run was appended to the file.
    if row.get('prompt') is not None:
      if row['step'] == 0 and row.get('action') == 'keep':
        failed[row['task_id']] = row
      rewrites_first = row['step'] == 0 and row.get('action') == 'semantic'
      if rewrites_first and row['task_id'] in failed:
        earlier.append(failed[row['task_id']])
      edits |= dict.fromkeys(_edits_to(row, earlier))
      earlier.append(row)
  return list(edits)


def _edits_to(
  row: Mapping[str, Any], earlier: Sequence[Mapping[str, Any]]
) -> Iterator[Edit]:
  prompt = row['prompt']
  after = prompt['statement']
  if not row['visible_passed'] or prompt['attempt']:
    return
  if any(e['prompt']['statement'] == after for e in earlier):
    return
  for failed in earlier:
    if not failed['visible_passed'] and not failed['prompt']['attempt']:
      yield _edit(row, failed['prompt']['statement'], failed['feedback'])


def find_kept(rows: Iterable[Mapping[str, Any]]) -> list[Edit]:
  """Statements that need no edit, as edits that change nothing.

  Without them a rewriter learns to change everything, and spoils what was clear
  from the start.
  """
  kept: dict[Edit, None] = {}
  for row in rows:
    # The first step of an episode that asks for the statement as it is.
    asked = row['step'] == 0 and row.get('action') in ('keep', 'resample')
    if asked and row['visible_passed'] and row.get('prompt') is not None:
      kept[_edit(row, before=row['prompt']['statement'], feedback='')] = None
  return list(kept)


def _edit(row: Mapping[str, Any], before: str, feedback: str) -> Edit:
  """Returns the edit that led to the prompt of a row."""
  return Edit(
    task_id=row['task_id'],
    function_name=function_name(row['prompt']['signature']),
    before=before,
    feedback=feedback,
    after=row['prompt']['statement'],
    code=row.get('code') or '',
  )


def keep_true(
  edits: Sequence[Edit],
  tasks: Sequence[Task],
  pool: ExecutionPool,
  *,
  protocol: str = 'visible1',
) -> list[Edit]:
  """Edits of `tasks` whose program passes all tests, and that have no flag.

  A trace holds results of visible tests alone, those of `protocol`, which a
  wrong program may pass. Hidden tests may be used for training tasks only.

  Raises:
    ValueError: a task is not of the training split.
  """
  problems = {t.task_id: splits.reveal_for_training(t, protocol) for t in tasks}
  by_id = {task.task_id: task for task in tasks}
  mine = [(e, by_id[e.task_id]) for e in edits if e.task_id in by_id]
  bounds = guards.GuardsConfig()
  kept = [
    (edit, task)
    for edit, task in mine
    if not guards.flag(
      edit.after, task, problems[task.task_id].visible_tests, bounds
    )
  ]
  results = pool.run(
    [
      Program(
        code=edit.code,
        tests=task.tests,
        setup=task.setup,
        entry_point=task.entry_point,
      )
      for edit, task in kept
    ]
  )
  return [edit for (edit, _), r in zip(kept, results, strict=True) if r.passed]


def from_rewrites(
  tasks: Sequence[Task], solving: Sequence[Sequence[str]]
) -> list[Edit]:
  """Edits of failed tasks, from rewritten statements that solve each."""
  return [
    Edit(
      task.task_id,
      task.entry_point,
      before=task.statement,
      feedback=task.feedback,
      after=text,
      code='',
    )
    for task, statements in zip(tasks, solving, strict=True)
    for text in statements
  ]


def to_chats(
  edits: Sequence[Edit],
  feedback: str = 'both',
  template: str = 'plain',
  keep_as: str = 'copy',
) -> dict[Chat, str]:
  """Returns distinct requests and replies to learn from, with task ids.

  Args:
    edits: from `find` or `keep_true`.
    feedback: whether requests show the feedback on the failed program: `with`,
      `without` (as a rewriter is asked before the first program), or `both`,
      each as a request of its own.
    template: how requests are written; see `prompts.templates`.
    keep_as: what is written where nothing is to be changed: `copy`, the
      statement again, or `nothing`, which leaves it as it is and can be learned
      from few examples.

  Raises:
    ValueError: `feedback`, `template` or `keep_as` is not known.
  """
  if keep_as not in KEEP_AS:
    raise ValueError(f'keep_as {keep_as!r}: expected one of {KEEP_AS}')
  if feedback not in FEEDBACK:
    raise ValueError(f'feedback {feedback!r}: expected one of {FEEDBACK}')
  if template not in templates.TEMPLATES:
    raise ValueError(
      f'template {template!r}: expected one of {sorted(templates.TEMPLATES)}'
    )
  write = templates.TEMPLATES[template].rewriter
  shown = {'with': (True,), 'without': (False,), 'both': (False, True)}
  chats: dict[Chat, str] = {}
  for edit in edits:
    for show in shown[feedback]:
      said = feedback_lib.summarize_feedback(edit.feedback) if show else ''
      prompt = templates.RewritePrompt(edit.before, edit.function_name, said)
      reply = to_reply(edit.after, template)
      if edit.after == edit.before and keep_as == 'nothing':
        reply = ''
      chats.setdefault(Chat(write(prompt), reply), edit.task_id)
  return chats


def to_reply(statement: str, template: str) -> str:
  """Returns what `Template.rewritten` reads as the statement."""
  return f'{templates.TEMPLATES[template].rewrite_prefix} {statement}'
