"""The table of task sets, and the tasks that a config asks for.

A new task set is one file and one line of `TASK_SETS`. Code outside of the
package calls `register`, in a module that `--config.plugins` names.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
import pathlib
from collections.abc import Collection, Sequence
from typing import Any

from promptrl_jax import settings
from promptrl_jax.registry import Registry
from promptrl_jax.tasks import (
  apps,
  evalplus,
  humaneval,
  instruction_files,
  instruction_sets,
  mbpp,
  mbpp_instruction,
  mbpp_sanitized,
  overlaps,
  questions,
  splits,
)
from promptrl_jax.tasks.minicode import instruct, practice
from promptrl_jax.tasks.minicode.suite import SUITE
from promptrl_jax.tasks.minicode2 import suite as minicode2
from promptrl_jax.tasks.task_set import DataConfig, TaskSet
from promptrl_jax.types import Examples, ProgramExamples, Task

_ARGUMENTS = {'load': 2, 'digest': 1, 'few_shots': 1, 'practice': 1}


def _check(name: str, plugin: TaskSet) -> None:
  """Raises ValueError for a function that takes other arguments."""
  for field, count in _ARGUMENTS.items():
    function = getattr(plugin, field)
    try:
      inspect.signature(function).bind(*range(count))
    except TypeError as error:
      raise ValueError(
        f'task set {name!r}: {field} must be a function of {count} '
        f'argument(s): {error}'
      ) from error


TASK_SETS: Registry[TaskSet] = Registry('task set', _check)
_BUILT_IN = {
  'minicode': TaskSet(
    load=lambda split, config: SUITE.load(split),
    digest=lambda config: SUITE.digest,
    # Terse statements leave out a detail, so that other problems read the same.
    statements_identify=False,
    practice=practice.values_of,
  ),
  'minicode2': TaskSet(
    load=minicode2.load,
    digest=minicode2.digest,
    options=minicode2.Options,
    # Two forms of one result, two readings of loose words, read the same.
    statements_identify=False,
  ),
  'mbpp': mbpp.TASK_SET,
  'mbpp_sanitized': mbpp_sanitized.TASK_SET,
  'mbpp_plus': evalplus.MBPP_TASK_SET,
  'humaneval': humaneval.TASK_SET,
  'humaneval_plus': evalplus.HUMANEVAL_TASK_SET,
  'apps': apps.TASK_SET,
  'mbpp_instruction': TaskSet(
    load=mbpp_instruction.load,
    digest=mbpp.TASK_SET.digest,
    options=mbpp_instruction.Options,
  ),
  'questions': TaskSet(load=questions.load, options=questions.Options),
  'instructions': TaskSet(
    load=instruction_files.load,
    digest=instruction_files.digest,
    options=instruction_files.Options,
  ),
  'minicode_instructions': TaskSet(
    load=instruct.load_part,
    digest=lambda config: SUITE.digest,
    options=instruct.Options,
    splits=('train', 'validation', 'dev', 'test'),
  ),
}
_BUILT_IN |= {
  name: instruction_sets.task_set(name) for name in instruction_sets.SETS
}
for _name, _task_set in _BUILT_IN.items():
  TASK_SETS.register(_name, _task_set)


def register(name: str, **fields: Any) -> None:
  """Adds a task set with the fields of `TaskSet`; `load` is required.

  Raises:
    ValueError: the name is taken, a field is missing or not known, or a
      function does not take the arguments that it will get.
  """
  known = [field.name for field in dataclasses.fields(TaskSet)]
  unknown = fields.keys() - set(known)
  if unknown or 'load' not in fields:
    raise ValueError(
      f'task set {name!r} has the fields {", ".join(fields) or "none"}: '
      f'expected load and perhaps others of {", ".join(known)}'
    )
  TASK_SETS.register(name, TaskSet(**fields))


def task_set(config: DataConfig) -> TaskSet:
  """Returns the task set that a config names; ValueError for another name."""
  return TASK_SETS[config.name]


def load_tasks(
  config: DataConfig, only: Collection[str] = ()
) -> dict[str, tuple[Task, ...]]:
  """Loads the tasks of a set by split, without overlaps in training.

  Training tasks that are worded like a validation or test task are left out;
  that depends on the whole splits and not on their limits. So are, with a
  warning, tasks of which the protocol would hide no test. `only` names the
  splits to load; empty for all of the set, which are `train`, `validation` and
  `test` and perhaps others.

  Raises:
    ValueError: a setting is not known, two splits share a task, or the protocol
      hides no test of any task of a split.
    DataError: the data is missing or malformed.
  """
  if config.protocol not in splits.PROTOCOLS:
    raise ValueError(
      f'data.protocol={config.protocol!r}: expected one of {splits.PROTOCOLS}'
    )
  chosen_set = task_set(config)
  config = with_options(config, chosen_set)
  parts = {
    split: tuple(
      dataclasses.replace(task, split=split)
      for task in chosen_set.load(split, config)
    )
    for split in only or chosen_set.splits
  }
  left_out = _overlapping(config, chosen_set, parts)
  if train := parts.get('train'):
    if config.train_tasks:
      train = _chosen(train, config.train_tasks)
    parts['train'] = tuple(t for t in train if t.task_id not in left_out)
  parts = {
    split: _with_hidden(split, tasks, config) for split, tasks in parts.items()
  }
  limits = {'train': config.train_limit, 'validation': config.validation_limit}
  return {
    split: tasks[: limits.get(split, config.test_limit) or None]
    for split, tasks in parts.items()
  }


def describe(config: DataConfig) -> str:
  """Returns name and hash of the task set, for the header of a report."""
  chosen_set = task_set(config)
  return f'{config.name} {chosen_set.digest(with_options(config, chosen_set))}'


def with_options(config: DataConfig, chosen_set: TaskSet) -> DataConfig:
  """Returns the config with its options as an instance of their class."""
  options = settings.from_mapping(
    chosen_set.options, config.options, 'data.options'
  )
  return dataclasses.replace(config, options=options)


def _overlapping(
  config: DataConfig,
  chosen_set: TaskSet,
  parts: dict[str, tuple[Task, ...]],
) -> frozenset[str]:
  """Ids of training tasks that are worded like validation or test tasks.

  Splits of instructions have the same statements and other inputs.

  Raises:
    ValueError: two splits share a task, or an input of an instruction.
  """
  tasks = [task for part in parts.values() for task in part]
  kinds = Examples, ProgramExamples
  if any(isinstance(task.checker, kinds) for task in tasks):
    instruction_files.check(parts)
    return frozenset()
  few_shots = chosen_set.few_shots(config)
  report = overlaps.check_no_leak(
    {'few-shots': few_shots, **parts}, chosen_set.statements_identify
  )
  left_out = report.train_ids()
  if report.overlaps:
    logging.getLogger(__name__).warning(
      '%s: %d pairs of tasks of different splits are worded alike; %d training '
      'tasks are left out (`python -m promptrl_jax.tools.leaks --data=%s '
      '--path=%s` lists them)',
      config.name,
      len(report.overlaps),
      len(left_out),
      config.name,
      config.path,
    )
  return left_out


def _with_hidden(
  split: str, tasks: tuple[Task, ...], config: DataConfig
) -> tuple[Task, ...]:
  """The tasks of which the protocol hides a test, with a warning for others."""
  reasons = {
    task.task_id: reason
    for task in tasks
    if (reason := splits.nothing_hidden(task.checker, config.protocol))
  }
  if not reasons:
    return tasks
  task_id, reason = next(iter(reasons.items()))
  if len(reasons) == len(tasks):
    raise ValueError(
      f'data.protocol={config.protocol!r} does not fit {config.name}: each '
      f'task of {split} ({task_id}, ...) {reason}'
    )
  logging.getLogger(__name__).warning(
    '%s: %d of %d tasks of %s are left out (%s): each %s',
    config.name,
    len(reasons),
    len(tasks),
    split,
    ', '.join(reasons),
    reason,
  )
  return tuple(t for t in tasks if t.task_id not in reasons)


def _chosen(tasks: Sequence[Task], path: str) -> tuple[Task, ...]:
  """The tasks whose ids a file names, one on each line."""
  ids = pathlib.Path(path).read_text(encoding='utf-8').split()
  unknown = set(ids) - {task.task_id for task in tasks}
  if unknown or not ids:
    raise ValueError(
      f'data.train_tasks={path}: expected ids of training problems, one '
      f'on each line, got {f"{min(unknown)!r}" if unknown else "an empty file"}'
    )
  return tuple(task for task in tasks if task.task_id in set(ids))
