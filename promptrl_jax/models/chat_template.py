"""Renders conversations to text with a model's Jinja chat template."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
import tokenizers

Messages = Sequence[tuple[str, str]]  # (role, content), oldest first


@dataclasses.dataclass(frozen=True)
class ChatTemplate:
  """A chat template and the special tokens that it uses.

  Attributes:
    special: text of each special token by its name in the template, such as
      `bos_token`.
  """

  source: str
  special: Mapping[str, str]

  @functools.cached_property
  def renderer(self) -> Any:
    """What renders the template; made at its first use, in half a second."""
    # A type checker would read all of its models.
    transformers = importlib.import_module('transformers')

    empty = tokenizers.Tokenizer(tokenizers.models.BPE())
    return transformers.PreTrainedTokenizerFast(
      tokenizer_object=empty, chat_template=self.source, **self.special
    )

  def text(self, messages: Messages) -> str:
    """Renders a conversation up to the point where the model continues.

    If the last message is the assistant's, the model continues that message;
    otherwise it begins a new one.

    Raises:
      ValueError: the template refuses these roles or omits the system text.
    """
    roles = [role for role, _ in messages]
    is_open = roles[-1:] == ['assistant']
    advice = (
      '; put the system text at the head of the first user message'
      if 'system' in roles
      else ''
    )
    try:
      text = self.renderer.apply_chat_template(
        [{'role': role, 'content': content} for role, content in messages],
        tokenize=False,
        add_generation_prompt=not is_open,
        continue_final_message=is_open,
      )
    except jinja2.TemplateError as error:
      raise ValueError(
        f'the chat template refuses the roles {", ".join(roles)}: '
        f'{error}{advice}'
      ) from None
    for role, content in messages:
      if role == 'system' and content.strip() not in text:
        raise ValueError(
          f'the chat template leaves out the system text {content[:60]!r}'
          f'{advice}'
        )
    return text
