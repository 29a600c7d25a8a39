"""Libraries of worked examples from the solved tasks of a split."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from promptrl_jax.models import embed, sentence_encoder
from promptrl_jax.prompts.examples import EmbedFn, ExampleLibrary, from_tasks
from promptrl_jax.types import Task

# How near a task is: by rare words that two statements share, by the encoder
# that is shipped, or by that of the extra `embedding`.
EMBEDDINGS: dict[str, Callable[[], EmbedFn | None]] = {
  'words': lambda: None,
  sentence_encoder.SHIPPED: sentence_encoder.load,
  embed.MINILM: lambda: sentence_encoder.load(embed.MINILM),
}


def check_kind(kind: str) -> None:
  """Raises ValueError unless `kind` is empty or one of `EMBEDDINGS`."""
  if kind and kind not in EMBEDDINGS:
    raise ValueError(
      f'examples={kind!r}: expected one of {", ".join(EMBEDDINGS)}, or empty'
    )


def make_library(kind: str, tasks: Sequence[Task]) -> ExampleLibrary | None:
  """Returns the library of the solved tasks; None if `kind` is empty.

  Raises:
    ImportError: `minilm` without the extra `embedding`.
    ValueError: an unknown kind, or no task has a reference program.
  """
  check_kind(kind)
  if not kind:
    return None
  solved = from_tasks(tasks)
  if not solved:
    raise ValueError(
      f'examples={kind!r}: none of {len(tasks)} training tasks has a program '
      'to show; expected a task set with reference programs'
    )
  return ExampleLibrary(solved, EMBEDDINGS[kind]())
