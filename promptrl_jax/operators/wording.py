"""Mutation and crossover of statements by a model, behind guards.

A model that is asked for other words may answer with a program, with its own
instruction or with half a sentence. Such a reply is refused and the parent
stands in its place, so that a failed edit costs a call and never the task.
The operators of EPiC (arXiv 2408.11198), for every strategy that evolves words;
lexical mutation, which asks no model, is `lexical.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator

from promptrl_jax.llm import replies
from promptrl_jax.llm.ask import Tools
from promptrl_jax.llm.attempt import REWRITER, Ask, Attempt
from promptrl_jax.llm.backend import Completion
from promptrl_jax.prompts import wording
from promptrl_jax.prompts.wording import WordingPrompt
from promptrl_jax.rewards import guards
from promptrl_jax.types import Task


@dataclasses.dataclass(frozen=True)
class WordingConfig:
  """How a model is asked for other words.

  Attributes:
    temperature: sampling temperature.
    max_tokens: most tokens of a reply; 0: as many as of a program.
    words: most words that are asked for; 0 for any number.
    guards: bounds of what is accepted. EPiC lets a description grow to several
      hundred words, the rewards of a trained rewriter do not.
  """

  temperature: float = 0.8
  max_tokens: int = 0
  words: int = 0
  guards: guards.GuardsConfig = guards.GuardsConfig(
    max_words=350, free_words=100
  )


@dataclasses.dataclass(frozen=True)
class Wording:
  """A statement from a model.

  Attributes:
    statement: the new one, or the parent if the reply was refused.
    refused: why; empty if it was not.
  """

  statement: str
  refused: str = ''


Words = Generator[Ask, Completion, Wording]


def elaborate(
  attempt: Attempt,
  tools: Tools,
  parent: str,
  config: WordingConfig = WordingConfig(temperature=0.9),
) -> Words:
  """Asks for a description with types and special cases; one call."""
  return _ask(attempt, tools, 'elaborate', parent, '', config)


def mutate(
  attempt: Attempt,
  tools: Tools,
  parent: str,
  config: WordingConfig = WordingConfig(),
) -> Words:
  """Asks for a clearer description; one call."""
  return _ask(attempt, tools, 'mutate', parent, '', config)


def cross(
  attempt: Attempt,
  tools: Tools,
  parent: str,
  other: str,
  config: WordingConfig = WordingConfig(),
) -> Words:
  """Asks for one description made of two; one call."""
  return _ask(attempt, tools, 'cross', parent, other, config)


def _ask(
  attempt: Attempt,
  tools: Tools,
  operator: str,
  parent: str,
  other: str,
  config: WordingConfig,
) -> Words:
  problem = attempt.problem
  prompt = WordingPrompt(
    operator, parent, problem.signature, other, config.words
  )
  completion = yield from tools.ask_in_words(
    attempt,
    REWRITER,
    wording.write_request,
    prompt,
    temperature=config.temperature,
    max_tokens=config.max_tokens,
    stop=(wording.END,),
  )
  if completion is None:
    return Wording(parent, replies.NO_ROOM)
  # A solver knows no other tests than the visible ones, nor a reference.
  known = Task(
    problem.task_id, '\n'.join(filter(None, (parent, other))), problem.visible
  )
  return accept(
    completion,
    prompt,
    lambda text: guards.flag(text, known, problem.visible_tests, config.guards),
  )


def accept(
  completion: Completion, prompt: WordingPrompt, flag: Callable[[str], str]
) -> Wording:
  """Returns the text in a reply, or the parent if the reply is refused.

  Args:
    completion: the reply.
    prompt: what was asked.
    flag: says why a text is not taken, such as `guards.flag`; '' if it is.
  """
  text = wording.read(completion.text)
  allowed = prompt.statement, prompt.other
  refused = replies.refusal(completion, text, prompt.instruction, allowed)
  refused = refused or flag(text)
  return Wording(prompt.statement, refused) if refused else Wording(text)
