"""The built-in operators, in the order of the default action set."""

from __future__ import annotations

import random

from promptrl_jax.operators import lexical
from promptrl_jax.operators.operator import Operator, Question, register
from promptrl_jax.prompts import templates


def _mutate(episode, tools):
  mutated = lexical.mutate(
    episode.statement,
    random.Random(episode.draw_seed()),
    tools.options.get('lexical', lexical.LexicalConfig()),
    protected=(episode.problem.entry_point,),
  )
  episode.edit(mutated)
  episode.mutations += 1
  return Question(episode.prompt())


def _rewrite(episode, tools):
  """Lets the rewriter state the task anew in the light of the feedback."""
  statement = yield from tools.rewrite(
    episode,
    templates.RewritePrompt(
      episode.statement, episode.problem.entry_point, episode.summary()
    ),
  )
  episode.edit(statement)
  episode.rewrites += 1
  return Question(episode.prompt())


def _reset(episode, tools):
  del tools
  episode.undo_all()
  return Question(episode.prompt())


def _undo(episode, tools):
  del tools
  episode.undo()
  return Question(episode.prompt())


def _add_demo(episode, tools):
  del tools
  episode.examples = episode.nearest[: len(episode.examples) + 1]
  return Question(episode.prompt())


def _has_attempt(episode):
  return episode.attempts > 0


# The prompt as it is: greedily the first time, then sampled.
register(
  Operator(
    'keep',
    calls=1,
    apply=lambda episode, tools: Question(episode.prompt()),
    rival='direct',
  )
)
register(
  Operator(
    'resample',
    calls=1,
    apply=lambda episode, tools: Question(episode.prompt(), resample=True),
    # Resampling until the visible tests pass is best-of-B.
    rival='best_of_b',
  )
)
register(Operator('lexical', calls=1, apply=_mutate))
register(Operator('semantic', calls=2, apply=_rewrite))
# Shows the coder its failing program and what went wrong with it.
register(
  Operator(
    'repair',
    calls=1,
    apply=lambda episode, tools: Question(episode.prompt(repairing=True)),
    available=_has_attempt,
  )
)
register(
  Operator(
    'reset_prompt',
    calls=1,
    apply=_reset,
    available=lambda episode: episode.edited,
    rival='',
  )
)
register(
  Operator(
    'undo',
    calls=1,
    apply=_undo,
    available=lambda episode: bool(episode.history),
    rival='',
  )
)
# Shows the coder one more solved task, the nearest that it has not seen.
register(
  Operator(
    'add_demo',
    calls=1,
    apply=_add_demo,
    available=lambda episode: len(episode.examples) < len(episode.nearest),
    rival='',
  )
)
# Hands in the best program so far.
register(
  Operator(
    'submit',
    calls=0,
    apply=lambda episode, tools: None,
    available=_has_attempt,
    rival='',
  )
)
