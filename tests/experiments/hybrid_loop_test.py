"""The loop that a config describes has the parts that it names."""

import dataclasses
import functools

import numpy as np
import pytest

from configs.hybrid import Config
from experiments.hybrid_loop import make_loop, make_parts
from promptrl_jax.evolution import diversity
from promptrl_jax.evolution.rewording import SectionWriter
from promptrl_jax.llm.load import BackendConfig
from promptrl_jax.llm.templated import TemplatedBackend
from promptrl_jax.models import sentence_encoder
from promptrl_jax.tasks import queries

BANK = [query.text for query in queries.load('train')]
MODEL = BackendConfig(backend='http', model='nobody')


@functools.cache
def parts(gpro):
  config = dataclasses.replace(Config(), gpro=gpro)
  return make_parts(config, diversity.word_vectors, BANK)


def make(method='gpro_evolution', **settings):
  config = Config(**settings)
  features, learner = parts(config.gpro)
  return make_loop(config, method, 0, learner, TemplatedBackend(), features)


@pytest.mark.slow
def test_sections_are_changed_by_what_the_config_names():
  assert isinstance(make(edits='model', model=MODEL)._edit_fn, SectionWriter)
  assert not isinstance(make()._edit_fn, SectionWriter)
  with pytest.raises(ValueError, match='templates follow no instructions'):
    Config(edits='model')


def test_what_says_the_same_is_told_by_words_or_by_an_embedding():
  texts = ['Answer in short steps.', 'Be brief.']
  for name, embed_fn in (
    ('words', diversity.word_vectors),
    ('shipped', sentence_encoder.load('shipped')),
  ):
    found = make(distances=name)._embed_fn(texts)
    np.testing.assert_array_equal(found, embed_fn(texts))


@pytest.mark.slow
def test_temperatures_are_chosen_by_what_is_known_of_a_question():
  gpro = dataclasses.replace(Config().gpro, temperatures=(0.3, 1.0))
  loop = make('gpro', gpro=gpro)
  asked = [loop.show(text).temperature for text in BANK[:12]]
  assert set(asked) == {0, 1}


@pytest.mark.slow
def test_a_population_of_one_evolves():
  base = Config().loop
  small = dataclasses.replace(
    base,
    population_size=1,
    bootstrap_queries=2,
    bootstrap_prompts=2,
    window=2,
    evolution=dataclasses.replace(base.evolution, elite_size=1, children=2),
  )
  loop = make(loop=small)
  for text in BANK[:10]:
    showing = loop.show(text)
    loop.hear(showing.serial, 0.5)
    loop.learn()
  assert len(loop.population.individuals) == 1
  assert loop.population.generation == 2
