"""The loop of people, prompts and answers.

  population of prompts ──K of them──> answers ──actor──> one is shown
        ▲                                 │ features        │ a person
        │ every E updates                 ▼                 ▼
  evolution <──critic scores children── replay <──────── feedback, at any time
                                          └── every M queries: one update

INIT: the first queries are answered by prompts that are drawn from many, as
nothing is known of them and critics learn most from answers of all kinds. MAIN:
learning and evolution. REFINEMENT: prompts that nobody needs, and those that
say the same, are dropped; the population evolves no more.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from promptrl_jax.evolution import hints
from promptrl_jax.evolution import schedule as schedule_lib
from promptrl_jax.evolution.diversity import EmbedFn
from promptrl_jax.evolution.evolve import EvolutionConfig, evolve
from promptrl_jax.evolution.population import (
  Individual,
  Population,
  from_plain,
  to_plain,
)
from promptrl_jax.evolution.variation import EditFn
from promptrl_jax.llm.backend import Backend
from promptrl_jax.llm.candidates import ask_candidates
from promptrl_jax.prompts.genome import PromptGenome
from promptrl_jax.training.gpro import choosing, judging
from promptrl_jax.training.gpro import replay as replay_lib
from promptrl_jax.training.gpro.choosing import RuleConfig
from promptrl_jax.training.gpro.features import FeatureMap
from promptrl_jax.training.gpro.learner import GPROLearner, act_key
from promptrl_jax.training.gpro.state import GPRORun
from promptrl_jax.training.gpro.update import Metrics

PHASES = ('init', 'main', 'refinement')
_HEARD = 50  # last queries whose comments are followed


@dataclasses.dataclass(frozen=True)
class LoopConfig:
  """Settings of the loop.

  Attributes:
    population_size: prompts.
    bootstrap_queries: queries of the phase INIT.
    bootstrap_prompts: more prompts than the population, which INIT alone draws
      from if the population evolves.
    main_queries: queries until REFINEMENT begins; 0: it never does.
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
    evolution, schedule: of the population; an episode is an update.
    temperature: at which answers are sampled where the actor chooses none.
    max_tokens: most tokens of an answer.
  """

  population_size: int = 10
  bootstrap_queries: int = 20
  bootstrap_prompts: int = 100
  main_queries: int = 0
  window: int = 20
  optimism: float = 1.0
  judged: bool = False
  evolves: bool = True
  choose: str = 'gpro'
  rules: RuleConfig = RuleConfig()
  evolution: EvolutionConfig = EvolutionConfig(
    elite_size=10,
    children=10,
    mutation_rate=0.25,
    strength=hints.Anneal(0.5, 0.1, 20),
    selection='cover',
  )
  schedule: schedule_lib.ScheduleConfig = schedule_lib.ScheduleConfig(
    every=1, patience=0
  )
  temperature: float = 0.0
  max_tokens: int = 512

  def __post_init__(self):
    if self.choose not in choosing.NAMES:
      raise ValueError(
        f'choose={self.choose!r}: expected one of {", ".join(choosing.NAMES)}'
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

  @property
  def first_prompts(self) -> int:
    """Prompts that a loop is made of."""
    return self.population_size + self.bootstrap_prompts * self.evolves


@dataclasses.dataclass(frozen=True)
class Showing:
  """What a person sees, and what is known of it.

  Attributes:
    serial: number to rate it by.
    query: what was asked.
    prompts: the prompts that candidates were written under.
    candidates: all answers that could have been shown.
    logps: log-probabilities with which each was to be shown.
    scores: satisfaction that the critics expect of each.
    shown: place of the answer among the candidates.
    other: place of a second answer that is shown beside it; None: alone.
    temperature: number of the sampling temperature that was chosen.
    temperature_logp: its log-probability.
  """

  serial: int
  query: str
  prompts: tuple[Individual, ...]
  candidates: tuple[str, ...]
  logps: tuple[float, ...]
  scores: tuple[float, ...]
  shown: int
  other: int | None = None
  temperature: int = 0
  temperature_logp: float = 0.0

  @property
  def places(self) -> tuple[int, ...]:
    """Places of the one or two answers that are shown."""
    return (self.shown,) if self.other is None else (self.shown, self.other)

  @property
  def seen(self) -> list[tuple[float, str]]:
    """Of the answers that are shown, what critics expect, and the text."""
    return [
      (self.scores[place], self.candidates[place]) for place in self.places
    ]

  @property
  def text(self) -> str:
    """The answer, the first one of a pair."""
    return self.candidates[self.shown]

  @property
  def prompt(self) -> Individual:
    """The prompt that it was written under."""
    return self.prompts[self.shown]

  @property
  def expected(self) -> float:
    """Satisfaction that the critics expect of it."""
    return self.scores[self.shown]


class Loop:
  """One person's prompts; a function of its arguments and what it is told.

  Attributes:
    population: the prompts.
    history: all prompts that there were, by id.
    metrics: of the last update.
  """

  def __init__(
    self,
    config: LoopConfig,
    learner: GPROLearner,
    backend: Backend,
    features: FeatureMap,
    genomes: Sequence[PromptGenome],
    edit_fn: EditFn,
    seed: int,
    embed_fn: EmbedFn | None = None,
  ):
    """Starts in the phase INIT.

    Args:
      learner: its number of candidates K is that of the answers to a query.
      backend: answers.
      genomes: the first population, and after it prompts for INIT alone.
      edit_fn: changes sections.
      embed_fn: of prompts, by which those that say the same are told.
    """
    if not genomes:
      raise ValueError('no prompt to begin with: expected at least one genome')
    first = Population.of(genomes).individuals
    self.config = config
    self.population = Population(first[: config.population_size])
    self.history = {one.id: one for one in first}
    self.metrics: Metrics = {}
    self._learner, self._backend, self._features = learner, backend, features
    self._edit_fn, self._embed_fn, self._seed = edit_fn, embed_fn, seed
    self._state = learner.initial_fn(jax.random.key(seed))
    self._replay = replay_lib.empty(learner.config)
    self._schedule = schedule_lib.Schedule(config.schedule)
    self._window: list[str] = []  # the last queries
    self._comments: dict[int, tuple[str, float]] = {}  # by query, with weights
    self._cases = np.zeros((0, features.context), np.float32)

  @property
  def queries(self) -> int:
    return int(self._replay.queries)

  @property
  def phase(self) -> str:
    """One of `PHASES`."""
    if self.queries < self.config.bootstrap_queries:
      return 'init'
    last = self.config.main_queries
    return 'refinement' if last and self.queries >= last else 'main'

  @property
  def hint(self) -> hints.Hint | None:
    """What most of the last comments ask for, those of one taste."""
    if self._embed_fn is None:
      return None
    oldest = max(self.queries - _HEARD, int(self._state.changed) + 1)
    said = [of for n, of in self._comments.items() if n >= oldest]
    texts, weights = [text for text, _ in said], [weight for _, weight in said]
    return hints.from_comments(texts, self._embed_fn, weights=weights)

  def show(self, query: str, pair: bool = False) -> Showing:
    """Answers a query.

    Args:
      query: what is asked.
      pair: whether to show a second answer beside the first, if there is one.

    Raises:
      BackendError: the model could not be asked; nothing has changed.
    """
    number, config = self.queries, self.config
    (context,) = self._features.query([query])
    prompts = self._candidates(context)
    genomes = [one.genome for one in prompts]
    value, chosen = self._temperature(context)
    answers = tuple(self._answers(genomes, query, number, value))
    features = self._features.candidates(context, answers)
    choice = choosing.choose(
      config.choose,
      self._learner,
      self._state,
      features,
      number,
      config.rules,
      self._seed,
    )
    showing = Showing(
      number,
      query,
      tuple(prompts),
      answers,
      tuple(choice.logps.tolist()),
      tuple(choice.scores.tolist()),
      choice.shown,
      choice.other if pair and choice.other != choice.shown else None,
      **chosen,
    )
    self._add(showing, context, features)
    return showing

  def remember(self, showing: Showing) -> None:
    """Adds what was shown to the replay, as `show` does by itself.

    Raises:
      ValueError: it is not the next query.
    """
    if showing.serial != self.queries:
      raise ValueError(
        f'serial={showing.serial}: expected {self.queries}, as queries are '
        'remembered in their order'
      )
    (context,) = self._features.query([showing.query])
    features = self._features.candidates(context, showing.candidates)
    self._add(showing, context, features)

  def _add(
    self, showing: Showing, context: np.ndarray, features: np.ndarray
  ) -> None:
    padded, mask = replay_lib.pad(features, self._learner.config.candidates)
    few = (0, len(mask) - len(showing.candidates))
    chosen = {}
    if self._learner.config.temperatures:
      chosen = {
        'context': context,
        'temperature': showing.temperature,
        'temperature_logp': showing.temperature_logp,
      }
    self._replay, _ = replay_lib.add(
      self._replay,
      padded,
      mask,
      np.pad(showing.logps, few),
      np.pad(showing.scores, few),
      showing.shown,
      0 if showing.other is None else showing.other,
      **chosen,
    )
    self._window = [*self._window, showing.query][-self.config.window :]

  def hear(
    self,
    serial: int,
    reward: float,
    kind: str = 'rating',
    comment: str = '',
  ) -> bool:
    """Takes feedback on what was shown, in any order and at any time.

    Args:
      comment: why, in words, which may guide a mutation; the less a person was
        content, the more it counts.

    Returns:
      Whether it is still remembered; if not, the feedback is not used.
    """
    self._replay, is_known = replay_lib.rate(self._replay, serial, reward, kind)
    self._comments.pop(serial, None)
    if is_known and comment.strip():
      self._comments[serial] = comment, 1.0 if kind == 'pair' else 1 - reward
    return is_known

  def forget(self, serial: int) -> bool:
    """Takes back the feedback on what was shown.

    Returns:
      Whether there was any that is still remembered.
    """
    self._comments.pop(serial, None)
    self._replay, is_known = replay_lib.withdraw(self._replay, serial)
    return is_known

  def learn(self) -> bool:
    """Makes the update and the generation that are due after a query.

    Returns:
      Whether an update was due; it is made once, however often this is called.
    """
    done = int(self._state.step) * self._learner.config.every
    if not self._learner.due(self._replay) or done >= self.queries:
      return False
    state, self.metrics = self._learner.update(self._state, self._replay)
    if self.config.judged:
      state, more = judging.judge(
        self._learner, self._state, state, self._replay
      )
      self.metrics |= more
    self._state = state
    self._schedule = self._schedule.after_episode()
    if self.phase == 'main' and self.config.evolves and self._schedule.is_due:
      self._evolve()
    return True

  def compile(self) -> None:
    """Compiles what `learn` runs, so that nobody waits for it later."""
    self._learner.update(self._state, self._replay)
    if self.config.evolves:
      self._scores(np.zeros((1, self._features.size), np.float32))

  def expect(
    self, genomes: Sequence[PromptGenome], query: str
  ) -> tuple[list[str], list[float]]:
    """What prompts lead to, and the satisfaction that critics expect of it."""
    cases = self._features.query([query])
    answers = self._answers(genomes, query)
    mean, _ = self._expected(genomes, [query], cases)
    return answers, mean[:, 0].tolist()

  def refine(self, threshold: float) -> None:
    """Drops prompts whose fitness is lower, and those that say the same.

    The best one stays.
    """
    kept = self.population.at_least(threshold)
    self.population = kept.without_duplicates(self._embed_fn)

  def snapshot(self) -> tuple[GPRORun, dict[str, Any]]:
    """Returns all that the loop needs to go on: arrays, and JSON data."""
    best = self._schedule.best
    return GPRORun(self._state, self._replay), {
      'population': to_plain(self.population),
      'history': to_plain(Population(tuple(self.history.values()))),
      'schedule': {
        'episodes': self._schedule.episodes,
        'best': best if math.isfinite(best) else None,
        'flat': self._schedule.flat,
      },
      'window': self._window,
      'comments': [[serial, *of] for serial, of in self._comments.items()],
      'cases': self._cases.tolist(),
    }

  def restore(self, run: GPRORun, plain: Mapping[str, Any]) -> None:
    """Goes on from what `snapshot` returned, as if it had never stopped."""
    # Arrays that lie on no particular device, as those of the first state, so
    # that nothing is compiled again.
    self._state = jax.tree.map(lambda x: jnp.asarray(np.asarray(x)), run.state)
    self._replay = jax.tree.map(np.asarray, run.replay)
    self.population = from_plain(plain['population'])
    known = from_plain(plain['history']).individuals
    self.history = {one.id: one for one in known}
    values = dict(plain['schedule'])
    if values['best'] is None:
      values['best'] = -math.inf
    self._schedule = schedule_lib.Schedule(self.config.schedule, **values)
    self._window = list(plain['window'])
    self._comments = {
      n: (text, weight) for n, text, weight in plain['comments']
    }
    shape = -1, self._features.context
    self._cases = np.array(plain['cases'], np.float32).reshape(shape)

  def _candidates(self, context: np.ndarray) -> list[Individual]:
    """K prompts for a query: those that were best on queries like it."""
    people = self.population.individuals
    is_init = self.phase == 'init'
    if is_init:  # Nothing has evolved: these are the prompts to begin with.
      people = tuple(self.history.values())
    count = min(self._learner.config.candidates, len(people))
    rng = np.random.default_rng([self._seed, self.queries, 1])
    if is_init or not len(self._cases):
      drawn = rng.choice(len(people), count, replace=False)
      return [people[i] for i in drawn]
    distances = np.sum((self._cases - context) ** 2, axis=1)
    weights = np.exp(-distances / max(float(np.median(distances)) / 4, 1e-6))
    weights /= weights.sum()
    expected = np.array([np.dot(one.objectives, weights) for one in people])
    return [people[i] for i in np.argsort(-expected, kind='stable')[:count]]

  def _temperature(
    self, context: np.ndarray
  ) -> tuple[float | None, dict[str, Any]]:
    """The temperature for a query, if one is chosen, and its number."""
    if not self._learner.config.temperatures:
      return None, {}
    key = jax.random.fold_in(act_key(self._state, self.queries), 1)
    chosen = self._learner.temperature(self._state, context[None], key)
    return float(chosen.value[0]), {
      'temperature': int(chosen.index[0]),
      'temperature_logp': float(chosen.logp[0]),
    }

  def _answers(
    self,
    genomes: Sequence[PromptGenome],
    query: str,
    seed: int = 0,
    temperature: float | None = None,
  ) -> list[str]:
    completions = ask_candidates(
      self._backend,
      [genome.render() for genome in genomes],
      query,
      temperature=temperature,
      default_temperature=self.config.temperature,
      max_tokens=self.config.max_tokens,
      seed=seed,
    )
    return [completion.text for completion in completions]

  def _evolve(self) -> None:
    cases = self._features.query(self._window)

    expected: dict[str, float] = {}

    def score(genomes: Sequence[PromptGenome]) -> np.ndarray:
      mean, spread = self._expected(genomes, self._window, cases)
      texts = [genome.render() for genome in genomes]
      expected.update(zip(texts, mean.mean(axis=1).tolist(), strict=True))
      return mean + self.config.optimism * spread

    # The critics have learned since: nobody keeps what they once said.
    parents = tuple(
      dataclasses.replace(one, fitness=None, objectives=(), trials=0)
      for one in self.population.individuals
    )
    self.population = evolve(
      dataclasses.replace(self.population, individuals=parents),
      self._edit_fn,
      score,
      self.config.evolution,
      rng=np.random.default_rng([self._seed, self.queries, 2]),
      embed_fn=self._embed_fn,
      hint=self.hint,
    )
    # Optimism is for choosing; people are told what is expected.
    self.population = dataclasses.replace(
      self.population,
      individuals=tuple(
        dataclasses.replace(one, fitness=expected[one.genome.render()])
        for one in self.population.individuals
      ),
    )
    self._cases = cases
    self.history |= {one.id: one for one in self.population.individuals}
    best = float(np.max(self.population.fitness))
    self._schedule = self._schedule.after_generation(best)

  def _expected(
    self,
    genomes: Sequence[PromptGenome],
    queries: Sequence[str],
    cases: np.ndarray,
  ) -> tuple[np.ndarray, np.ndarray]:
    """Mean and spread [n, window] of what critics expect of unseen answers."""
    rows = []
    for query, case in zip(queries, cases, strict=True):
      answers = self._answers(genomes, query)
      rows.append(self._features.candidates(case, answers))
    shape = len(queries), len(genomes)
    mean, spread = self._scores(np.concatenate(rows))
    return mean.reshape(shape).T, spread.reshape(shape).T

  def _scores(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and spread [N] of the critics' scores, from features [N, D]."""
    few, config = self._learner.config.candidates, self.config
    # One shape for all generations, so that nothing is compiled again.
    size = 2 * config.population_size + config.evolution.children
    total = -(-max(len(features), size * config.window) // few) * few
    padded = np.zeros((total, features.shape[1]), np.float32)
    padded[: len(features)] = features
    grouped = padded.reshape(-1, few, features.shape[1])
    mask = np.ones(grouped.shape[:2], bool)
    choice = self._learner.act(self._state, grouped, mask, jax.random.key(0))
    flat = lambda x: np.asarray(x, np.float64).ravel()[: len(features)]
    return flat(choice.scores), flat(choice.spread)
