"""One example of supervised fine-tuning."""

from __future__ import annotations

import dataclasses

from promptrl_jax.prompts.templates import Messages


@dataclasses.dataclass(frozen=True)
class Chat:
  """The conversation that a model reads, and the reply to learn."""

  messages: Messages
  reply: str
