"""Sampling from language models by continuous batching."""

from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.sampling.requests import EngineConfig, SamplingParams
from promptrl_jax.sampling.sampler import Sampler, TextSample

__all__ = [
  'EngineConfig',
  'Sampler',
  'Sampling',
  'SamplingParams',
  'TextSample',
]
