"""Meta prompts: requests to rewrite an instruction, and reading the reply.

The generic families follow PRewrite (arXiv 2401.08189), `MINICODE` is the
format that the embedded rewriter was trained on.
"""

from __future__ import annotations

import dataclasses
import re

from promptrl_jax.prompts.templates import Messages

_PLACE = '{instruction}'
_LABEL = re.compile(
  r'\A(?:(?:new|rewritten|improved|revised)\s+)?instruction\s*:\s*',
  re.IGNORECASE,
)
_FENCE = re.compile(r'\A```\w*\n(.*?)\n?```\Z', re.DOTALL)
_QUOTES = {'"': '"', "'": "'", '\u201c': '\u201d', '`': '`'}

GENERIC_A = (
  'Rewrite the instruction below: say it in other words, and add specific '
  'requirements or a description that illustrates what is wanted. Answer with '
  'the new instruction alone.\nInstruction: {instruction}'
)
GENERIC_B = (
  'Rewrite the instruction below: say it in other words, and add requirements '
  'or guidance that help to solve the task correctly. Answer with the new '
  'instruction alone.\nInstruction: {instruction}'
)
# `templates.PLAIN.rewriter` without feedback.
MINICODE = '{instruction}\nname: solve\n=>'

_FAMILIES = {
  'generic_a': GENERIC_A,
  'generic_b': GENERIC_B,
  'minicode': MINICODE,
}


@dataclasses.dataclass(frozen=True)
class MetaConfig:
  """A request for a better instruction.

  Attributes:
    family: `generic_a`, `generic_b`, `minicode`, or `custom` for `text`.
    text: the request of the family `custom`, with `{instruction}` in it once;
      empty for all others.
  """

  family: str = 'generic_b'
  text: str = ''

  def __post_init__(self):
    if self.family not in (*_FAMILIES, 'custom'):
      raise ValueError(
        f'meta prompt family {self.family!r}: expected '
        f'{", ".join(_FAMILIES)} or custom'
      )
    if self.text and self.family != 'custom':
      raise ValueError(
        f'a meta prompt text needs family "custom", not {self.family!r}'
      )
    if self.request.count(_PLACE) != 1:
      raise ValueError(
        f'meta prompt {self.text!r}: expected {_PLACE} in it, once'
      )

  @property
  def request(self) -> str:
    """The request, with `{instruction}` in it."""
    return _FAMILIES.get(self.family, self.text)


def render(meta: MetaConfig, instruction: str) -> Messages:
  """Returns the rewriter's messages: meta prompt and instruction, no more."""
  before, _, after = meta.request.partition(_PLACE)
  return (('user', f'{before}{instruction}{after}'),)


def read(reply: str) -> str:
  """Returns the instruction in a reply, or '' if there is nothing in it.

  A label, a code fence and quotes around the instruction are removed.
  """
  text, before = reply.strip(), None
  while text != before:
    before = text
    fenced = _FENCE.match(text)
    text = fenced[1].strip() if fenced else _LABEL.sub('', text).strip()
    if len(text) > 1 and _QUOTES.get(text[0]) == text[-1]:
      inside = text[1:-1]
      # Quotes at both ends may belong to two words: "a" or "b".
      if text[0] not in inside and text[-1] not in inside:
        text = inside.strip()
  return text
