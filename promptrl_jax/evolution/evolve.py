"""One generation of a population.

  parents ──tournaments──> families ──crossover, mutation, hint──> children
                                                                     │ score_fn
  next generation <──best of── elite and children <──────────────────┘

Whatever has no fitness is scored before anything is chosen by it. Children that
equal somebody are drawn again before they are scored; of those that say nearly
the same the better one goes on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from promptrl_jax.evolution import diversity, pareto, variation
from promptrl_jax.evolution.cover import cover_order
from promptrl_jax.evolution.diversity import EmbedFn
from promptrl_jax.evolution.hints import Anneal, Hint
from promptrl_jax.evolution.population import Individual, Population
from promptrl_jax.evolution.variation import Draft, EditFn
from promptrl_jax.prompts.genome import PromptGenome

# Genomes -> float [n], or [n, M] for M objectives; the higher the better.
ScoreFn = Callable[[Sequence[PromptGenome]], np.ndarray | Sequence[float]]

# Orders of individuals with several objectives, the best first.
_ORDERS = {'nsga2': pareto.nsga2_order, 'cover': cover_order}
_SELECTIONS = ('fitness', *_ORDERS)


@dataclasses.dataclass(frozen=True)
class EvolutionConfig:
  """Settings of a generation.

  Attributes:
    population_size: of the next generation; 0: as many as there are.
    elite_size: of the best, so many may live on; at most all of them.
    children: that are bred and scored; 0: as many as the elite leaves places
      for, and at least one.
    tournament: individuals drawn of which the best becomes a parent.
    recombination: probability that a child has two parents.
    crossover_rate: probability that a section is that of the first parent.
    merge: probability that two parents are merged section by section by the
      model that mutates; otherwise each section is that of one of them.
    mutation_rate: probability that a section of a child is mutated.
    strength: probability that a child follows the hint, if there is one.
    similarity: cosine above which two prompts say the same, if there is an
      encoder.
    tries: how often children are drawn again that equal somebody.
    selection: `fitness`, or for several objectives `nsga2` or `cover`, which
      wants somebody who is good for each of them. NSGA-II as it was published
      has as many children as parents and an elite of all parents.
  """

  population_size: int = 0
  elite_size: int = 2
  children: int = 0
  tournament: int = 2
  recombination: float = 0.8
  crossover_rate: float = 0.5
  merge: float = 0.0
  mutation_rate: float = 0.3
  strength: Anneal = Anneal()
  similarity: float = 0.95
  tries: int = 3
  selection: str = 'fitness'

  def __post_init__(self):
    for name in ('population_size', 'elite_size', 'children', 'tries'):
      if getattr(self, name) < 0:
        raise ValueError(f'{name}={getattr(self, name)}: expected 0 or more')
    if self.tournament < 1:
      raise ValueError(f'tournament={self.tournament}: expected 1 or more')
    for name in ('recombination', 'crossover_rate', 'merge', 'mutation_rate'):
      variation.check_share(name, getattr(self, name))
    if not 0 < self.similarity <= 1:
      raise ValueError(
        f'similarity={self.similarity}: expected a cosine in (0, 1]'
      )
    if self.selection not in _SELECTIONS:
      raise ValueError(
        f'selection={self.selection!r}: expected one of '
        f'{", ".join(_SELECTIONS)}'
      )


def evolve(
  population: Population,
  edit_fn: EditFn,
  score_fn: ScoreFn,
  config: EvolutionConfig = EvolutionConfig(),
  *,
  rng: np.random.Generator,
  embed_fn: EmbedFn | None = None,
  hint: Hint | None = None,
) -> Population:
  """Returns the next generation, in which everybody has a fitness.

  By `fitness`, the best never gets worse as long as there is an elite. With an
  elite of all, children have to be better than somebody to get in. Where there
  are not enough distinct children, other parents fill their places.

  Args:
    population: the parents. Who has a fitness is not scored again.
    edit_fn: makes the section edits of all children in one call.
    score_fn: scores genomes, in one call where it is called at all.
    config: settings.
    rng: is consumed.
    embed_fn: texts -> vectors [n, D], for duplicates that are not equal.
    hint: what children are to follow, with the probability that
      `config.strength` has in this generation.

  Returns:
    A population of `config.population_size`, or as many as there were. One that
    is to grow does so by distinct prompts, as many as the tries bring.

  Raises:
    ValueError: the population is empty, or scores are not finite numbers [n] or
      [n, M].
  """
  if not len(population):
    raise ValueError('the population is empty: expected at least one prompt')
  if embed_fn is not None:
    embed_fn = diversity.embed_once(embed_fn)
  size = config.population_size or len(population)
  parents = _ranked(score(population.individuals, score_fn), config)
  # Parents that say the same share one place as long as others can be had.
  unique = _distinct(parents, embed_fn, config)
  elite = unique[: min(config.elite_size, size)]
  count = config.children or max(1, size - len(elite))
  children: list[Individual] = []
  for _ in range(1 + config.tries):
    made = _breed(
      parents,
      count - len(children),
      population.generation,
      edit_fn,
      config,
      rng,
      hint,
    )
    known = [*parents, *children]
    # Equal texts alone: one that is near its parent may be the better one.
    new = set(diversity.distinct([o.genome.render() for o in [*known, *made]]))
    children += [o for i, o in enumerate(made, len(known)) if i in new]
    if len(children) == count:
      break
  chosen = _ranked([*elite, *score(children, score_fn)], config)
  taken = {one.id for one in chosen}
  order = [*chosen, *(one for one in parents if one.id not in taken)]
  # Who says something new, and after them the others, so that the size stays.
  unique = _distinct(order, embed_fn, config)
  ids = {one.id for one in unique}
  following = [*unique, *(one for one in order if one.id not in ids)]
  return Population(tuple(following[:size]), population.generation + 1)


def score(
  individuals: Sequence[Individual], score_fn: ScoreFn
) -> list[Individual]:
  """Returns them with a fitness; those without are scored in one call."""
  new = [one for one in individuals if one.fitness is None]
  if not new:
    return list(individuals)
  values = np.asarray(score_fn([one.genome for one in new]), np.float64)
  if values.ndim not in (1, 2) or len(values) != len(new) or not values.size:
    raise ValueError(
      f'score_fn returned shape {values.shape} for {len(new)} prompts: '
      f'expected ({len(new)},) or ({len(new)}, objectives)'
    )
  rows = iter(values.reshape(len(new), -1))
  return [
    one.scored(*next(rows)) if one.fitness is None else one
    for one in individuals
  ]


def _ranked(
  individuals: Sequence[Individual], config: EvolutionConfig
) -> list[Individual]:
  """The best first, of equals the first."""
  if config.selection == 'fitness':
    return sorted(individuals, key=_fitness, reverse=True)
  order = _ORDERS[config.selection](_objectives(individuals))
  return [individuals[i] for i in order]


def _fitness(individual: Individual) -> float:
  assert individual.fitness is not None, 'chosen before it was scored'
  return individual.fitness


def _objectives(individuals: Sequence[Individual]) -> np.ndarray:
  """Float64 [N, M]; one whose fitness is known alone has that in a column."""
  rows = [one.objectives or (_fitness(one),) for one in individuals]
  if len({len(row) for row in rows}) > 1:
    raise ValueError(
      f'{sorted({len(row) for row in rows})} objectives: expected as many for '
      'each prompt; those with another number are to have no fitness'
    )
  return np.array(rows)


def _distinct(
  individuals: Sequence[Individual],
  embed_fn: EmbedFn | None,
  config: EvolutionConfig,
) -> list[Individual]:
  texts = [one.genome.render() for one in individuals]
  kept = diversity.distinct(texts, embed_fn, config.similarity)
  return [individuals[i] for i in kept]


def _breed(
  parents: Sequence[Individual],
  count: int,
  generation: int,
  edit_fn: EditFn,
  config: EvolutionConfig,
  rng: np.random.Generator,
  hint: Hint | None,
) -> list[Individual]:
  """Makes `count` children, which may say what is said already.

  `rng` is consumed.
  """
  families = [_family(parents, config, rng) for _ in range(count)]
  drafts = [_cross([one.genome for one in f], config, rng) for f in families]
  crossed = variation.carry_out(drafts, edit_fn)
  strength = config.strength(generation)
  drafts = [_vary(genome, hint, strength, config, rng) for genome in crossed]
  return [
    Individual(
      genome,
      generation=generation + 1,
      id=f'{rng.integers(2**48):012x}',
      parents=tuple(one.id for one in family),
      guided=next((e.section for e in draft.edits if e.hint), ''),
    )
    for genome, family, draft in zip(
      variation.carry_out(drafts, edit_fn), families, drafts, strict=True
    )
  ]


def _family(
  parents: Sequence[Individual],
  config: EvolutionConfig,
  rng: np.random.Generator,
) -> list[Individual]:
  """One parent, or two different ones; `parents` come the best first."""
  is_crossed = rng.random() < config.recombination

  def win(places: list[int]) -> int:
    drawn = rng.choice(places, min(config.tournament, len(places)), False)
    if config.selection != 'fitness':
      return int(drawn.min())
    # The first drawn of equals, so that a flat fitness favours nobody.
    return int(max(drawn, key=lambda i: _fitness(parents[i])))

  places = list(range(len(parents)))
  first = win(places)
  places.remove(first)
  both = [first, win(places)] if is_crossed and places else [first]
  return [parents[i] for i in both]


def _cross(
  genomes: Sequence[PromptGenome],
  config: EvolutionConfig,
  rng: np.random.Generator,
) -> Draft:
  if len(genomes) == 1:
    return Draft(genomes[0])
  first, second = genomes
  if rng.random() < config.merge:
    return variation.draw_merge(first, second, rng)
  return Draft(
    variation.crossover_genomes(first, second, config.crossover_rate, rng=rng)
  )


def _vary(
  genome: PromptGenome,
  hint: Hint | None,
  strength: float,
  config: EvolutionConfig,
  rng: np.random.Generator,
) -> Draft:
  """The hint if it is followed, else a mutation."""
  if hint is not None:
    guided = variation.draw_guided(genome, hint, strength, rng)
    if guided.edits:
      return guided
  return variation.draw_mutation(genome, config.mutation_rate, rng)
