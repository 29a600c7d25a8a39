"""Text to text: the sampler of a language model.

from promptrl_jax.sampling import Sampler
samples = Sampler.load('path/to/model').sample(['def add(a, b):'])
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jax.sharding import Mesh

from promptrl_jax.models import pretrained
from promptrl_jax.models.config import TransformerConfig
from promptrl_jax.models.encoder_decoder_config import (
  EncoderDecoderConfig,
  LanguageModelConfig,
)
from promptrl_jax.models.tokenizer import Tokenizer, with_special_tokens
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.sampling import prepare
from promptrl_jax.sampling.batch_beam import BeamSearcher
from promptrl_jax.sampling.batch_scorer import BatchScorer
from promptrl_jax.sampling.beam import Beams
from promptrl_jax.sampling.engine import make_engine
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.sampling.requests import (
  EngineConfig,
  EngineRequest,
  Sample,
  SamplingParams,
  check,
)


@dataclasses.dataclass(frozen=True)
class TextSample:
  """A completion of a text, without special tokens; else as `Sample`."""

  text: str
  prompt_tokens: int
  tokens: np.ndarray
  logps: np.ndarray
  stopped: bool
  certainty: np.ndarray | None = None


class Sampler:
  """Samples from a causal or an encoder-decoder model.

  A sample depends on its own prompt, settings and seed, not on those beside it.
  Shapes are fixed, so that a bounded number of programs is compiled.

  Attributes:
    config: the model, with all stop tokens of the tokenizer.
  """

  def __init__(
    self,
    config: LanguageModelConfig,
    params: Any,
    tokenizer: Tokenizer,
    mesh: Mesh | None = None,
    shapes: EngineConfig = EngineConfig(),
    method: Sampling = Sampling(),
    bits: int | None = None,
    beams: int = 1,
  ):
    """Lays out the parameters for decoding.

    Args:
      params: of the model, or what `prepare` made of them for this mesh.
      mesh: devices to sample on; None: all, along `data`. The devices of a mesh
        with the axis `data` alone hold a copy of the model each and work on
        slots of their own; over `fsdp` and `tensor` the parameters are split.
      beams: width of the beam search that replaces greedy decoding at
        temperature 0, for an encoder-decoder; 1: greedy decoding.

    Raises:
      ValueError: the lengths exceed the context of the model, or a causal model
        is to search with beams.
    """
    config = with_special_tokens(config, tokenizer)
    mesh = mesh_lib.make_data_mesh() if mesh is None else mesh
    if not isinstance(params, prepare.DecodeParams):
      params = _prepared(config, params, mesh, bits)
    self.config = config
    self.tokenizer = tokenizer
    self.shapes = shapes
    self._engine = make_engine(config, method, params, mesh, shapes)
    self._scorer = BatchScorer(config, params, mesh, shapes)
    self._searcher = None
    if beams != 1:
      search = Beams(beams, repetition_penalty=method.repetition_penalty)
      self._searcher = BeamSearcher(config, search, params, mesh, shapes)

  @classmethod
  def load(
    cls,
    source: str | pathlib.Path,
    mesh: Mesh | None = None,
    dtype: str = 'float32',
    shapes: EngineConfig = EngineConfig(),
    kv_cache: str = 'plain',
    method: Sampling = Sampling(),
    beams: int = 1,
  ) -> Sampler:
    """Reads a model folder in Hugging Face's layout, or a model of the hub.

    Args:
      mesh: devices to sample on. If it has an axis besides `data`, each device
        reads its part of the parameters and none ever holds all of them.
      dtype: of the parameters: `float32`, `bfloat16`, or `int8` for the kernels
        (the rest in bfloat16), or `gguf`, see `load_pretrained`.

    Raises:
      FileNotFoundError: there is no such model, or it lacks a file.
      ValueError: the model cannot be read, writes no text, or has heads that
        the mesh does not divide.
    """
    mesh = mesh_lib.make_data_mesh() if mesh is None else mesh
    # On a mesh of data alone, devices of a CPU are to share one copy.
    split = mesh if mesh_lib.splits_parameters(mesh) else None
    bits = 8 if dtype == 'int8' else None

    def layout(config: Any, params: Any) -> Any:
      if not isinstance(config, LanguageModelConfig):
        return None
      return _prepared(config, params, mesh, bits)

    config, params, tokenizer = pretrained.load_pretrained(
      source, split, 'bfloat16' if bits else dtype, layout=layout
    )
    if not isinstance(config, LanguageModelConfig):
      raise ValueError(
        f'{source} is a {config.family} model, which writes no text: '
        'expected a causal or an encoder-decoder language model'
      )
    if kv_cache != 'plain':
      if not isinstance(config, TransformerConfig):
        raise ValueError(
          f'kv_cache={kv_cache!r}: that of a {config.family} model is always '
          'plain'
        )
      config = dataclasses.replace(config, kv_cache=kv_cache)
    return cls(config, params, tokenizer, mesh, shapes, method, bits, beams)

  @property
  def is_causal(self) -> bool:
    """Whether a completion continues its prompt (else it answers it)."""
    return not isinstance(self.config, EncoderDecoderConfig)

  def sample(
    self,
    texts: Sequence[str],
    *,
    max_new_tokens: int | None = None,
    temperature: float = 1.0,
    top_p: float = 1.0,
    seed: int = 0,
  ) -> list[TextSample]:
    """Samples one completion of each text.

    Args:
      seed: text i draws with seed + i, so that equal texts differ.

    Raises:
      ValueError: a prompt or `max_new_tokens` exceeds the shapes.
    """
    most = self.shapes.new_tokens if max_new_tokens is None else max_new_tokens
    prompts = [self.tokenizer.render([('user', text)]) for text in texts]
    seeds = range(seed, seed + len(texts))
    return self.complete(
      prompts, [SamplingParams(most, temperature, top_p, s) for s in seeds]
    )

  def complete(
    self, prompts: Sequence[Sequence[int]], params: Sequence[SamplingParams]
  ) -> list[TextSample]:
    """Completes prompts of token ids; equal prompts are prefilled once.

    With beams, samples at temperature 0 are searched for and not watched.

    Raises:
      ValueError: a request does not fit the shapes or the vocabulary.
    """
    samples = dict(self.complete_each(prompts, params))
    return [samples[i] for i in range(len(prompts))]

  def complete_each(
    self, prompts: Sequence[Sequence[int]], params: Sequence[SamplingParams]
  ) -> Iterator[tuple[int, TextSample]]:
    """Yields (index of the prompt, sample) as samples end; see `complete`."""
    searched: set[int] = set()
    greedy = [i for i, p in enumerate(params) if p.temperature == 0]
    if self._searcher and greedy:
      check(
        [EngineRequest(prompts[i], [params[i]]) for i in greedy],
        self.config.vocab_size,
        self.shapes,
      )
      found = self._searcher.run(
        [prompts[i] for i in greedy], [params[i].max_tokens for i in greedy]
      )
      for i, sample in zip(greedy, found, strict=True):
        yield i, self._text_sample(prompts[i], sample)
      searched = set(greedy)
    same: dict[tuple[int, ...], list[int]] = {}
    for i, prompt in enumerate(prompts):
      if i not in searched:
        same.setdefault(tuple(prompt), []).append(i)
    places = list(same.values())
    requests = [
      EngineRequest(prompt, [params[i] for i in of_prompt])
      for prompt, of_prompt in same.items()
    ]
    ended = self._engine.run_each(requests) if requests else ()
    for request, index, sample in ended:
      i = places[request][index]
      yield i, self._text_sample(prompts[i], sample)

  def _text_sample(self, prompt: Sequence[int], sample: Sample) -> TextSample:
    (text,) = self.tokenizer.decode_after([sample.tokens.tolist()])
    return TextSample(
      text,
      len(prompt),
      sample.tokens,
      sample.logps,
      sample.stopped,
      sample.certainty,
    )

  def score(
    self, prompts: Sequence[Sequence[int]], texts: Sequence[Sequence[int]]
  ) -> list[np.ndarray]:
    """Log-probs float32 [N] of given tokens, at temperature 1 without filters.

    Raises:
      ValueError: a text is empty or too long.
    """
    return self._scorer.run(prompts, texts)

  def replace_params(self, params: prepare.DecodeParams) -> None:
    """Samples and scores from here on with other parameters from `prepare`."""
    self._engine.replace_params(params)
    self._scorer.replace_params(params)
    if self._searcher:
      self._searcher.replace_params(params)

  def compiled_programs(self) -> int:
    """Number of sampling programs so far: constant after warm-up."""
    searches = self._searcher.compiled_programs() if self._searcher else 0
    return self._engine.compiled_programs() + searches


def _prepared(
  config: LanguageModelConfig, params: Any, mesh: Mesh, bits: int | None
) -> prepare.DecodeParams:
  rules = None
  if mesh_lib.splits_parameters(mesh):
    rules = pretrained.family(config.family).partition
  return prepare.prepare(params, mesh, rules, bits)
