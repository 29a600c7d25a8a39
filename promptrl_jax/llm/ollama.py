"""A backend for Ollama's own protocol, which knows more than its `/v1`.

`POST /api/chat` answers conversations and `POST /api/generate`, raw, goes on
with a text. Sampling is what a request says: the filters that Ollama adds by
default (top 40, min-p, a penalty on repetition) are set, and off by default.
The length of the context is `max_context`; without it Ollama takes its own and
cuts longer prompts at their start without a word. `GET /api/tags` says whether
the server is up and which models it has, `POST /api/pull` fetches one, `POST
/api/embed` turns texts into vectors. `transport.py` says how requests are sent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from promptrl_jax.llm.backend import BackendError, Completion, Request
from promptrl_jax.llm.http import ServerBackend, completion_of, most_tokens
from promptrl_jax.llm.http_config import HttpConfig
from promptrl_jax.llm.transport import Post
from promptrl_jax.sampling.methods import Sampling

BASE_URL = 'http://127.0.0.1:11434'
_DIGITS = 12  # of a digest, as Ollama prints it


@dataclasses.dataclass(frozen=True)
class OllamaOptions:
  """Settings of this backend alone.

  Attributes:
    pull: fetch a model that the server does not have.
  """

  pull: bool = False


@dataclasses.dataclass(frozen=True)
class Progress:
  """A step of a download.

  Attributes:
    status: what is done: `pulling manifest`, `pulling` a layer, `success`.
    completed, total: bytes of the layer; 0 where it has none.
  """

  status: str
  completed: int = 0
  total: int = 0


class OllamaBackend(ServerBackend):
  """A language model on an Ollama server."""

  def __init__(
    self, model: str, config: HttpConfig, method: Sampling = Sampling()
  ):
    """Opens no connection yet.

    Args:
      model: its name, with or without a tag: `qwen2.5-coder:1.5b`.
      config: as of any server. The address is this machine's by default, and a
        key is sent if `api_key_env` names another variable than OpenAI's.
      method: filters of the sampled distribution.

    Raises:
      ValueError: no model is named, the key is missing, or the server has no
        such filters.
    """
    if not model:
      raise ValueError(
        'backend "ollama" needs the name of a model, e.g. qwen2.5-coder:1.5b'
      )
    if method.filters:
      raise ValueError(
        f'filters={method.filters}: Ollama has top_k, min_p and '
        'repetition_penalty'
      )
    if config.api_key_env == HttpConfig.api_key_env:
      config = dataclasses.replace(config, api_key_env='')
    if not config.base_url:
      config = dataclasses.replace(config, base_url=BASE_URL)
    super().__init__(model, config)
    self._method = method
    self._digest = ''

  @property
  def name(self) -> str:
    """The model, with its digest once `find` has seen it."""
    return f'{self._model}@{self._digest}' if self._digest else self._model

  def models(self) -> dict[str, str]:
    """Returns the digests of the models that the server has, by name and tag.

    Raises:
      BackendError: the server is down, or is no Ollama.
    """
    return self._transport.one(
      Post('/api/tags'),
      lambda content: (
        {row['name']: row['digest'] for row in content['models']},
        0,
      ),
    )

  def find(
    self,
    pull: bool = False,
    progress: Callable[[Progress], None] = lambda step: None,
  ) -> None:
    """Checks that the server is up and has the model; its digest joins `name`.

    Args:
      pull: fetch a model that the server does not have.
      progress: called with each step of that.

    Raises:
      BackendError: the server is down, has no such model, or cannot fetch it.
    """
    tagged = self._model if ':' in self._model else f'{self._model}:latest'
    models = self.models()
    if tagged not in models and pull:
      self.pull(progress)
      models = self.models()
    if tagged not in models:
      raise BackendError(
        f'{self._config.base_url} has no model {tagged!r}, only '
        f'{", ".join(models) or "none"}: run `ollama pull {self._model}`, or '
        'set options.pull'
      )
    digest = models[tagged].removeprefix('sha256:')
    self._digest = digest[:_DIGITS]

  def pull(
    self, progress: Callable[[Progress], None] = lambda step: None
  ) -> None:
    """Fetches the model; a fetch that broke goes on where it was.

    Raises:
      BackendError: the server is down, or the download failed.
    """
    body, status = {'model': self._model, 'stream': True}, ''
    for line in self._transport.lines(Post('/api/pull', body)):
      if not isinstance(line, dict) or 'status' not in line:
        problem = line.get('error') if isinstance(line, dict) else line
        raise BackendError(
          f'{self._config.base_url} cannot pull {self._model!r}: {problem}'
        )
      status = line['status']
      done, total = line.get('completed', 0), line.get('total', 0)
      progress(Progress(status, done, total))
    if status != 'success':
      raise BackendError(
        f'{self._config.base_url} stopped to pull {self._model!r} at '
        f'{status!r}: start again, which goes on from there'
      )

  def embed(self, texts: Sequence[str]) -> np.ndarray:
    """Returns vectors, float32 [N, D], of N texts.

    Raises:
      BackendError: the server is down, or the model embeds nothing.
    """

    def parse(content: Any) -> tuple[np.ndarray, int]:
      vectors = np.asarray(content['embeddings'], np.float32)
      if vectors.ndim != 2 or len(vectors) != len(texts):
        raise ValueError(f'{len(texts)} texts have vectors {vectors.shape}')
      return vectors, content.get('prompt_eval_count', 0)

    body = {'model': self._model, 'input': list(texts)}
    tokens = sum(map(self.count_tokens, texts))
    return self._transport.one(Post('/api/embed', body, tokens), parse)

  def _post(self, request: Request) -> Post:
    options: dict[str, Any] = {
      'temperature': request.temperature,
      'top_p': request.top_p,
      'seed': request.seed,
      'num_predict': request.max_tokens,
      'top_k': self._method.top_k,
      'min_p': self._method.min_p,
      'repeat_penalty': self._method.repetition_penalty,
    }
    if request.stop:
      options['stop'] = list(request.stop)
    if self._config.max_context is not None:
      options['num_ctx'] = self._config.max_context
    body = {'model': self._model, 'stream': False, 'options': options}
    if request.is_text:
      body |= {'prompt': request.messages[0].content, 'raw': True}
    else:
      body['messages'] = [dataclasses.asdict(m) for m in request.messages]
    path = '/api/generate' if request.is_text else '/api/chat'
    return Post(path, body, most_tokens(request))

  def _parse(self, content: Any) -> tuple[Completion, int]:
    if not content['done']:
      raise BackendError('is not finished')
    is_chat = 'message' in content
    text = content['message']['content'] if is_chat else content['response']
    # Ollama leaves out a count of 0: a cached prompt, or an empty answer.
    return completion_of(
      text,
      content.get('prompt_eval_count', 0),
      content.get('eval_count', 0),
      content.get('done_reason') == 'length',
    )
