"""The loop of one person, as a config of `experiments.hybrid` describes it.

No flags here.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from configs.hybrid import EVOLVING
from promptrl_jax.evolution import diversity, edits
from promptrl_jax.evolution.rewording import SectionWriter
from promptrl_jax.models import sentence_encoder
from promptrl_jax.prompts import catalogue
from promptrl_jax.training.gpro.features import FeatureMap
from promptrl_jax.training.gpro.learner import make_learner
from promptrl_jax.training.gpro.loop import Loop

_PROMPTS = 200  # to whose embeddings components are fitted


def make_parts(config, embed_fn, asked):
  """Features fitted to questions [n], and the learner that reads them."""
  rng = np.random.default_rng(0)
  features = FeatureMap(
    embed_fn,
    asked,
    config.components,
    prompts=[catalogue.draw(rng).render() for _ in range(_PROMPTS)],
    prompt_components=config.prompt_components,
  )
  gpro = dataclasses.replace(
    config.gpro, features=features.size, context=features.context
  )
  return features, make_learner(gpro, config.seed)


def make_loop(config, method, seed, learner, backend, features):
  """The loop of one person under one method."""
  name = method.removesuffix(EVOLVING)
  loop_config = dataclasses.replace(
    config.loop, choose=name, evolves=method.endswith(EVOLVING)
  )
  rng = np.random.default_rng([seed, 3])
  return Loop(
    loop_config,
    learner,
    backend,
    features,
    [catalogue.draw(rng) for _ in range(loop_config.first_prompts)],
    (
      SectionWriter(backend)
      if config.edits == 'model'
      else edits.choose_from(catalogue.ALTERNATIVES)
    ),
    seed,
    (
      diversity.word_vectors
      if config.distances == 'words'
      else sentence_encoder.load(config.distances)
    ),
  )
