"""How much there is to gain from better prompts, before any policy is trained.

Greedy pass@1 per register, the same with the canonical statement put in place
(what a perfect rewriter of wordings would reach), pass@k of plain sampling, and
the classes of failure. Run on frozen models; published in their model card.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from promptrl_jax.evaluation import protocol as protocol_lib
from promptrl_jax.evaluation import statistics
from promptrl_jax.execution import ExecutionPool, Program
from promptrl_jax.llm.backend import Backend, Message, Request
from promptrl_jax.prompts import templates
from promptrl_jax.tasks import splits
from promptrl_jax.types import Problem, Task


def programs(
  coder: Backend,
  problems: Sequence[Problem],
  *,
  temperature: float,
  samples: int,
  max_tokens: int,
  seed: int = 0,
) -> list[list[str]]:
  """`samples` programs for each problem, from the prompt as it is."""
  prompts = [
    templates.CoderPrompt(p.statement, p.signature, p.visible_tests)
    for p in problems
    for _ in range(samples)
  ]
  requests = [
    Request(
      tuple(Message(*m) for m in templates.PLAIN.coder(prompt)),
      temperature=temperature,
      seed=seed + i,
      max_tokens=max_tokens,
    )
    for i, prompt in enumerate(prompts)
  ]
  texts = [c.text for c in coder.complete(requests)]
  codes = [
    templates.PLAIN.program(p, t) for p, t in zip(prompts, texts, strict=True)
  ]
  return [codes[i : i + samples] for i in range(0, len(codes), samples)]


def rewrite(
  rewriter: Backend, tasks: Sequence[Task], *, max_tokens: int = 64
) -> list[str]:
  """The greedy rewrite of each statement, without feedback."""
  prompts = [
    templates.RewritePrompt(task.statement, task.entry_point) for task in tasks
  ]
  requests = [
    Request(
      tuple(Message(*m) for m in templates.PLAIN.rewriter(prompt)),
      max_tokens=max_tokens,
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
  max_tokens: int = 80,
  samples: int = 16,
  k: int = 8,
  temperature: float = 0.8,
) -> dict[str, Any]:
  """All figures of the model card, JSON-ready; intervals are Wilson's, 95 %."""

  def passed(variants: Sequence[Task], temperature: float, samples: int):
    problems = [splits.reveal(t, 'visible1') for t in variants]
    drawn = programs(
      coder,
      problems,
      temperature=temperature,
      samples=samples,
      max_tokens=max_tokens,
    )
    flat = [code for codes in drawn for code in codes]
    repeated = [task for task in variants for _ in range(samples)]
    soft = protocol_lib.score(flat, repeated, 'visible1', pool)
    return drawn, (soft == 1.0).reshape(len(variants), samples)

  direct, solved = passed(tasks, 0.0, 1)
  canonical = [dataclasses.replace(t, statement=t.canonical) for t in tasks]
  _, solved_canonical = passed(canonical, 0.0, 1)
  rewrites = rewrite(rewriter, tasks)
  exact = np.array(
    [r == t.canonical for r, t in zip(rewrites, tasks, strict=True)]
  )
  rewritten = [
    dataclasses.replace(t, statement=r)
    for t, r in zip(tasks, rewrites, strict=True)
  ]
  _, solved_rewritten = passed(rewritten, 0.0, 1)
  _, solved_samples = passed(tasks, temperature, samples)
  counts = solved_samples.sum(axis=1)
  pass_at = {
    n: float(
      np.mean([statistics.pass_at_k(samples, int(c), n) for c in counts])
    )
    for n in (1, k)
  }
  registers = sorted({task.register for task in tasks})
  return {
    'problems': len(tasks),
    'direct': _share(solved[:, 0]),
    'direct_by_register': {
      name: _share(solved[[t.register == name for t in tasks], 0])
      for name in registers
    },
    'rewritten': _share(solved_rewritten[:, 0]),
    'rewritten_exact': _share(exact),
    'canonical_substituted': _share(solved_canonical[:, 0]),
    'sampling': {
      'temperature': temperature,
      'samples': samples,
      'pass@1': pass_at[1],
      f'pass@{k}': pass_at[k],
      'gain': pass_at[k] - pass_at[1],
    },
    'failures': _failures([codes[0] for codes in direct], tasks, pool),
  }


def _share(passed: np.ndarray) -> dict[str, Any]:
  low, high = statistics.wilson_interval(int(passed.sum()), passed.size)
  return {'mean': float(passed.mean()), 'low': low, 'high': high}


def _failures(
  codes: Sequence[str], tasks: Sequence[Task], pool: ExecutionPool
) -> dict[str, int]:
  """Class of the first failure of each program that fails its hidden tests."""
  results = pool.run(
    [
      Program(
        code=code,
        tests=splits.hidden_tests(task, 'visible1'),
        setup=task.setup,
        entry_point=task.entry_point,
      )
      for code, task in zip(codes, tasks, strict=True)
    ]
  )
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
