"""An environment over tiny tasks with scripted models and a real pool."""

import re

import pytest

from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.envs.editing.env import EditingEnv
from promptrl_jax.tasks import splits
from promptrl_jax.testing import tiny
from promptrl_jax.testing.scripted import ScriptedBackend
from tests.settings_split import split


def write_program(request):
  """Adds the number that the statement names, if it says "add"."""
  prompt = request.messages[-1].content
  if 'wrong:' in prompt:
    return '\n  return x + 3'
  found = re.search(r'add (\d+)', prompt)
  return f'\n  return x + {found.group(1)}' if found else '\n  return y'


def rewrite(request):
  return f' Rewritten {len(request.messages[-1].content)} to add 2 to a number.'


@pytest.fixture
def make_env(pool):
  def make(coder=write_program, rewriter=rewrite, **settings):
    ask, rest = split(settings)
    return EditingEnv(
      ScriptedBackend(coder),
      ScriptedBackend(rewriter),
      pool,
      EditingConfig(**rest),
      ask,
    )

  return make


@pytest.fixture
def problems():
  """Problems whose statement the scripted coder cannot read."""
  return [
    splits.reveal(
      type(task)(**{**vars(task), 'statement': f'Raise it by {k}, number.'}),
      'visible1',
    )
    for k, task in enumerate(tiny.tasks(8, 'test'))
  ]
