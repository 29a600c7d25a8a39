"""The tasks that a config asks for; `promptrl_jax.tasks.load` does the work."""

from __future__ import annotations

import dataclasses

from promptrl_jax.tasks import load
from promptrl_jax.tasks.task_set import DataConfig


def to_config(data) -> DataConfig:
  """The section `data` of a config, without fields of the experiment alone."""
  names = {field.name for field in dataclasses.fields(DataConfig)}
  return DataConfig(**{k: v for k, v in data.items() if k in names})


def load_tasks(data, only=()):
  """As `promptrl_jax.tasks.load.load_tasks`."""
  return load.load_tasks(to_config(data), only)


def describe(data):
  """As `promptrl_jax.tasks.load.describe`."""
  return load.describe(to_config(data))


def practice(data, task_ids):
  """Further data of the kind of these tasks; see `TaskSet.practice`."""
  return load.task_set(to_config(data)).practice(task_ids)
