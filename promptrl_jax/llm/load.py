"""Builds a backend from a `BackendConfig`."""

from __future__ import annotations

import dataclasses
import json
import pathlib

from jax.sharding import Mesh

from promptrl_jax.llm.backend import Backend
from promptrl_jax.llm.http import HttpBackend, HttpConfig
from promptrl_jax.llm.jax_lm import JaxLM
from promptrl_jax.models import presets, pretrained
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.sampling import filters as filters_lib
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.sampling.requests import EngineConfig, prompt_lengths_up_to

ASSETS = pathlib.Path(__file__).parent.parent / 'assets'


@dataclasses.dataclass(frozen=True)
class BackendConfig:
  """A language model and how it is reached.

  Attributes:
    backend: `jax` for a model in this process, or `http` for an
      OpenAI-compatible server.
    model: `jax`: an embedded model (`minicode_coder`, `minicode_rewriter`), a
      preset (`codellama_7b_instruct`, see `models/presets.py`), a model folder
      or an id on the hub (`Qwen/Qwen2.5-Coder-0.5B-Instruct`); `http`: the
      server's name of the model.
    dtype: `jax`: of the parameters: `float32`, `bfloat16`, or `int8` for the
      kernels of a causal model (the rest in bfloat16).
    kv_cache: `jax`: `plain` or, for a causal model, `int8`.
    top_k, min_p, repetition_penalty: `jax`: as in `Sampling`; all of them off
      by default. A server is told none of them.
    filters: `jax`: further filters as text, such as `epsilon=3e-4`; see
      `sampling.filters.FILTERS`.
    beams: `jax`: width of the beam search that answers requests at temperature
      0, for an encoder-decoder; 1: greedy decoding.
    base_url, api_key_env, timeout_s, max_retries, concurrency: as in
      `HttpConfig`.
    max_context: context window of the server's model in tokens, 0 if unknown.
    prompt_tokens: `jax`: most tokens of a prompt.
    new_tokens: `jax`: most tokens of a completion.
  """

  backend: str
  model: str
  dtype: str = 'float32'
  kv_cache: str = 'plain'
  top_k: int = 0
  min_p: float = 0.0
  repetition_penalty: float = 1.0
  filters: str = ''
  beams: int = 1
  base_url: str = ''
  api_key_env: str = 'OPENAI_API_KEY'
  timeout_s: float = 180.0
  max_retries: int = 5
  concurrency: int = 8
  max_context: int = 0
  prompt_tokens: int = EngineConfig().prompt_limit
  new_tokens: int = EngineConfig().new_tokens

  def __post_init__(self):
    if self.prompt_tokens < 1 or self.new_tokens < 1:
      raise ValueError(
        f'prompt_tokens={self.prompt_tokens} and new_tokens={self.new_tokens}: '
        'expected at least 1 of both'
      )
    if self.beams < 1:
      raise ValueError(f'beams={self.beams}: expected 1 (greedy) or more')
    if self.backend == 'http' and self.beams != 1:
      raise ValueError(f'beams={self.beams}: a server is asked for 1 alone')
    if self.backend == 'http' and self.method != Sampling():
      raise ValueError(
        f'{self.method}: a server chooses these itself, expected those of '
        f'{Sampling()}'
      )

  @property
  def identity(self) -> str:
    """The settings that answers depend on beside the name, for cache keys."""
    fields = ['backend', 'dtype', 'kv_cache', 'base_url']
    fields += ['top_k', 'min_p', 'repetition_penalty']
    # Named only where they are set, so that older caches stay valid.
    fields += ['filters'] if self.filters else []
    fields += ['beams'] if self.beams != 1 else []
    return json.dumps({field: getattr(self, field) for field in fields})

  @property
  def method(self) -> Sampling:
    """Filters of the sampled distribution."""
    return Sampling(
      self.top_k,
      self.min_p,
      self.repetition_penalty,
      filters_lib.parse(self.filters),
    )


def load_backend(config: BackendConfig, mesh: Mesh | None = None) -> Backend:
  """Loads or connects to the model.

  Args:
    config: which model, and where.
    mesh: devices of a model in this process; None for all of them, along data.

  Raises:
    ValueError: unknown backend, or no address for `http`.
    FileNotFoundError: no such model, or it cannot be fetched.
  """
  if config.backend == 'jax':
    return JaxLM.from_folder(
      find(config.model),
      mesh or mesh_lib.make_data_mesh(),
      config.dtype,
      _shapes(config),
      config.kv_cache,
      config.method,
      config.beams,
    )
  if config.backend == 'http':
    if not config.base_url:
      raise ValueError(
        'backend "http" needs base_url, e.g. http://127.0.0.1:8000/v1'
      )
    return HttpBackend(
      HttpConfig(
        base_url=config.base_url,
        model=config.model,
        api_key_env=config.api_key_env,
        timeout_s=config.timeout_s,
        max_retries=config.max_retries,
        concurrency=config.concurrency,
        max_context=config.max_context or None,
      )
    )
  raise ValueError(f'backend {config.backend!r}: expected "jax" or "http"')


def _shapes(config: BackendConfig) -> EngineConfig:
  return EngineConfig(
    prompt_lengths=prompt_lengths_up_to(config.prompt_tokens),
    new_tokens=config.new_tokens,
  )


def find(model: str) -> pathlib.Path:
  """The folder of an embedded model, a preset, a folder or a hub id.

  Raises:
    FileNotFoundError: there is no such model, or it cannot be fetched.
  """
  known = sorted(p.name for p in ASSETS.iterdir() if p.is_dir())
  if model in known:
    return ASSETS / model
  if model and (pathlib.Path(model).is_dir() or model.count('/') == 1):
    return pretrained.find(model)
  try:
    preset = presets.find(model)
  except ValueError as error:
    raise FileNotFoundError(
      f'no model {model!r}: expected a folder, an id on the hub '
      f'(organisation/name) or one of {", ".join([*known, *presets.PRESETS])}'
    ) from error
  return pretrained.find(preset.hub_id)
