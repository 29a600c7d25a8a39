"""The loop of people, prompts and answers.

  population of prompts ──K of them──> answers ──actor──> one is shown
        ▲                                 │ features        │ a person
        │ every E updates                 ▼                 ▼
  evolution <──critic scores children── replay <──────── feedback, at any time
                                          └── every M queries: one update

Its settings and phases are those of `phases.py`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from promptrl_jax.evolution import convergence, hints
from promptrl_jax.evolution import islands as islands_lib
from promptrl_jax.evolution.diversity import EmbedFn
from promptrl_jax.evolution.population import (
  Individual,
  Population,
  from_plain,
  to_plain,
)
from promptrl_jax.evolution.schedule import Schedule
from promptrl_jax.evolution.variation import EditFn
from promptrl_jax.llm.backend import Backend
from promptrl_jax.prompts.genome import PromptGenome
from promptrl_jax.training.gpro import choosing, judging
from promptrl_jax.training.gpro import replay as replay_lib
from promptrl_jax.training.gpro.breeding import next_generation
from promptrl_jax.training.gpro.features import FeatureMap
from promptrl_jax.training.gpro.learner import GPROLearner, act_key
from promptrl_jax.training.gpro.phases import LoopConfig
from promptrl_jax.training.gpro.scoring import Expected, PromptScorer
from promptrl_jax.training.gpro.showing import Showing
from promptrl_jax.training.gpro.state import GPRORun
from promptrl_jax.training.gpro.update import Metrics

_HEARD = 50  # last queries whose comments are followed


class Loop:
  """One person's prompts; a function of its arguments and what it is told.

  Attributes:
    population: the prompts.
    history: all prompts that there were, by id.
    generations: of each that evolved, `convergence.GenerationMetrics` as JSON
      data, and `queries`, how many there were before it.
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
    self._islands = islands_lib.split(self.population, config.islands.count)
    self.generations: list[dict[str, Any]] = []
    self.history = {one.id: one for one in first}
    self.metrics: Metrics = {}
    self._learner, self._features = learner, features
    self._count_tokens = backend.count_tokens
    prompts = 2 * config.population_size + config.evolution.children
    self._scorer = PromptScorer(
      learner,
      backend,
      features,
      config.temperature,
      config.max_tokens,
      rows=prompts * config.window,
    )
    self._edit_fn, self._embed_fn, self._seed = edit_fn, embed_fn, seed
    self._state = learner.initial_fn(jax.random.key(seed))
    self._replay = replay_lib.empty(learner.config)
    self._schedule = Schedule(config.schedule)
    self._window: list[str] = []  # the last queries
    self._comments: dict[int, tuple[str, float]] = {}  # by query, with weights
    self._cases = np.zeros((0, features.context), np.float32)

  @property
  def queries(self) -> int:
    return int(self._replay.queries)

  @property
  def phase(self) -> str:
    """One of `phases.PHASES`."""
    return self.config.phase(self.queries)

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
    texts = [one.genome.render() for one in prompts]
    value, chosen = self._temperature(context)
    answers = tuple(self._scorer.answers(texts, query, number, value))
    features = self._features.candidates(context, answers, texts)
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
    texts = [one.genome.render() for one in showing.prompts]
    features = self._features.candidates(context, showing.candidates, texts)
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
      features = np.zeros((1, self._features.size), np.float32)
      self._scorer.scores(self._state, features)

  def expect(
    self, genomes: Sequence[PromptGenome], query: str
  ) -> tuple[list[str], list[float]]:
    """What prompts lead to, and the satisfaction that critics expect of it."""
    prompts = [genome.render() for genome in genomes]
    cases = self._features.query([query])
    mean, _, answers = self._scorer.expected(
      self._state, self._scorer.answer(prompts, [query], cases)
    )
    return list(answers[0]), mean[:, 0].tolist()

  def refine_if_due(self) -> None:
    """Refines the population in the phase REFINEMENT; twice does no harm."""
    if self.phase == 'refinement':
      self.refine()

  def refine(self) -> None:
    """Drops prompts below `refine_below`, and those that say the same.

    The best one stays.
    """
    kept = self.population.at_least(self.config.refine_below)
    self.population = kept.without_duplicates(self._embed_fn)
    self._islands = [self.population]

  def snapshot(self) -> tuple[GPRORun, dict[str, Any]]:
    """Returns all that the loop needs to go on: arrays, and JSON data."""
    best = self._schedule.best
    return GPRORun(self._state, self._replay), {
      'population': to_plain(self.population),
      'islands': [[o.id for o in i.individuals] for i in self._islands],
      'generations': list(self.generations),
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
    living = {one.id: one for one in self.population.individuals}
    self._islands = [
      Population(tuple(living[i] for i in ids), self.population.generation)
      for ids in plain['islands']
    ]
    self.generations = list(plain['generations'])
    known = from_plain(plain['history']).individuals
    self.history = {one.id: one for one in known}
    values = dict(plain['schedule'])
    if values['best'] is None:
      values['best'] = -math.inf
    self._schedule = Schedule(self.config.schedule, **values)
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
    return choosing.choose_prompts(people, self._cases, context, count)

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

  def _evolve(self) -> None:
    window, cases = self._window, self._features.query(self._window)
    # The parents answer while the update is still computed, which the hint and
    # the critics wait for.
    parents = {
      tuple(island.texts): self._scorer.answer(island.texts, window, cases)
      for island in self._islands
    }

    def expect(genomes: Sequence[PromptGenome]) -> Expected:
      prompts = tuple(genome.render() for genome in genomes)
      answered = parents.get(prompts)
      if answered is None:
        answered = self._scorer.answer(prompts, window, cases)
      return self._scorer.expected(self._state, answered)

    self._islands, front = next_generation(
      self._islands,
      self._edit_fn,
      expect,
      self.config,
      count_tokens=self._count_tokens,
      rng=np.random.default_rng([self._seed, self.queries, 2]),
      embed_fn=self._embed_fn,
      hint=self.hint,
    )
    self.population = islands_lib.merge(self._islands)
    self._cases = cases
    self.history |= {one.id: one for one in self.population.individuals}
    texts = self.population.texts
    measured = convergence.measure(
      self.population,
      self._embed_fn,
      np.array([front[text] for text in texts]) if front else None,
    )
    row = {'queries': self.queries, **dataclasses.asdict(measured)}
    self.generations.append(row)
    best = float(np.max(self.population.fitness))
    self._schedule = self._schedule.after_generation(best)
