"""Let the rewriter state the task anew in the light of the last feedback."""

from __future__ import annotations

from promptrl_jax.operators.operator import Operator, Question
from promptrl_jax.prompts import templates


def _apply(episode, tools):
  statement = yield from tools.rewrite(
    episode,
    templates.RewritePrompt(
      episode.statement, episode.problem.entry_point, episode.summary()
    ),
  )
  episode.edit(statement)
  episode.rewrites += 1
  return Question(episode.prompt())


SEMANTIC = Operator('semantic', calls=2, apply=_apply)
