"""A fake of OpenAI-compatible servers: chats and continued texts."""

from __future__ import annotations

import math
from typing import Any

from promptrl_jax.testing.fake_server import FakeServer, Reply

NO_USAGE = Reply(body={'choices': [{'message': {'content': 'x'}}]})


class FakeOpenAI(FakeServer):
  """Answers `/v1/chat/completions` and `/v1/completions`."""

  prefix = '/v1'

  def respond(self, path: str, body: Any) -> Reply:
    if path not in ('/chat/completions', '/completions'):
      return Reply(404, {'error': f'no such path: {path}'})
    answer = self.complete(body)
    if isinstance(answer, Reply):
      return answer
    is_chat = path == '/chat/completions'
    text = answer.text or None  # As some servers write an empty text.
    content = {'message': {'content': text}} if is_chat else {'text': text}
    if body.get('logprobs'):
      content['logprobs'] = _logprobs(answer.text, is_chat)
    return Reply(
      body={
        'choices': [{**content, 'finish_reason': answer.finish_reason}],
        'usage': {
          'prompt_tokens': answer.prompt_tokens,
          'completion_tokens': answer.completion_tokens,
        },
      }
    )


def _logprobs(text: str, is_chat: bool) -> Any:
  """A token per word: the first has 1/2, the others 1/4, another one 1/4."""
  words = text.split()
  logps = [math.log(0.25 if i else 0.5) for i in range(len(words))]
  other = math.log(0.25)
  if not is_chat:
    tops = [{w: p, 'other': other} for w, p in zip(words, logps, strict=True)]
    return {'tokens': words, 'token_logprobs': logps, 'top_logprobs': tops}
  return {
    'content': [
      {
        'token': word,
        'logprob': logp,
        'top_logprobs': [
          {'token': word, 'logprob': logp},
          {'token': 'other', 'logprob': other},
        ],
      }
      for word, logp in zip(words, logps, strict=True)
    ]
  }
