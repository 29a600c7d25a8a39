"""A fake of OpenAI-compatible servers: chats and continued texts."""

from __future__ import annotations

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
    return Reply(
      body={
        'choices': [{**content, 'finish_reason': answer.finish_reason}],
        'usage': {
          'prompt_tokens': answer.prompt_tokens,
          'completion_tokens': answer.completion_tokens,
        },
      }
    )
