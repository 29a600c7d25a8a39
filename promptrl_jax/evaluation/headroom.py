"""The gain that better prompts could bring, measured before training a policy.

Frozen models are measured: greedy pass@1 per register, greedy pass@1 with each
statement replaced by its canonical wording (which a perfect rewriter would
reach), pass@k of sampling from the unchanged prompt, and the classes of
failure. The figures are published in the model card.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from promptrl_jax.evaluation import protocol as protocol_lib
from promptrl_jax.evaluation import statistics
from promptrl_jax.execution import ExecutionPool
from promptrl_jax.llm.backend import Backend, Message, Request
from promptrl_jax.prompts import templates
from promptrl_jax.tasks import splits
from promptrl_jax.types import Problem, Task

_TEMPERATURE = 0.8  # of the samples for pass@k


def programs(
  coder: Backend,
  problems: Sequence[Problem],
  *,
  temperature: float,
  samples: int,
  max_tokens: int,
) -> list[list[str]]:
  """Samples programs for each problem from its unchanged prompt.

  Request i has the seed i; a temperature of 0 is greedy.
  """
  prompts = [
    templates.CoderPrompt(p.statement, p.signature, p.visible_tests)
    for p in problems
    for _ in range(samples)
  ]
  requests = [
    Request(
      tuple(Message(*m) for m in templates.PLAIN.coder(prompt)),
      temperature=temperature,
      seed=i,
      max_tokens=max_tokens,
    )
    for i, prompt in enumerate(prompts)
  ]
  texts = [c.text for c in coder.complete(requests)]
  codes = [
    templates.PLAIN.program(p, t) for p, t in zip(prompts, texts, strict=True)
  ]
  return [codes[i : i + samples] for i in range(0, len(codes), samples)]


def rewrite(rewriter: Backend, tasks: Sequence[Task]) -> list[str]:
  """Returns the greedy rewrite of each statement, asked without feedback."""
  prompts = [
    templates.RewritePrompt(task.statement, task.entry_point) for task in tasks
  ]
  requests = [
    Request(
      tuple(Message(*m) for m in templates.PLAIN.rewriter(prompt)),
      max_tokens=64,
    )
    for prompt in prompts
  ]
  return [
    templates.PLAIN.rewritten(prompt, answer.text)
    for prompt, answer in zip(prompts, rewriter.complete(requests), strict=True)
  ]


def measure(
  coder: Backend,
  rewriter: Backend,
  tasks: Sequence[Task],
  pool: ExecutionPool,
  *,
  samples: int = 16,
  k: int = 8,
) -> dict[str, Any]:
  """Returns all figures of the model card, ready for JSON.

  Both models are frozen; one writes the programs, the other one rewrites the
  statements. Intervals are Wilson's at 95 %. All tasks are solved under
  `visible1`.

  Args:
    tasks: tasks with `canonical` and `register`.
    samples: programs sampled per task for pass@k.
    k: the k of pass@k; at most `samples`.

  Returns:
    The number of `problems`; the pass rates `direct`, `direct_by_register`,
    `rewritten` and `canonical_substituted` of greedy programs;
    `rewritten_exact`, the share of rewrites that equal the canonical statement;
    `sampling` with pass@1 and pass@k; and `failures`, counts by class.

  Raises:
    SystemFailure: a program could not be judged.
  """
  solve = functools.partial(_solve, coder, pool)
  codes, solved = solve(tasks)
  canonical = [task.canonical for task in tasks]
  _, solved_canonical = solve(_with_statements(tasks, canonical))
  rewrites = rewrite(rewriter, tasks)
  exact = np.array([r == c for r, c in zip(rewrites, canonical, strict=True)])
  _, solved_rewritten = solve(_with_statements(tasks, rewrites))
  _, solved_samples = solve(tasks, temperature=_TEMPERATURE, samples=samples)
  registers = sorted({task.register for task in tasks})
  return {
    'problems': len(tasks),
    'direct': _share(solved),
    'direct_by_register': {
      name: _share(solved[[t.register == name for t in tasks]])
      for name in registers
    },
    'rewritten': _share(solved_rewritten),
    'rewritten_exact': _share(exact),
    'canonical_substituted': _share(solved_canonical),
    'sampling': {
      'temperature': _TEMPERATURE,
      'samples': samples,
      **_pass_at_k(solved_samples, k),
    },
    'failures': _failures([first for first, *_ in codes], tasks, pool),
  }


def _solve(
  coder: Backend,
  pool: ExecutionPool,
  tasks: Sequence[Task],
  *,
  temperature: float = 0.0,
  samples: int = 1,
) -> tuple[list[list[str]], np.ndarray]:
  """Samples programs for each task and runs them on its hidden tests.

  Returns:
    The programs of each task, and which of them pass, bool [tasks, samples].
  """
  codes = programs(
    coder,
    [splits.reveal(task, 'visible1') for task in tasks],
    temperature=temperature,
    samples=samples,
    max_tokens=80,
  )
  soft, _ = protocol_lib.score(
    [code for task_codes in codes for code in task_codes],
    [task for task in tasks for _ in range(samples)],
    'visible1',
    pool,
  )
  return codes, (soft == 1.0).reshape(len(tasks), samples)


def _with_statements(
  tasks: Sequence[Task], statements: Sequence[str]
) -> list[Task]:
  return [
    dataclasses.replace(task, statement=statement)
    for task, statement in zip(tasks, statements, strict=True)
  ]


def _pass_at_k(passed: np.ndarray, k: int) -> dict[str, float]:
  """Returns pass@1, pass@k and their difference from bool [tasks, samples]."""
  samples = passed.shape[1]
  counts = passed.sum(axis=1)
  first, kth = (
    float(np.mean([statistics.pass_at_k(samples, int(c), n) for c in counts]))
    for n in (1, k)
  )
  return {'pass@1': first, f'pass@{k}': kth, 'gain': kth - first}


def _share(passed: np.ndarray) -> dict[str, Any]:
  """Returns the share of true values with its Wilson interval."""
  low, high = statistics.wilson_interval(int(passed.sum()), passed.size)
  return {'mean': float(passed.mean()), 'low': low, 'high': high}


def _failures(
  codes: Sequence[str], tasks: Sequence[Task], pool: ExecutionPool
) -> dict[str, int]:
  """Counts the failing programs by the class of their first failure."""
  results = pool.run(protocol_lib.hidden_programs(codes, tasks, 'visible1'))
  classes: collections.Counter[str] = collections.Counter()
  for result in results:
    if result.passed:
      continue
    first = next((t for t in result.tests if t.status != 'passed'), None)
    if first is None or result.status in ('syntax_error', 'no_code'):
      classes[result.status] += 1
    elif first.status == 'error':
      classes[first.error_type] += 1
    else:
      classes[first.status] += 1
  return dict(classes.most_common())
