"""One episode of prompt editing, as a generator that a runner plays.

  Decide ─operator─> edited prompt ─Ask(coder)─> program ─Execute─> verdict
    ^                                                                  │
    └───────────────── feedback, observation, reward <─────────────────┘

Training and evaluation play this same generator: training chooses operators
through `EditingEnv.step`, a strategy through the policy that it hands in.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator
from typing import Any

from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.execution.call import Call
from promptrl_jax.execution.program import ProgramResult, TestResult
from promptrl_jax.llm.ask import Tools
from promptrl_jax.llm.attempt import Ask, Execute, ExecuteJobs, Play
from promptrl_jax.llm.backend import Completion
from promptrl_jax.operators import (
  FALLBACK,
  MOST_EXAMPLES,
  OPERATORS,
  Decide,
  Episode,
  Operator,
  Question,
)
from promptrl_jax.prompts import feedback as feedback_lib
from promptrl_jax.prompts import templates
from promptrl_jax.rewards import tests as rewards
from promptrl_jax.rewards.inputs import mutated_calls

_INPUTS = 8  # that programs are compared on


def edit(
  episode: Episode,
  tools: Tools,
  config: EditingConfig,
  policy: Any = None,
  gamma: float = 1.0,
) -> Play:
  """Plays one episode, in place; returns the program that is submitted.

  `policy` chooses operators, see `Decide`; `gamma` is the learner's discount,
  for potential-based shaping of rewards.
  """
  options = {**tools.options, 'lexical': config.lexical}
  tools = dataclasses.replace(tools, options=options)
  if (library := options.get('examples')) is not None:
    episode.nearest = library.nearest(episode.problem, MOST_EXAMPLES)
  episode.tokens = tools.count_tokens(episode.statement)
  episode.first_tokens = episode.tokens
  while not episode.done:
    name = yield Decide(episode, policy)
    operator = OPERATORS[name]
    if not operator.is_open(episode):
      operator = OPERATORS[FALLBACK]
    if not config.accumulate:
      episode.undo_all()
    statement, cost = episode.statement, episode.token_cost
    question = yield from _apply(operator, episode, tools)
    _note(episode, operator, statement, question, tools)
    share, code = episode.best_share, ''
    if question is None:
      passed, prompt = share == 1.0, None
    else:
      prompt = question.prompt
      code = yield from tools.write_program(
        episode, prompt, resample=question.resample
      )
      passed = _take(episode, code, (yield Execute(code)))
      episode.terminated = episode.terminated and not tools.goes_on
      if config.sees_agreement and not episode.terminated:
        yield from _compare(episode, code)
    episode.terminated = episode.terminated or question is None
    episode.last_action = operator.name
    episode.steps += 1
    if not episode.terminated:
      spent = episode.budget_left < 1
      episode.truncated = spent or episode.steps >= config.max_steps
    if config.step_reward.kind == 'legacy':
      episode.reward = rewards.legacy_reward(passed, config.step_reward)
    else:
      episode.reward = rewards.shaped_reward(
        done=episode.done,
        share=episode.best_share,
        previous_share=share,
        calls=operator.calls,
        gamma=gamma,
        config=config.step_reward,
      )
    cost = episode.token_cost - cost  # of the rewrite and of the program
    episode.reward -= config.step_reward.scale * cost
    episode.trace.append(_trace_row(episode, operator, prompt))
  return episode.best_code


def _apply(
  operator: Operator, episode: Episode, tools: Tools
) -> Generator[Ask, Completion, Question | None]:
  """Applies an operator, whether its function is a generator or not."""
  question = operator.apply(episode, tools)
  if isinstance(question, Generator):
    question = yield from question
  if question is not None and not isinstance(question, Question):
    raise TypeError(
      f'operator {operator.name!r} returned {type(question).__name__}: '
      'expected a Question, or None to end the episode'
    )
  return question


def _note(
  episode: Episode,
  operator: Operator,
  before: str,
  question: Question | None,
  tools: Tools,
) -> None:
  """Notes what the next observation shows of an operator's use."""
  episode.uses[operator.name] += 1
  if episode.statement != before:
    episode.edited_by = operator.name if episode.edited else ''
    episode.tokens = tools.count_tokens(episode.statement)
  if question is not None and not question.resample:
    prompt = question.prompt
    episode.asked_greedily.add(
      (prompt.statement, prompt.attempt, len(prompt.examples))
    )


def _take(episode: Episode, code: str, verdict: ProgramResult) -> bool:
  """Updates the episode; returns whether the program passes every test."""
  count = len(episode.problem.visible_tests)
  visible = verdict.tests[:count]
  passes = [test.status == 'passed' for test in verdict.tests]
  share = sum(passes) / len(passes) if passes else 0.0
  failures = [test for test in visible if test.status != 'passed']
  first = failures[0] if failures else TestResult('passed')
  if not count:
    episode.status = 'unknown'
  elif verdict.status in ('syntax_error', 'no_code'):
    episode.status = verdict.status
  else:
    episode.status = first.status
  episode.error_type = first.error_type
  episode.visible = tuple(passes[:count])
  episode.feedback = feedback_lib.feedback_text(visible)
  episode.feedbacks.append(episode.feedback)
  episode.repeats = episode.programs.count(code)
  episode.programs.append(code)
  episode.code = code
  visible_share = sum(passes[:count]) / count if count else 0.0
  if visible_share > episode.best_visible:
    episode.best_visible = visible_share
    episode.best_code, episode.best_share = code, share
  # With nothing to see, stopping is up to the policy.
  episode.terminated = bool(count) and not failures
  return bool(passes) and all(passes)


def _compare(episode: Episode, code: str) -> Play:
  """Notes what a program computes on inputs that are the same for all."""
  problem = episode.problem
  inputs = mutated_calls(
    problem.visible_tests, problem.entry_point, _INPUTS, episode.seed
  )
  if inputs:
    job = Call(code, inputs, problem.setup, problem.entry_point)
    episode.outcomes += yield ExecuteJobs((job,))
  return ''


def _trace_row(
  episode: Episode, operator: Operator, prompt: templates.CoderPrompt | None
) -> dict[str, Any]:
  return episode.trace_row(
    operator.name,
    list(episode.visible),
    cost=operator.calls,
    prompt=dataclasses.asdict(prompt) if prompt else None,
    code=episode.code if prompt else None,
    status=episode.status,
    error_type=episode.error_type,
    feedback=episode.feedback,
    reward=float(episode.reward),
    terminated=episode.terminated,
    truncated=episode.truncated,
  )
