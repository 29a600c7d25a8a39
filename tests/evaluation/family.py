"""A small family of prompts, and a large one."""

import numpy as np

from promptrl_jax.evaluation.lineage_report import Usage
from promptrl_jax.evolution.population import Individual, Population
from promptrl_jax.prompts.genome import PromptGenome

HOSTILE = '<b>bold</b></script><script>window.hurt = 1</script>'


def individual(id, parents=(), generation=0, fitness=None, **sections):
  return Individual(
    PromptGenome(sections), fitness, generation, id, tuple(parents)
  )


# a and b lead to c, c to d and e; f was shown, and has no relatives; nobody
# saw g, which b led to.
HISTORY = [
  individual('a', fitness=0.3, role='You are a poet.', tone='Be brief.'),
  individual('b', fitness=0.4, role='You are a clerk.', tone='Be polite.'),
  individual('f', role='You are a ghost.'),
  individual('c', 'ab', 1, 0.5, role='You are a poet.', tone='Be polite.'),
  individual('g', 'b', 1, 0.2, role='You are a clerk.', tone='Be rude.'),
  individual(
    'd', 'cb', 3, 0.9, role='You are a poet.', tone=f'Be polite. {HOSTILE}'
  ),
  individual('e', 'c', 3, 0.6, role='You are a judge.', tone='Be polite.'),
]
USAGE = {'f': Usage(1), 'd': Usage(3, (1.0, 0.5))}
POPULATION = Population(tuple(HISTORY[-2:]), 3)


def large(count, seed=0):
  """A population and a history of many prompts, all of them shown."""
  rng = np.random.default_rng(seed)
  history = []
  for i in range(count):
    generation = i // 20
    before = range(20 * max(0, generation - 3), 20 * generation)
    parents = rng.choice(before, 2, replace=False) if generation else []
    history.append(
      individual(
        f'{i:012x}',
        [f'{parent:012x}' for parent in parents],
        generation,
        float(rng.random()),
        role=f'You are number {i}.',
        tone='Be brief and polite, and say what you are sure of. ' * 8,
      )
    )
  usage = {one.id: Usage(1, (0.5,)) for one in history}
  return Population(tuple(history[-10:]), count // 20), history, usage
