"""Conversations as text, by the Jinja template that comes with a model."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
import tokenizers

Messages = Sequence[tuple[str, str]]  # (role, content), oldest first


@dataclasses.dataclass(frozen=True)
class ChatTemplate:
  """How a model was taught to read a conversation.

  Attributes:
    source: the Jinja template.
    special: special tokens by the names the template has for them: `bos_token`.
  """

  source: str
  special: Mapping[str, str]

  @functools.cached_property
  def _renderer(self) -> Any:
    import transformers  # Takes seconds, and only chat models need it.

    empty = tokenizers.Tokenizer(tokenizers.models.BPE())
    return transformers.PreTrainedTokenizerFast(
      tokenizer_object=empty, chat_template=self.source, **self.special
    )

  def text(self, messages: Messages, **variables: Any) -> str:
    """Writes a conversation up to where the model goes on.

    Behind a message of the assistant it goes on with that message, else it
    begins one.

    Args:
      messages: roles and contents.
      **variables: of the template, such as `enable_thinking=False`. A template
        that writes the date has a variable for it; set it, or the prompt is
        another one tomorrow.

    Raises:
      ValueError: the template refuses these roles, or leaves the system text
        out.
    """
    roles = [role for role, _ in messages]
    is_open = roles[-1:] == ['assistant']
    advice = (
      '; put the system text at the head of the first user message'
      if 'system' in roles
      else ''
    )
    try:
      text = self._renderer.apply_chat_template(
        [{'role': role, 'content': content} for role, content in messages],
        tokenize=False,
        add_generation_prompt=not is_open,
        continue_final_message=is_open,
        **variables,
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
