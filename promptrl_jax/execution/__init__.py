"""Running untrusted programs against tests, in processes of their own."""

from promptrl_jax.execution.layers import Layers
from promptrl_jax.execution.limits import Limits
from promptrl_jax.execution.pool import ExecutionPool, TooWeakError
from promptrl_jax.execution.program import Program, ProgramResult, TestResult

__all__ = [
  'ExecutionPool',
  'Layers',
  'Limits',
  'Program',
  'ProgramResult',
  'TestResult',
  'TooWeakError',
]
