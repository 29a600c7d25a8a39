"""How a server is reached: address, key, time-outs, retries and limits."""

from __future__ import annotations

import dataclasses
import ipaddress
import math
import os

import httpx


@dataclasses.dataclass(frozen=True)
class HttpConfig:
  """Address of the server, time-outs, retries and limits.

  Attributes:
    api_key_env: environment variable that holds the API key; if empty, no key
      is sent. The variable may be unset only for servers on this machine.
    read_timeout_s: time limit between two chunks of a response.
    timeout_s: time limit for one attempt as a whole.
    run_timeout_s: wall seconds after the first request of a run at which it
      ends with an error; what was answered is kept. 0: no limit.
    backoff_s: upper end of the first wait; it doubles with each attempt.
    max_wait_s: longest wait; the backend gives up if the server asks for more.
    requests_per_minute, tokens_per_minute: what the server allows; retries
      count. Tokens are those of the prompt and `max_tokens`, of which the ones
      that were not used are given back. 0: no limit.
    max_tokens_field: name of the token limit in the request body; some models
      of OpenAI need `max_completion_tokens`.
  """

  base_url: str = ''
  api_key_env: str = 'OPENAI_API_KEY'
  connect_timeout_s: float = 10.0
  read_timeout_s: float = 120.0
  timeout_s: float = 180.0
  run_timeout_s: float = 0.0
  max_retries: int = 5
  backoff_s: float = 0.5
  max_wait_s: float = 60.0
  concurrency: int = 8
  requests_per_minute: float = 0.0
  tokens_per_minute: float = 0.0
  max_context: int | None = None
  max_tokens_field: str = 'max_tokens'

  def __post_init__(self):
    url = httpx.URL(self.base_url)
    if self.base_url and (url.scheme not in ('http', 'https') or not url.host):
      raise ValueError(
        'base_url has no scheme or host; expected something like '
        f'http://127.0.0.1:8000/v1, got {self.base_url!r}'
      )
    if url.userinfo:
      raise ValueError(
        'base_url holds a user name or password; remove it and put the key '
        'into the environment variable named by api_key_env'
      )
    for field in ('connect_timeout_s', 'read_timeout_s', 'timeout_s'):
      if not getattr(self, field) > 0:
        raise ValueError(
          f'{field} is {getattr(self, field)}; expected a positive number'
        )
    for field in ('run_timeout_s', 'requests_per_minute', 'tokens_per_minute'):
      if not 0 <= getattr(self, field) < math.inf:
        raise ValueError(
          f'{field} is {getattr(self, field)}; expected a positive number, or '
          '0 for no limit'
        )
    if self.concurrency < 1 or self.max_retries < 0:
      raise ValueError(
        f'concurrency is {self.concurrency} and max_retries is '
        f'{self.max_retries}; expected at least 1 and at least 0'
      )


def estimate_tokens(text: str) -> int:
  """Returns an upper estimate, since only the server has the tokenizer."""
  return math.ceil(len(text.encode(errors='surrogatepass')) / 3)


def read_key(variable: str, optional: bool) -> str:
  """Returns the API key in an environment variable; '' if there is none.

  Raises:
    ValueError: there is none and it is not optional, or no header can hold it.
  """
  key = os.environ.get(variable, '').strip() if variable else ''
  if variable and not key and not optional:
    raise ValueError(
      f'environment variable {variable} holds no key; set it, or set '
      "api_key_env='' for a server that needs none"
    )
  if not (key.isascii() and key.isprintable()):
    raise ValueError(
      f'the key in environment variable {variable} has characters that cannot '
      'be sent in a header'
    )
  return key


def is_loopback(host: str) -> bool:
  """Returns whether a host is this machine."""
  if host == 'localhost':
    return True
  try:
    return ipaddress.ip_address(host).is_loopback
  except ValueError:
    return False
