"""Builds a backend from a `BackendConfig`."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax.sharding import Mesh

from promptrl_jax import settings
from promptrl_jax.llm import replay
from promptrl_jax.llm.backend import Backend
from promptrl_jax.llm.http import HttpBackend
from promptrl_jax.llm.http_config import HttpConfig
from promptrl_jax.llm.jax_lm import JaxLM
from promptrl_jax.llm.ollama import OllamaBackend, OllamaOptions, Progress
from promptrl_jax.llm.templated import TemplatedBackend
from promptrl_jax.models import presets, pretrained
from promptrl_jax.parallel import host_memory
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.registry import Registry, check_call
from promptrl_jax.sampling import filters as filters_lib
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.sampling.requests import EngineConfig, prompt_lengths_up_to

# (config, mesh or None) -> Backend
LoadFn = Callable[['BackendConfig', Mesh | None], Backend]
_GIB = 1 << 30
ASSETS = pathlib.Path(__file__).parent.parent / 'assets'


@dataclasses.dataclass(frozen=True)
class BackendConfig:
  """A language model and how it is reached.

  Attributes:
    backend: `jax` runs the model in this process; `http` asks an
      OpenAI-compatible server, `ollama` an Ollama server by its own protocol;
      `replay` gives recorded completions again; `templated` answers from
      templates, offline (`llm/templated.py`).
    model: for `jax`, an embedded model (`minicode_coder`,
      `minicode_rewriter`), a preset (`codellama_7b_instruct`, see
      `models/presets.py`), a model folder, a GGUF file or an id on the hub
      (`Qwen/Qwen2.5-Coder-0.5B-Instruct`); for servers, their name of the
      model; for `replay`, the `trace.jsonl` of a run or the file of a cache.
    dtype: type of the parameters, for `jax` only: `float32`, `bfloat16`,
      `int8`, which quantizes the kernels of a causal model and keeps its other
      parameters in bfloat16, or `gguf`, which keeps those of a GGUF file in the
      4 or 8 bits that it stores.
    top_k, min_p, repetition_penalty: as in `Sampling`, for `jax` and `ollama`;
      all of them are off by default.
    filters: further filters as text, such as `epsilon=3e-4`, for `jax` only;
      see `sampling.filters.FILTERS`.
    beams: width of the beam search for requests at temperature 0, for an
      encoder-decoder in this process; 1: greedy decoding.
    prompt_tokens, new_tokens: most tokens of a prompt and of a completion, for
      `jax` only.
    slots: completions that are decoded at once, for `jax` only.
    http: address, time-outs, retries and limits of a server.
    prompt_cache_gib: most memory for prompts that may be asked again, for `jax`
      only. On a CPU it is a third of the machine's at most.
    certainty: measure how sure the model is of its completions
      (`Completion.confidence`), for `jax` without beams and `http`.
    options: settings of this backend alone: `OllamaOptions`, `ReplayOptions`.
  """

  backend: str = 'jax'
  model: str = ''
  dtype: str = 'float32'
  kv_cache: str = 'plain'
  top_k: int = Sampling().top_k
  min_p: float = Sampling().min_p
  repetition_penalty: float = Sampling().repetition_penalty
  filters: str = ''
  beams: int = 1
  http: HttpConfig = HttpConfig()
  prompt_tokens: int = EngineConfig().prompt_limit
  new_tokens: int = EngineConfig().new_tokens
  slots: int = EngineConfig().slots
  prompt_cache_gib: float = 1.0
  certainty: bool = False
  options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  def __post_init__(self):
    for field in ('prompt_tokens', 'new_tokens', 'slots'):
      if getattr(self, field) < 1:
        raise ValueError(f'{field}={getattr(self, field)}: expected 1 or more')
    if self.beams < 1:
      raise ValueError(f'beams={self.beams}: expected 1 (greedy) or more')
    if self.is_server and self.beams != 1:
      raise ValueError(f'beams={self.beams}: a server is asked for 1 alone')
    measures = self.backend in ('jax', 'http') and self.beams == 1
    if self.certainty and not measures:
      raise ValueError(
        f'certainty=True with backend={self.backend!r} and beams={self.beams}: '
        "expected 'jax' or 'http' and no beam search, which measure it"
      )
    if self.backend == 'http' and self.method != Sampling():
      raise ValueError(
        f'{self.method}: a server chooses these itself, expected those of '
        f'{Sampling()}'
      )

  @property
  def is_server(self) -> bool:
    return self.backend in ('http', 'ollama')

  @property
  def is_free(self) -> bool:
    """Whether its calls cost no money; a plug-in may ask a server."""
    return self.backend in ('jax', 'replay')

  @property
  def identity(self) -> str:
    """Settings that completions depend on, as JSON text for cache keys."""
    fields = ['backend', 'dtype', 'kv_cache', 'base_url']
    fields += ['top_k', 'min_p', 'repetition_penalty']
    # These appear only if they are set, so that older caches stay valid.
    fields += ['filters'] if self.filters else []
    fields += ['beams'] if self.beams != 1 else []
    fields += ['certainty'] if self.certainty else []
    values = {**vars(self), 'base_url': self.http.base_url}
    return json.dumps({field: values[field] for field in fields})

  @property
  def method(self) -> Sampling:
    return Sampling(
      self.top_k,
      self.min_p,
      self.repetition_penalty,
      filters_lib.parse(self.filters),
    )


def load_backend(config: BackendConfig, mesh: Mesh | None = None) -> Backend:
  """Loads the model, or builds the client of its server.

  A model in this process runs on `mesh`; None: all devices, along `data`.
  """
  return BACKENDS[config.backend](config, mesh)


def _load_jax(config: BackendConfig, mesh: Mesh | None) -> Backend:
  return JaxLM.from_folder(
    find(config.model),
    mesh or mesh_lib.make_data_mesh(),
    config.dtype,
    EngineConfig(
      config.slots,
      prompt_lengths=prompt_lengths_up_to(config.prompt_tokens),
      new_tokens=config.new_tokens,
      prompt_cache_bytes=_prompt_cache_bytes(config.prompt_cache_gib),
      certainty=config.certainty,
    ),
    config.kv_cache,
    config.method,
    config.beams,
  )


def _prompt_cache_bytes(gib: float) -> int:
  wanted = int(gib * _GIB)
  if jax.default_backend() != 'cpu':
    return wanted
  return min(wanted, host_memory.total_bytes() // 3)


def _load_http(config: BackendConfig, mesh: Mesh | None) -> Backend:
  del mesh
  return HttpBackend(config.model, config.http, config.certainty)


def _load_ollama(config: BackendConfig, mesh: Mesh | None) -> Backend:
  del mesh
  options = settings.from_mapping(OllamaOptions, config.options, 'options')
  backend = OllamaBackend(config.model, config.http, config.method)
  try:
    backend.find(options.pull, _print_progress)
  except BaseException:
    backend.close()
    raise
  return backend


def _print_progress(step: Progress) -> None:
  done = f' {step.completed / step.total:.0%}' if step.total else ''
  print(f'\r{step.status}{done}', end='', flush=True)
  if step.completed == step.total:
    print()


def _load_replay(config: BackendConfig, mesh: Mesh | None) -> Backend:
  del mesh
  options = settings.from_mapping(
    replay.ReplayOptions, config.options, 'options'
  )
  return replay.load(config.model, options, config.http.max_context)


def _load_templated(
  config: BackendConfig, mesh: Mesh | None
) -> TemplatedBackend:
  del config, mesh
  return TemplatedBackend()


def _check(name: str, load_fn: LoadFn) -> None:
  check_call(f'backend {name!r}', load_fn, 'config', 'mesh')


BACKENDS: Registry[LoadFn] = Registry('backend', _check)


def register(name: str, load_fn: LoadFn) -> LoadFn:
  """Makes a backend known by its name; returns its loader."""
  return BACKENDS.register(name, load_fn)


register('jax', _load_jax)
register('http', _load_http)
register('ollama', _load_ollama)
register('replay', _load_replay)
register('templated', _load_templated)


def find(model: str) -> pathlib.Path:
  """Returns the folder or file of a `BackendConfig.model`, fetched if needed.

  Raises:
    FileNotFoundError: the model does not exist or cannot be downloaded.
  """
  embedded = sorted(p.name for p in ASSETS.iterdir() if p.is_dir())
  if model in embedded:
    return ASSETS / model
  if model and (pathlib.Path(model).exists() or model.count('/') == 1):
    return pretrained.find(model)
  try:
    preset = presets.find(model)
  except ValueError as error:
    names = ', '.join([*embedded, *presets.PRESETS])
    raise FileNotFoundError(
      f'no model {model!r}: expected a folder, a GGUF file, an id on the hub '
      f'(organisation/name) or one of {names}'
    ) from error
  if preset.package is not None:
    return preset.package.path()
  return pretrained.find(preset.hub_id)
