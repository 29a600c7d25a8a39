"""The phases of the loop, and its settings.

INIT: the first queries are answered by prompts that are drawn from many, as
nothing is known of them and critics learn most from answers of all kinds. MAIN:
learning and evolution. REFINEMENT: prompts that nobody needs, and those that
say the same, are dropped; the population evolves no more.
"""

from __future__ import annotations

import dataclasses

from promptrl_jax.evolution import hints
from promptrl_jax.evolution.evolve import EvolutionConfig
from promptrl_jax.evolution.islands import IslandsConfig
from promptrl_jax.evolution.schedule import ScheduleConfig
from promptrl_jax.settings import check_choices
from promptrl_jax.training.gpro import choosing
from promptrl_jax.training.gpro.choosing import RulesConfig

PHASES = ('init', 'main', 'refinement')
OBJECTIVES = ('cases', 'cost')


@dataclasses.dataclass(frozen=True)
class LoopConfig:
  """Settings of the loop.

  Attributes:
    population_size: prompts.
    bootstrap_queries: queries of the phase INIT.
    bootstrap_prompts: more prompts than the population, which INIT alone draws
      from if the population evolves.
    main_queries: queries until REFINEMENT begins; 0: it never does.
    refine_below: fitness below which prompts are dropped when REFINEMENT
      begins, and in the end, 0 to 1.
    window: last queries that prompts are scored on by the critic.
    optimism: standard deviations of the critics that are added to their mean
      when prompts are scored, so that those are tried of which little is known:
      an upper confidence bound, Auer 2002.
    judged: whether the actor of an update goes live only if what people said so
      far does not show that it is worse than what was shown; see
      `judging.py`.
    evolves: whether the population evolves.
    choose: one of `choosing.NAMES`.
    rules: settings of the rivals of `gpro`.
    objectives: what prompts are selected by: `cases`, one objective for each
      query of the window; `cost`, the mean of these, and how short answers
      are, of which `evolution.selection='nsga2'` keeps the Pareto front.
    evolution, schedule: of the population; an episode is an update.
    islands: into which the population is dealt out. One is no islands; several
      share `children` and `elite_size`.
    temperature: at which answers are sampled where the actor chooses none.
    max_tokens: most tokens of an answer.
  """

  population_size: int = 10
  bootstrap_queries: int = 20
  bootstrap_prompts: int = 100
  main_queries: int = 0
  refine_below: float = 0.4
  window: int = 20
  optimism: float = 1.0
  judged: bool = False
  evolves: bool = True
  choose: str = 'gpro'
  rules: RulesConfig = RulesConfig()
  evolution: EvolutionConfig = EvolutionConfig(
    elite_size=10,
    children=10,
    mutation_rate=0.25,
    strength=hints.Anneal(0.5, 0.1, 20),
    selection='cover',
  )
  objectives: str = 'cases'
  islands: IslandsConfig = IslandsConfig(count=1)
  schedule: ScheduleConfig = ScheduleConfig(every=1, patience=0)
  temperature: float = 0.0
  max_tokens: int = 512

  def __post_init__(self):
    check_choices(self, choose=choosing.NAMES, objectives=OBJECTIVES)
    if self.objectives == 'cost' and self.evolution.selection != 'nsga2':
      raise ValueError(
        f"objectives='cost', evolution.selection="
        f'{self.evolution.selection!r}: expected nsga2, which keeps a front'
      )
    if self.islands.count > self.population_size:
      raise ValueError(
        f'islands.count={self.islands.count} of population_size='
        f'{self.population_size}: expected a prompt for each or more'
      )
    for name in ('population_size', 'window'):
      if getattr(self, name) < 1:
        raise ValueError(f'{name}={getattr(self, name)}: expected at least 1')
    for name in (
      *('bootstrap_queries', 'bootstrap_prompts'),
      *('main_queries', 'temperature', 'optimism'),
    ):
      if getattr(self, name) < 0:
        raise ValueError(f'{name}={getattr(self, name)}: expected at least 0')
    if not 0 <= self.refine_below <= 1:
      raise ValueError(f'refine_below={self.refine_below}: expected 0 to 1')

  def phase(self, queries: int) -> str:
    """One of `PHASES`, after so many queries."""
    if queries < self.bootstrap_queries:
      return 'init'
    last = self.main_queries
    return 'refinement' if last and queries >= last else 'main'

  @property
  def first_prompts(self) -> int:
    """Prompts that a loop is made of."""
    return self.population_size + self.bootstrap_prompts * self.evolves
