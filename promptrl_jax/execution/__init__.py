"""Runs untrusted programs in confined processes: verdicts, values, output."""

from promptrl_jax.execution.call import Call, CallResult, ExpressionResult
from promptrl_jax.execution.layers import Layers
from promptrl_jax.execution.limits import Limits
from promptrl_jax.execution.pool import (
  ExecutionPool,
  SystemFailure,
  TooWeakError,
)
from promptrl_jax.execution.program import Program, ProgramResult, TestResult

__all__ = [
  'Call',
  'CallResult',
  'ExecutionPool',
  'ExpressionResult',
  'Layers',
  'Limits',
  'Program',
  'ProgramResult',
  'SystemFailure',
  'TestResult',
  'TooWeakError',
]
