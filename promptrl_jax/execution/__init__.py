"""Running untrusted programs against tests, in processes of their own."""

from promptrl_jax.execution.limits import Limits
from promptrl_jax.execution.pool import ExecutionPool
from promptrl_jax.execution.program import Program, ProgramResult, TestResult

__all__ = [
  'ExecutionPool',
  'Limits',
  'Program',
  'ProgramResult',
  'TestResult',
]
