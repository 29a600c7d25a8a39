"""The built-in rewards of a rewrite; `registry.py` names them.

Each takes the task that was rewritten, the rewrite, and the outcome of the
reply that it led to.
"""

from __future__ import annotations

import numpy as np

from promptrl_jax.rewards import checking
from promptrl_jax.rewards import text as text_lib
from promptrl_jax.rewards.checking import Outcome
from promptrl_jax.types import (
  Answers,
  Examples,
  ProgramExamples,
  Task,
  UnitTests,
)


def score(task: Task, text: str, outcome: Outcome) -> float:
  """The checker's score: share of tests that pass, or the mean metric."""
  del task, text
  return outcome.score or 0.0


def solved(
  task: Task,
  text: str,
  outcome: Outcome,
  *,
  solved_bonus: float = 1.0,
  share_weight: float = 0.0,
  word_cost: float = 0.0,
) -> float:
  """A bonus if the reply is right, and the weighted score, minus a word cost.

  The reward is at least 0, so that a flagged rewrite is never the better one.
  """
  del task
  value = solved_bonus * outcome.passed
  value += share_weight * (outcome.score or 0.0)
  return max(0.0, value - word_cost * len(text.split()))


def mean_metric(name: str, task: Task, text: str, outcome: Outcome) -> float:
  """Mean over the answers of one of `rewards.text.METRICS`."""
  del text
  checker = words_checker(task)
  reply = outcome.reply
  texts = (reply,) if isinstance(reply, str) else reply
  values = [
    text_lib.METRICS[name](answer, outputs, checker.labels)
    for answer, outputs in zip(
      texts, checking.right_answers(checker), strict=True
    )
  ]
  return float(np.mean(values))


def perplexity(task: Task, text: str, outcome: Outcome) -> float:
  """Mean of minus the log-perplexity of the right answers."""
  return float(
    np.mean([text_lib.perplexity_reward(row) for row in outcome.label_logps])
  )


def perplexity_f1(task: Task, text: str, outcome: Outcome) -> float:
  """The sum of both, PRewrite's best reward for question answering."""
  f1 = mean_metric('f1', task, text, outcome)
  return perplexity(task, text, outcome) + f1


def likelihood(
  task: Task, text: str, outcome: Outcome, *, solved_bonus: float = 1.0
) -> float:
  """Minus the log-perplexity of the reference program, and a bonus if solved.

  It tells apart rewrites that all fail: those that name a wrong number leave
  the right program less probable. Yu et al., 2025, "RLPR: Extrapolating RLVR to
  General Domains without Verifiers" (https://arxiv.org/abs/2506.18254), rewards
  by the probability of a reference likewise.
  """
  return perplexity(task, text, outcome) + solved_bonus * outcome.passed


def words_checker(task: Task) -> Answers | Examples:
  """Returns the checker of a task; raises ValueError if it runs programs."""
  if isinstance(task.checker, (UnitTests, ProgramExamples)):
    raise ValueError(
      f'task {task.task_id} is checked by unit tests and has no right answers: '
      'choose the reward solved or score'
    )
  return task.checker
