"""Section edits by a language model, behind guards.

The requests are those of `prompts/wording.py`; what is accepted of a reply is
decided by `operators/wording.py`, as for the statements of tasks.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence

from promptrl_jax.evolution.variation import SectionEdit
from promptrl_jax.llm.backend import Backend, Message, Request
from promptrl_jax.llm.replies import NO_ROOM
from promptrl_jax.operators import wording
from promptrl_jax.prompts import wording as requests
from promptrl_jax.prompts.genome import ABOUT
from promptrl_jax.prompts.wording import WordingPrompt
from promptrl_jax.rewards import guards


@dataclasses.dataclass(frozen=True)
class RewordingConfig:
  """How a model is asked for a section.

  Attributes:
    temperature: sampling temperature.
    max_tokens: most tokens of a reply; one that is cut off by it is refused.
    words: most words that are asked for; 0 for any number.
    guards: bounds of what is accepted. A section may be a single word.
  """

  temperature: float = 0.8
  max_tokens: int = 256
  words: int = 0
  guards: guards.GuardsConfig = guards.GuardsConfig(min_words=1)

  def __post_init__(self):
    if not self.temperature >= 0 or self.max_tokens < 1 or self.words < 0:
      raise ValueError(
        f'temperature={self.temperature}, max_tokens={self.max_tokens}, '
        f'words={self.words}: expected 0 or more, 1 or more, 0 or more'
      )


class SectionWriter:
  """Makes edits of sections by one model call each, all in one batch.

  Attributes:
    calls: that were made.
    refused: reason -> number of edits that were not made because of it; the
      text of the first parent stands there instead.
  """

  def __init__(
    self,
    model: Backend,
    config: RewordingConfig = RewordingConfig(),
    about: Mapping[str, str] = ABOUT,
  ):
    """Puts the parts together.

    Args:
      model: follows instructions.
      config: how it is asked.
      about: section -> what the model is told that stands there.
    """
    self._model, self._config, self._about = model, config, about
    self.calls = 0
    self.refused: collections.Counter[str] = collections.Counter()

  def __call__(self, edits: Sequence[SectionEdit]) -> list[str]:
    """Returns the new text of each section.

    Raises:
      BackendError: the model cannot be reached.
    """
    prompts = [self._prompt(edit) for edit in edits]
    asked = [
      self._request(prompt, edit.seed)
      for edit, prompt in zip(edits, prompts, strict=True)
    ]
    sent = [request for request in asked if request is not None]
    replies = iter(self._model.complete(sent) if sent else [])
    self.calls += len(sent)
    texts = []
    for edit, prompt, request in zip(edits, prompts, asked, strict=True):
      made = wording.Wording(edit.text, NO_ROOM)
      if request is not None:
        made = wording.accept(next(replies), prompt, self._flag(edit))
      if made.refused:
        self.refused[made.refused] += 1
      texts.append(made.statement)
    return texts

  def _prompt(self, edit: SectionEdit) -> WordingPrompt:
    if edit.hint:
      operator, other = 'guide_section', ''
    else:
      operator = 'cross_sections' if edit.other else 'mutate_section'
      other = edit.other
    what = self._about.get(edit.section, '')
    heading = f'{edit.section}: {what}' if what else edit.section
    return WordingPrompt(
      operator, edit.text, heading, other, self._config.words, edit.hint
    )

  def _request(self, prompt: WordingPrompt, seed: int) -> Request | None:
    request = Request(
      tuple(Message(*m) for m in requests.write_request(prompt)),
      temperature=self._config.temperature,
      seed=seed,
      max_tokens=self._config.max_tokens,
      stop=(requests.END,),
    )
    # A section is not shortened to fit: its end would be lost for good.
    return request if self._model.fits(request) else None

  def _flag(self, edit: SectionEdit) -> Callable[[str], str]:
    parents = '\n'.join(filter(None, (edit.text, edit.other, edit.hint)))
    return lambda text: guards.flag_form(text, parents, self._config.guards)
