"""A learner and a loop that are small enough for tests."""

import numpy as np

from promptrl_jax.evolution import diversity, edits
from promptrl_jax.llm.templated import TemplatedBackend
from promptrl_jax.prompts import catalogue
from promptrl_jax.tasks import queries
from promptrl_jax.training.gpro.config import GPROConfig
from promptrl_jax.training.gpro.features import FeatureMap
from promptrl_jax.training.gpro.learner import make_learner
from promptrl_jax.training.gpro.loop import Loop
from promptrl_jax.training.gpro.phases import LoopConfig

BANK = [query.text for query in queries.load('train')]
SMALL = LoopConfig(
  population_size=6, bootstrap_queries=3, bootstrap_prompts=20, window=3
)


def make_parts(**settings):
  """Features of answers, and a learner with further settings."""
  features = FeatureMap(diversity.word_vectors, BANK, components=2)
  config = GPROConfig(
    features=features.size,
    context=features.context,
    members=2,
    capacity=32,
    actor_steps=2,
    minibatch=8,
    **settings,
  )
  return features, make_learner(config, 0)


def make_loop(parts, backend=None, *, config=SMALL, seed=0, embed_fn=None):
  """A loop before its first question; a small one if nothing is said."""
  features, learner = parts
  rng = np.random.default_rng(seed)
  return Loop(
    config,
    learner,
    backend or TemplatedBackend(),
    features,
    [catalogue.draw(rng) for _ in range(config.first_prompts)],
    edits.choose_from(catalogue.ALTERNATIVES),
    seed,
    embed_fn,
  )
