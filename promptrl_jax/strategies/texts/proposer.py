"""Has a model write the texts that a search asks for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from promptrl_jax.llm import replies
from promptrl_jax.llm.backend import Backend, Completion, Message, Request
from promptrl_jax.prompts import meta, proposals
from promptrl_jax.prompts.meta import MetaConfig
from promptrl_jax.prompts.templates import Messages
from promptrl_jax.strategies.texts.requests import (
  MERGE,
  REFLECT,
  Proposal,
  Propose,
)


@dataclasses.dataclass(frozen=True)
class ProposerConfig:
  """How new texts are asked for.

  Attributes:
    temperature: at 0 the same request is always answered alike.
    max_tokens: of a reply; one that is cut off by it is refused.
    meta: the request of a rewrite, which is shown no scores.
  """

  temperature: float = 1.0
  max_tokens: int = 512
  meta: MetaConfig = MetaConfig()

  def __post_init__(self):
    if not self.temperature >= 0 or self.max_tokens < 1:
      raise ValueError(
        f'temperature={self.temperature}, max_tokens={self.max_tokens}: '
        'expected 0 or more, and 1 or more'
      )


class Proposer:
  """Answers `Propose` by one call of a model each, all in one batch."""

  def __init__(
    self,
    model: Backend,
    show: Callable[[int], str],
    config: ProposerConfig = ProposerConfig(),
  ):
    """Puts the parts together.

    Args:
      model: follows instructions, unless it is asked for rewrites alone.
      show: what the model reads of an example, by its place.
      config: how it is asked.
    """
    self._model, self._show, self._config = model, show, config

  def __call__(self, requests: Sequence[Propose]) -> list[Proposal]:
    """Returns a new text for each request, or why there is none.

    Raises:
      BackendError: the model cannot be reached.
    """
    asked = [self._request(request) for request in requests]
    sent = [r for r in asked if r is not None]
    answers = iter(self._model.complete(sent))
    return [
      self._read(request, None if one is None else next(answers))
      for request, one in zip(requests, asked, strict=True)
    ]

  def _request(self, request: Propose) -> Request | None:
    """The request with as many cases as the model has room for."""
    count = max(len(parent.seen) for parent in request.parents)
    fewest = 1 if request.kind == REFLECT else 0
    for cases in range(count, fewest - 1, -1):
      sent = Request(
        tuple(Message(*m) for m in self._messages(request, cases)),
        temperature=self._config.temperature,
        seed=request.seed,
        max_tokens=self._config.max_tokens,
      )
      if self._model.fits(sent):
        return sent
    return None

  def _messages(self, request: Propose, count: int) -> Messages:
    texts = [parent.text for parent in request.parents]
    if request.kind == MERGE:
      return proposals.merge(*texts)
    if request.kind == REFLECT:
      cases = [
        proposals.Case(self._show(example), seen.score, seen.feedback)
        for example, seen in request.parents[0].seen[:count]
      ]
      return proposals.reflect(texts[0], cases)
    return meta.render(self._config.meta, texts[0])

  def _read(self, request: Propose, completion: Completion | None) -> Proposal:
    text = proposals.read(completion.text) if completion else ''
    ours = {MERGE: proposals.MERGE, REFLECT: proposals.REFLECT}.get(
      request.kind, self._config.meta.request
    )
    texts = [parent.text for parent in request.parents]
    refused = replies.refusal(completion, text, ours, texts)
    return Proposal('', self._in_words(refused)) if refused else Proposal(text)

  def _in_words(self, refused: str) -> str:
    limit = self._config.max_tokens
    return {
      replies.NO_ROOM: 'not asked for: the request is too long for the model',
      replies.CUT: f'cut off by the limit of {limit} tokens',
      replies.MALFORMED: 'empty',
      replies.INSTRUCTION: 'a repetition of the request',
    }[refused]
