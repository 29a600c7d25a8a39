"""Each setting of a generation and of its schedule changes a run.

A field that is added without a row here fails `test_every_setting_has_a_row`.
"""

import dataclasses
import functools

import numpy as np
import pytest

from promptrl_jax.evolution.diversity import word_vectors
from promptrl_jax.evolution.evolve import EvolutionConfig, evolve
from promptrl_jax.evolution.hints import Anneal, Hint
from promptrl_jax.evolution.population import Population
from promptrl_jax.evolution.schedule import Schedule, ScheduleConfig
from promptrl_jax.prompts.genome import PromptGenome
from tests.evolution.genomes import rng

# Few edits and pairs, so that many children equal somebody.
EVOLUTION = EvolutionConfig(
  recombination=0.3, merge=0.3, mutation_rate=0.1, tries=0
)
EVOLUTION_CHANGES = {
  'population_size': 3,
  'elite_size': 4,
  'children': 9,
  'tournament': 5,
  'recombination': 1.0,
  'crossover_rate': 1.0,
  'merge': 1.0,
  'mutation_rate': 1.0,
  'strength': Anneal(0.0, 0.0, 1),
  'similarity': 0.3,
  'tries': 4,
  'selection': 'nsga2',
}
SCHEDULE_CHANGES = {'every': 2, 'patience': 3, 'min_improvement': 0.2}


@pytest.mark.parametrize(
  ('config', 'changes'),
  [(EvolutionConfig, EVOLUTION_CHANGES), (ScheduleConfig, SCHEDULE_CHANGES)],
)
def test_every_setting_has_a_row(config, changes):
  assert {f.name for f in dataclasses.fields(config)} == changes.keys()


def edit(edits):
  """Says of every edit what it was asked for, so that a text tells its past.

  One in three makes the text of another child, which is drawn again.
  """
  return [
    'the same' if one.seed % 3 == 0 else f'{one.text} and {one.seed % 97}'
    for one in edits
  ]


def score(genomes):
  """Two objectives: long texts, and few words `and`."""
  texts = [genome.render() for genome in genomes]
  return np.array([[len(text), -2.0 * text.count('and')] for text in texts])


@functools.cache
def texts_after(config):
  population = Population.of(
    PromptGenome({'role': f'role {letter}', 'tone': f'tone {letter}'})
    for letter in 'abcdef'
  )
  made = []
  for generation in range(4):
    population = evolve(
      population,
      edit,
      score,
      config,
      rng=rng(generation),
      embed_fn=word_vectors,
      hint=Hint('Be brief.'),
    )
    made.append(population.texts)
  return made


@pytest.mark.parametrize('name', EVOLUTION_CHANGES)
def test_each_setting_of_a_generation_changes_who_lives(name):
  changed = dataclasses.replace(EVOLUTION, **{name: EVOLUTION_CHANGES[name]})
  assert texts_after(changed) != texts_after(EVOLUTION)


def course(config):
  """After which episodes there is a generation, until evolution stops."""
  schedule, due = Schedule(config), []
  for episode in range(60):
    schedule = schedule.after_episode()
    if schedule.is_due:
      # It rises by 0.05 for three generations, and is level from there on.
      schedule = schedule.after_generation(0.05 * min(len(due), 3))
      due.append(episode)
  return due


@pytest.mark.parametrize('name', SCHEDULE_CHANGES)
def test_each_setting_of_the_schedule_changes_its_course(name):
  changed = ScheduleConfig(**{name: SCHEDULE_CHANGES[name]})
  assert course(changed) != course(ScheduleConfig())
