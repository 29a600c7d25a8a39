"""Texts that evolve, on islands too, and what each setting changes."""

import dataclasses

import pytest

from promptrl_jax.evolution.islands import IslandsConfig
from promptrl_jax.prompts.meta import MetaConfig
from promptrl_jax.strategies.texts import evolve
from promptrl_jax.strategies.texts.best_of_n import BestOfNConfig
from promptrl_jax.strategies.texts.evolve import EvolveConfig
from promptrl_jax.strategies.texts.proposer import ProposerConfig
from promptrl_jax.strategies.texts.searches import SEARCHES
from promptrl_jax.testing.scripted import ScriptedBackend
from tests.strategies.texts.optimize_test import WORDS, reader, run


def test_texts_evolve_on_islands_that_send_their_best_on(monkeypatch):
  draw = evolve._parents

  def families(every):
    """Of each island in turn, generation by generation: who may be a parent."""
    seen = []

    def watched(pool, population, config, rng):
      if not seen or seen[-1] is not population:
        seen.append(population)
      return draw(pool, population, config, rng)

    monkeypatch.setattr(evolve, '_parents', watched)
    islands = IslandsConfig(count=2, every=every)
    run('evolve', 400, population=6, islands=islands)
    return [set(places) for places in seen]

  apart = families(every=0)
  assert apart[:2] == [{0}, {0}]
  for first, second in zip(apart[::2], apart[1::2], strict=False):
    assert first & second <= {0}  # The start text is all that they share.
  visited = families(every=1)
  assert apart[:4] != visited[:4]
  assert any(
    a & b - {0} for a, b in zip(visited[::2], visited[1::2], strict=False)
  )


def test_one_island_is_a_population_without_islands():
  usual = run('evolve', 200)
  assert usual == run('evolve', 200, islands=IslandsConfig(1, every=1))


def test_islands_need_room_for_more_than_their_elite():
  with pytest.raises(ValueError, match='population=4, islands=3: expected'):
    run('evolve', islands=IslandsConfig(3))


def cased(text, word):
  """A metric that few texts are equal in, and none is perfect."""
  share = sum(w in text for w in WORDS) / 10
  return (float(word in text) + share, f'name {word}')


@pytest.mark.parametrize(
  ('strategy', 'config', 'knobs'),
  [
    (
      'evolve',
      EvolveConfig(),
      {
        'population': 5,
        'elite': 2,
        'crossover': 1.0,
        'tournament': 1,
        'islands': IslandsConfig(count=2, every=1),
      },
    ),
    ('best_of_n', BestOfNConfig(), {'batch': 2}),
  ],
)
def test_every_knob_changes_the_history(strategy, config, knobs):
  assert SEARCHES[strategy].config is type(config)
  assert knobs.keys() == {f.name for f in dataclasses.fields(config)}
  base = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}

  def history(**options):
    model = ScriptedBackend(reader)
    result = run(strategy, 100, model, cased, **{**base, **options})
    return result.history, model.batches

  usual = history()
  for name, value in knobs.items():
    assert history(**{name: value}) != usual, name


def test_every_knob_of_the_proposer_changes_what_is_asked():
  knobs = {
    'temperature': 0.5,
    'max_tokens': 60,
    'meta': MetaConfig('generic_a'),
  }
  assert knobs.keys() == {f.name for f in dataclasses.fields(ProposerConfig)}

  def asked(config):
    model = ScriptedBackend(reader)
    run('best_of_n', 60, model, proposer=config)
    return model.batches

  usual = asked(ProposerConfig())
  for name, value in knobs.items():
    assert asked(dataclasses.replace(ProposerConfig(), **{name: value})) != (
      usual
    ), name
