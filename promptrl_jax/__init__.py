"""Reinforcement learning that rewrites prompts, in JAX.

The public names are imported at their first use, so that `import promptrl_jax`
takes milliseconds, and a process that runs programs never imports JAX. To add a
name, write one line into `_HOMES` and the same name into the block for type
checkers below it; a test compares the two.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = '0.1.0'

# Public name -> module of this package that defines it; a module that is public
# itself stands under its own name.
_HOMES = {
  'Backend': 'llm.backend',
  'BackendConfig': 'llm.load',
  'Completion': 'llm.backend',
  'ControllerLearner': 'training.controller.learner',
  'EditingConfig': 'envs.editing.config',
  'EditingEnv': 'envs.editing.env',
  'evaluate': 'evaluation.evaluate',
  'ExecutionPool': 'execution',
  'Limits': 'execution',
  'load_backend': 'llm.load',
  'load_tasks': 'tasks.load',
  'Message': 'llm.backend',
  'Operator': 'operators',
  'optimize': 'strategies.texts.optimize',
  'Problem': 'types',
  'Program': 'execution',
  'PromptEdit': 'envs.gym',
  'Request': 'llm.backend',
  'RewriterLearner': 'training.rewriter.learner',
  'RewritingEnv': 'envs.rewriting.env',
  'rl': 'rl',
  'Run': 'training.run',
  'Sampler': 'sampling',
  'Task': 'types',
}

if TYPE_CHECKING:  # `as` marks a name as exported.
  from promptrl_jax import rl as rl
  from promptrl_jax.envs.editing.config import EditingConfig as EditingConfig
  from promptrl_jax.envs.editing.env import EditingEnv as EditingEnv
  from promptrl_jax.envs.gym import PromptEdit as PromptEdit
  from promptrl_jax.envs.rewriting.env import RewritingEnv as RewritingEnv
  from promptrl_jax.evaluation.evaluate import evaluate as evaluate
  from promptrl_jax.execution import ExecutionPool as ExecutionPool
  from promptrl_jax.execution import Limits as Limits
  from promptrl_jax.execution import Program as Program
  from promptrl_jax.llm.backend import Backend as Backend
  from promptrl_jax.llm.backend import Completion as Completion
  from promptrl_jax.llm.backend import Message as Message
  from promptrl_jax.llm.backend import Request as Request
  from promptrl_jax.llm.load import BackendConfig as BackendConfig
  from promptrl_jax.llm.load import load_backend as load_backend
  from promptrl_jax.operators import Operator as Operator
  from promptrl_jax.sampling import Sampler as Sampler
  from promptrl_jax.strategies.texts.optimize import optimize as optimize
  from promptrl_jax.tasks.load import load_tasks as load_tasks
  from promptrl_jax.training.controller.learner import (
    ControllerLearner as ControllerLearner,
  )
  from promptrl_jax.training.rewriter.learner import (
    RewriterLearner as RewriterLearner,
  )
  from promptrl_jax.training.run import Run as Run
  from promptrl_jax.types import Problem as Problem
  from promptrl_jax.types import Task as Task
else:  # A type checker that saw this would accept any name.
  __all__ = list(_HOMES)

  def __getattr__(name: str) -> Any:
    """Imports a public name at its first use (PEP 562).

    Raises:
      AttributeError: the package has no such public name.
    """
    if name not in _HOMES:
      raise AttributeError(
        f'module {__name__!r} has no attribute {name!r}; its public names are '
        f'{", ".join(_HOMES)}'
      )
    home = _HOMES[name]
    module = importlib.import_module(f'{__name__}.{home}')
    value = module if home == name else getattr(module, name)
    globals()[name] = value  # The next access does not come here.
    return value

  def __dir__() -> list[str]:
    """Lists all public names, imported or not yet."""
    return sorted({*globals(), *_HOMES})
