"""Prompt editing as an environment: N problems that step together.

A step applies one named action to each open problem and makes at most one
batched call per role: the rewriter for the rows that rewrite, the coder for the
rows that ask, the pool for the programs that came back.

  statement --edit--> statement' --coder--> program --pool--> verdicts
       ^                                                         |
       +------------------ feedback, observation, reward --------+

An environment is handed `Problem`s, which hold no hidden test.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from promptrl_jax.envs.editing import actions as actions_lib
from promptrl_jax.envs.editing import observation as observation_lib
from promptrl_jax.envs.editing import requests as requests_lib
from promptrl_jax.envs.editing.episode import Episode
from promptrl_jax.execution import ExecutionPool, Program
from promptrl_jax.execution.program import ProgramResult
from promptrl_jax.llm.backend import Backend, Completion, Request
from promptrl_jax.llm.ledger import Ledger
from promptrl_jax.operators import lexical
from promptrl_jax.prompts import feedback as feedback_lib
from promptrl_jax.prompts import templates
from promptrl_jax.rewards import tests as rewards
from promptrl_jax.types import Problem


@dataclasses.dataclass(frozen=True)
class EnvConfig:
  """Settings of the environment.

  Attributes:
    actions: names the controller may choose from; see `envs.editing.actions`.
    budget: most language-model calls of an episode.
    max_steps: most steps of an episode.
    observation: `rich` or `legacy` (the ten features of PROMIS).
    accumulate: edits build on one another; False starts each from the original
      statement, as PROMIS does.
    first_temperature: the first time a prompt is asked in an episode.
    sample_temperature: every further time, and always with `resample`.
    rewrite_temperature: of a rewrite that was asked before in the episode; the
      first one is greedy.
    top_p: nucleus mass of all samples.
    max_tokens: most tokens of a program.
    rewrite_max_tokens: most tokens of a statement.
    template: how requests are written; see `prompts.templates`.
    lexical: settings of the synonym mutation.
    reward: settings of the reward.
    gamma: discount, for potential-based shaping.
  """

  actions: tuple[str, ...] = actions_lib.ACTIONS
  budget: int = 8
  max_steps: int = 10
  observation: str = 'rich'
  accumulate: bool = True
  first_temperature: float = 0.0
  sample_temperature: float = 0.8
  rewrite_temperature: float = 0.8
  top_p: float = 1.0
  max_tokens: int = 80
  rewrite_max_tokens: int = 64
  template: str = 'plain'
  lexical: lexical.LexicalConfig = lexical.DEFAULT
  reward: rewards.RewardConfig = rewards.RewardConfig()
  gamma: float = 1.0

  def __post_init__(self):
    actions_lib.check_actions(self.actions)
    if self.observation not in ('rich', 'legacy'):
      raise ValueError(
        f'observation {self.observation!r}: expected "rich" or "legacy"'
      )
    if self.template not in templates.TEMPLATES:
      raise ValueError(
        f'template {self.template!r}: expected one of '
        f'{sorted(templates.TEMPLATES)}'
      )
    if self.budget < 1:
      raise ValueError(f'budget={self.budget}: expected at least one call')

  @property
  def observation_size(self) -> int:
    if self.observation == 'legacy':
      return observation_lib.LEGACY_SIZE
    return observation_lib.rich_size(len(self.actions))


class VectorPromptEdit:
  """N episodes that step together.

  Attributes:
    config: the settings.
    episodes: their state, in row order; done rows stay and are not stepped.
    trace: one dict per row and step since the last `reset`.
    ledger: calls, tokens and seconds of the roles `generate` and `rewrite`.
    execute_seconds: wall time spent in the pool.
  """

  def __init__(
    self,
    coder: Backend,
    rewriter: Backend,
    pool: ExecutionPool,
    config: EnvConfig = EnvConfig(),
  ):
    self.config = config
    self.episodes: list[Episode] = []
    self.trace: list[dict[str, Any]] = []
    self.ledger = Ledger()  # a cap per episode is the action mask's business
    self.execute_seconds = 0.0
    self._coder = coder
    self._rewriter = rewriter
    self._pool = pool
    self._template = templates.TEMPLATES[config.template]
    self._code_method = requests_lib.Method(
      config.max_tokens, config.first_temperature, config.sample_temperature,
      config.top_p,
    )  # fmt: skip
    self._rewrite_method = requests_lib.Method(
      config.rewrite_max_tokens, config.first_temperature,
      config.rewrite_temperature, config.top_p,
    )  # fmt: skip
    self._feedbacks: list[list[str]] = []
    self._places: list[tuple[int, int]] = []

  def reset(
    self,
    problems: Sequence[Problem],
    seeds: Sequence[int],
    budgets: Sequence[int] | None = None,
    places: Sequence[tuple[int, int]] | None = None,
  ) -> tuple[np.ndarray, np.ndarray]:
    """Starts one episode per problem.

    Args:
      problems: what to solve.
      seeds: random seed of each episode. Draws depend on the seed, the problem
        and the number of calls made, so two strategies with equal seeds meet
        equal samples as long as they ask the same.
      budgets: calls of each episode, `config.budget` by default.
      places: (index, size) of each problem in its data set, a legacy feature.

    Returns:
      Observations float32 [N, O] and action masks bool [N, A].
    """
    budgets = budgets or [self.config.budget] * len(problems)
    self._places = list(places or [(0, 1)] * len(problems))
    self._feedbacks = [[] for _ in problems]
    self.trace = []
    self.episodes = [
      Episode(problem, seed, budget, problem.statement)
      for problem, seed, budget in zip(problems, seeds, budgets, strict=True)
    ]
    return self.observations(), self.action_masks()

  def observations(self) -> np.ndarray:
    """float32 [N, O]."""
    if self.config.observation == 'rich':
      rows = [
        observation_lib.rich_observation(e, self.config.actions)
        for e in self.episodes
      ]
    else:
      rows = [
        observation_lib.legacy_observation(
          e.problem.statement, feedbacks, e.steps, *place
        )
        for e, feedbacks, place in zip(
          self.episodes, self._feedbacks, self._places, strict=True
        )
      ]
    return np.stack(rows)

  def action_masks(self) -> np.ndarray:
    """bool [N, A]: actions that do something and can be paid for."""
    return np.array(
      [
        [_available(action, episode) for action in self.config.actions]
        for episode in self.episodes
      ]
    )

  def step(
    self, chosen: Sequence[str]
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Applies one action to each open row; the others are left alone.

    Args:
      chosen: name of an action per row. One that is not available is taken as
        `keep`.

    Returns:
      Observations [N, O], action masks [N, A] and rewards float32 [N]; how
      episodes ended stands in `episodes`.
    """
    rows = [i for i, e in enumerate(self.episodes) if not e.done]
    taken = {
      i: chosen[i] if _available(chosen[i], self.episodes[i]) else 'keep'
      for i in rows
    }
    self._edit(taken)
    asking = [i for i in rows if taken[i] != 'submit']
    prompts = {
      i: requests_lib.coder_prompt(self.episodes[i], taken[i] == 'repair')
      for i in asking
    }
    completions = self._ask_coder(prompts, taken)
    started = time.perf_counter()
    results = self._execute(prompts, completions)
    self.execute_seconds += time.perf_counter() - started
    values = np.zeros(len(self.episodes), np.float32)
    for i in rows:
      values[i] = self._finish(
        i, taken[i], prompts.get(i), completions.get(i), results.get(i)
      )
    return self.observations(), self.action_masks(), values

  def _edit(self, taken: dict[int, str]) -> None:
    """Edits the statements in place."""
    rewriting = []
    for i, action in taken.items():
      episode = self.episodes[i]
      if not self.config.accumulate or action == 'reset_prompt':
        episode.statement = episode.problem.statement
        episode.rewrites = episode.mutations = 0
      if action == 'lexical':
        episode.mutations += 1
        episode.statement = lexical.mutate(
          episode.statement,
          random.Random(requests_lib.draw_seed(episode)),
          self.config.lexical,
          protected=(episode.problem.entry_point,),
        )
      elif action == 'semantic':
        rewriting.append(i)
    self._rewrite(rewriting)

  def _rewrite(self, rows: list[int]) -> None:
    requests, prompts = [], []
    for i in rows:
      episode = self.episodes[i]
      prompt = requests_lib.rewrite_prompt(episode)
      prompts.append(prompt)
      requests.append(
        requests_lib.write(
          self._rewriter, self._template.rewriter, prompt, episode,
          self._rewrite_method,
        )
      )  # fmt: skip
    answers = self._ask('rewrite', self._rewriter, requests)
    for i, prompt, answer in zip(rows, prompts, answers, strict=True):
      episode = self.episodes[i]
      episode.rewrites += 1
      if answer is not None:
        episode.statement = self._template.rewritten(prompt, answer.text)
        _charge(episode, answer)

  def _ask_coder(
    self, prompts: dict[int, templates.CoderPrompt], taken: dict[int, str]
  ) -> dict[int, Completion | None]:
    requests = [
      requests_lib.write(
        self._coder, self._template.coder, prompt, self.episodes[i],
        self._code_method, resample=taken[i] == 'resample',
      )
      for i, prompt in prompts.items()
    ]  # fmt: skip
    answers = self._ask('generate', self._coder, requests)
    return dict(zip(prompts, answers, strict=True))

  def _ask(
    self, role: str, backend: Backend, requests: Sequence[Request | None]
  ) -> list[Completion | None]:
    """One batched call for the requests that there are."""
    asked = [request for request in requests if request is not None]
    if not asked:
      return [None for _ in requests]
    self.ledger.reserve(role, len(asked))
    started = time.perf_counter()
    answers = backend.complete(asked)
    self.ledger.record(role, answers, time.perf_counter() - started)
    rest = iter(answers)
    return [None if request is None else next(rest) for request in requests]

  def _execute(
    self,
    prompts: dict[int, templates.CoderPrompt],
    completions: dict[int, Completion | None],
  ) -> dict[int, tuple[str, ProgramResult]]:
    programs = []
    for i, prompt in prompts.items():
      problem = self.episodes[i].problem
      answer = completions[i]
      programs.append(
        Program(
          code=self._template.program(prompt, answer.text) if answer else '',
          tests=problem.visible_tests + problem.reward_tests,
          setup=problem.setup,
          entry_point=problem.entry_point,
        )
      )
    results = self._pool.run(programs) if programs else []
    codes = [program.code for program in programs]
    return dict(zip(prompts, zip(codes, results, strict=True), strict=True))

  def _finish(self, i, action, prompt, completion, result) -> float:
    """Takes in what came back; returns the reward."""
    episode = self.episodes[i]
    before = episode.best_share
    calls = actions_lib.COST[action]
    episode.last_action = action
    episode.steps += 1
    if action == 'submit':
      episode.terminated = True
      passed = episode.best_share == 1.0
    else:
      code, verdict = result
      if completion is not None:
        _charge(episode, completion)
      if verdict.status == 'infra_error':
        episode.lost = True
        return 0.0
      passed = self._take_verdict(i, code, verdict)
    if not episode.terminated:
      spent = episode.budget_left < 1
      episode.truncated = spent or episode.steps >= self.config.max_steps
    reward = self.config.reward
    if reward.kind == 'legacy':
      value = rewards.legacy_reward(passed, reward)
    else:
      value = rewards.shaped_reward(
        done=episode.done,
        share=episode.best_share,
        previous_share=before,
        calls=calls,
        gamma=self.config.gamma,
        config=reward,
      )
    self.trace.append(_trace_row(i, episode, action, calls, prompt, value))
    return value

  def _take_verdict(self, i: int, code: str, verdict: ProgramResult) -> bool:
    """Updates the episode; returns whether the program passes every test."""
    episode = self.episodes[i]
    count = len(episode.problem.visible_tests)
    visible = verdict.tests[:count]
    passes = [test.status == 'passed' for test in verdict.tests]
    share = sum(passes) / len(passes) if passes else 0.0
    failures = [test for test in visible if test.status != 'passed']
    if not count:
      episode.status = 'unknown'
    elif verdict.status in ('syntax_error', 'no_code'):
      episode.status = verdict.status
    else:
      episode.status = failures[0].status if failures else 'passed'
    episode.error_type = failures[0].error_type if failures else ''
    episode.visible = tuple(passes[:count])
    episode.feedback = feedback_lib.feedback_text(visible)
    self._feedbacks[i].append(episode.feedback)
    episode.attempts += 1
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


def _available(action: str, episode: Episode) -> bool:
  """Whether the action does something here and can be paid for."""
  if episode.done:
    return action == 'keep'
  if action in ('repair', 'submit') and not episode.attempts:
    return False
  if action == 'reset_prompt' and not episode.edited:
    return False
  return actions_lib.COST[action] <= episode.budget_left


def _charge(episode: Episode, completion: Completion) -> None:
  episode.calls += 1
  episode.prompt_tokens += completion.prompt_tokens
  episode.completion_tokens += completion.completion_tokens


def _trace_row(i, episode: Episode, action, calls, prompt, reward) -> dict:
  return {
    'row': i,
    'task_id': episode.problem.task_id,
    'seed': episode.seed,
    'budget': episode.budget,
    'step': episode.steps - 1,
    'action': action,
    'cost': calls,
    'prompt': dataclasses.asdict(prompt) if prompt else None,
    'code': episode.code if prompt else None,
    'status': episode.status,
    'error_type': episode.error_type,
    'visible': list(episode.visible),
    'visible_passed': bool(episode.visible) and all(episode.visible),
    'feedback': episode.feedback,
    'reward': float(reward),
    'terminated': episode.terminated,
    'truncated': episode.truncated,
  }
