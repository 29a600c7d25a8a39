"""How programming tasks are written down and read back."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

from promptrl_jax.envs.rewriting.config import RewritingConfig
from promptrl_jax.envs.rewriting.result import UNUSABLE
from promptrl_jax.llm.ask import AskConfig, fitted_request, warn_once
from promptrl_jax.llm.backend import Backend, Completion, Request
from promptrl_jax.prompts import feedback as feedback_lib
from promptrl_jax.prompts import templates
from promptrl_jax.rewards import guards
from promptrl_jax.tasks import splits
from promptrl_jax.types import Task


def sampling(
  ask: AskConfig, task: Task, question: str, seed: int
) -> dict[str, Any]:
  """Returns how the frozen model samples its answer to a question in one batch.

  All rewrites of a task share `question`, so that they meet the same random
  numbers; examples of an instruction with different inputs do not, as their
  mean is the reward.
  """
  own_seed = zlib.crc32(f'{seed}/{question}'.encode())
  return {
    'temperature': ask.first_temperature,
    'top_p': ask.top_p,
    # Greedy requests that are equal are to compare equal.
    'seed': own_seed if ask.first_temperature else 0,
    'max_tokens': ask.max_tokens,
    'stop': ask.stop_strings,
    'scope': task.split,
  }


class CodeForm:
  """Requests and replies of tasks that are checked by unit tests."""

  def __init__(
    self,
    model: Backend,
    config: RewritingConfig,
    ask: AskConfig,
    protocol: str,
  ):
    self._model = model
    self._config = config
    self._ask = ask
    self._protocol = protocol
    self._template = templates.TEMPLATES[ask.template]
    self.rewrite_stop = ask.rewrite_stop

  def draw(self, task: Task, seed: int) -> Task:
    """Returns the task as one batch sees it: unchanged."""
    del seed
    return task

  def prompt(
    self, task: Task, fits: templates.FitsFn = lambda _: True
  ) -> templates.Messages:
    """Returns the rewriter's messages, cut to what it takes."""
    return templates.fit(self._template.rewriter, _rewrite_prompt(task), fits)

  def statement(self, task: Task, rewrite: str) -> str:
    """Returns the statement of a rewrite; the old one if it is not usable."""
    return self._template.rewritten(_rewrite_prompt(task), rewrite)

  def flag(
    self, task: Task, drawn: Task, rewrite: str, finished: bool
  ) -> tuple[str, str]:
    """Returns why the rewrite is flagged, or '', and the statement it makes."""
    del drawn
    visible = splits.visible_tests(task, self._protocol)
    reason = guards.flag(rewrite, task, visible, self._config.guards)
    if reason or not finished:
      return reason or 'overlong', ''
    statement = self.statement(task, rewrite)
    # The template's fallback, unless that is what the rewriter wrote.
    fallback = self.statement(task, '')
    if statement == fallback and fallback not in ' '.join(rewrite.split()):
      return UNUSABLE, ''
    return '', statement

  def requests(
    self, task: Task, statement: str, seed: int = 0
  ) -> tuple[Request, ...]:
    """Returns the request for a program.

    None if the context cannot take it, which is a failure of the rewrite.
    """
    prompt = self._coder_prompt(task, statement)
    settings = sampling(self._ask, task, task.task_id, seed)
    write = self._template.coder
    try:
      return (fitted_request(self._model, write, prompt, **settings),)
    except templates.PromptTooLongError as error:
      warn_once(task.task_id, str(error))
      return ()

  def labels(self, task: Task) -> tuple[str, ...]:
    """Returns the reference program as the model would go on to write it.

    Raises:
      ValueError: the task has no reference, or one that does not begin with its
        signature.
    """
    rest = task.reference.removeprefix(task.signature)
    if not rest or rest == task.reference:
      raise ValueError(
        f'task {task.task_id} has no reference program that begins with its '
        f'signature {task.signature!r}, which the reward likelihood scores: '
        'choose the reward solved or score'
      )
    return (rest,)

  def reply(
    self, task: Task, statement: str, completions: Sequence[Completion]
  ) -> str:
    """Returns the program in the completion, '' if there is none."""
    if not completions:
      return ''
    prompt = self._coder_prompt(task, statement)
    return self._template.program(prompt, completions[0].text)

  def _coder_prompt(self, task: Task, statement: str) -> templates.CoderPrompt:
    visible = splits.visible_tests(task, self._protocol)
    return templates.CoderPrompt(
      statement, task.signature, visible, instruction=self._ask.instruction
    )


def _rewrite_prompt(task: Task) -> templates.RewritePrompt:
  feedback = feedback_lib.summarize_feedback(task.feedback)
  return templates.RewritePrompt(task.statement, task.entry_point, feedback)
