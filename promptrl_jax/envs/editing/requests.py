"""What the environment asks the two language models, and how it samples."""

from __future__ import annotations

import dataclasses
import functools
import logging
import zlib
from collections.abc import Callable
from typing import Any

from promptrl_jax.envs.editing.episode import Episode
from promptrl_jax.llm.backend import Backend, Message, Request
from promptrl_jax.prompts import feedback as feedback_lib
from promptrl_jax.prompts import templates

_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Method:
  """How one role samples.

  Attributes:
    max_tokens: most new tokens.
    first_temperature: the first time a prompt is asked in an episode.
    again_temperature: every further time.
    top_p: nucleus mass.
  """

  max_tokens: int
  first_temperature: float
  again_temperature: float
  top_p: float


def coder_prompt(episode: Episode, repairing: bool) -> templates.CoderPrompt:
  """Asks for a program; a repair shows the last one and what was wrong."""
  return templates.CoderPrompt(
    statement=episode.statement,
    signature=episode.problem.signature,
    tests=episode.problem.visible_tests,
    attempt=episode.code if repairing else '',
    feedback=(
      feedback_lib.summarize_feedback(episode.feedback) if repairing else ''
    ),
  )


def rewrite_prompt(episode: Episode) -> templates.RewritePrompt:
  """Asks for a clearer statement in the light of the last feedback."""
  return templates.RewritePrompt(
    episode.statement,
    episode.problem.entry_point,
    feedback_lib.summarize_feedback(episode.feedback),
  )


def draw_seed(episode: Episode) -> int:
  """Seed of the next draw: of the episode, the problem and the calls so far."""
  text = f'{episode.seed}/{episode.problem.task_id}/{episode.calls}'
  return zlib.crc32(text.encode())


def write(
  backend: Backend,
  template: Callable[[Any], templates.Messages],
  prompt: templates.CoderPrompt | templates.RewritePrompt,
  episode: Episode,
  method: Method,
  resample: bool = False,
) -> Request | None:
  """A request, and a note in the episode that this prompt was asked.

  Args:
    backend: who is asked; decides what fits.
    template: from the prompt to messages.
    prompt: what to ask.
    episode: who asks.
    method: how to sample.
    resample: draw as if the prompt had been asked before.

  Returns:
    The request, or None if the model's context cannot take it: then the model
    has no answer, which is a failure of the model and not of the run.
  """

  def build(messages: templates.Messages) -> Request:
    return Request(
      tuple(Message(role, content) for role, content in messages),
      max_tokens=method.max_tokens,
    )

  try:
    messages = templates.fit(template, prompt, lambda m: backend.fits(build(m)))
  except templates.PromptTooLongError as error:
    _warn_once(episode.problem.task_id, str(error))
    return None
  again = resample or messages in episode.asked
  if not resample:
    episode.asked.add(messages)
  return dataclasses.replace(
    build(messages),
    temperature=method.again_temperature if again else method.first_temperature,
    top_p=method.top_p,
    seed=draw_seed(episode),
  )


@functools.cache
def _warn_once(task_id: str, text: str) -> None:
  _LOG.warning('%s: %s', task_id, text)
