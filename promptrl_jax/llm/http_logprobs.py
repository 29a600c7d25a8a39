"""Log-probs in the answers of OpenAI-compatible servers.

Chats give them as `{'content': [{'logprob': x, 'top_logprobs': [...]}]}`,
continued texts as `{'token_logprobs': [x], 'top_logprobs': [{token: x}]}`.
Servers leave it open at which temperature they are: those of vLLM are before
temperature and filters unless it is told otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from promptrl_jax.llm.backend import BackendError, Confidence

_TOP = {True: 20, False: 5}  # tokens of a place, as many as OpenAI gives


def asked(is_chat: bool) -> dict[str, Any]:
  """Fields of a request that ask for them."""
  if is_chat:
    return {'logprobs': True, 'top_logprobs': _TOP[is_chat]}
  return {'logprobs': _TOP[is_chat]}


def confidence(choice: Mapping[str, Any]) -> Confidence | None:
  """Sums up the log-probs of a choice; None for an empty completion.

  The entropy counts what is missing of a distribution as one token, which makes
  it a lower bound.

  Raises:
    BackendError: the server gave none.
  """
  found = choice.get('logprobs')
  if not found:
    raise BackendError(
      'has no log-probs: the server does not give them; set certainty=False'
    )
  if 'content' in found:
    places = found['content'] or []
    logps = [float(place['logprob']) for place in places]
    tops = [
      [float(top['logprob']) for top in place['top_logprobs']]
      for place in places
    ]
  else:
    logps = list(map(float, found['token_logprobs']))
    tops = [list(map(float, top.values())) for top in found['top_logprobs']]
  if not logps:
    return None
  entropies = list(map(_entropy, tops))
  return Confidence(
    math.fsum(logps) / len(logps),
    min(logps),
    math.fsum(entropies) / len(entropies),
  )


def _entropy(logps: Iterable[float]) -> float:
  """Entropy in nats, with the rest of the probability as one token."""
  probabilities = [math.exp(min(logp, 0.0)) for logp in logps]
  rest = max(0.0, 1.0 - math.fsum(probabilities))
  return -math.fsum(p * math.log(p) for p in (*probabilities, rest) if p > 0)
