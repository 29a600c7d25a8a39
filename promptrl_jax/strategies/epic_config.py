"""Settings of EPiC, as it was released and as it is mended; see `epic.py`."""

from __future__ import annotations

import dataclasses

from promptrl_jax.evolution.islands import IslandsConfig
from promptrl_jax.operators.lexical import LexicalConfig
from promptrl_jax.operators.wording import WordingConfig
from promptrl_jax.strategies.self_tests import SelfTestsConfig

_MUTATIONS = ('lexical', 'model')


@dataclasses.dataclass(frozen=True)
class EpicConfig:
  """Settings of the evolution; the defaults are those of the released code.

  Attributes:
    tests: of the tests that the model writes.
    population: P, descriptions by the model, and statements of a generation
      after the first, which has the original as well.
    generations: most generations.
    close_first: fitness at which the program of the original is submitted.
    close_generation: fitness of the best program of a generation at which it
      is submitted; a fitness of 1 is at once.
    least_growth: the evolution ends after a generation, not the first, if no
      larger share of all problems was closed in the one before it; negative: it
      goes on.
    mutation: `lexical` replaces words by synonyms and costs no call, `model`
      asks for a clearer description.
    crossovers: children of a generation that the model merges of two parents,
      on each island; of different ones, unless there is one alone.
    elitism: whether the best statement survives; otherwise one is drawn.
    validate: share of the programs that pass the visible tests (of all, if none
      does) that must pass a generated test in the first generation for it to
      count from there on; 0 keeps all. A majority would drop right tests where
      most programs are wrong.
    submit_best: whether the best program is submitted if none was closed with;
      otherwise that of the original.
    islands: populations apart that the statements of a problem are dealt out
      to, each with a survivor and parents of its own, and after how many
      generations the best of each become parents on the next one, too; one
      there.
    shown_tests: generated tests that are shown with each new statement.
    elaborate: how the descriptions of the first generation are asked for.
    words: how mutations and crossovers of the model are asked for.
    lexical: of the lexical mutation.
  """

  tests: SelfTestsConfig = SelfTestsConfig(count=10)
  population: int = 5
  generations: int = 4
  close_first: float = 0.8
  close_generation: float = 0.6
  least_growth: float = 0.015
  mutation: str = 'lexical'
  crossovers: int = 0
  elitism: bool = False
  validate: float = 0.0
  submit_best: bool = False
  islands: IslandsConfig = IslandsConfig(count=1, every=1)
  shown_tests: int = 3
  elaborate: WordingConfig = WordingConfig(temperature=0.9, words=350)
  words: WordingConfig = WordingConfig()
  lexical: LexicalConfig = LexicalConfig(probability=0.25)

  def __post_init__(self):
    if self.population < 1 or self.generations < 1:
      raise ValueError(
        f'population={self.population}, generations={self.generations}: '
        'expected 1 or more of both'
      )
    smallest = self.population // self.islands.count
    if self.islands.count > 1 and smallest < 2:
      raise ValueError(
        f'islands={self.islands.count}, population={self.population}: expected '
        'at least two statements for each island, one of which survives'
      )
    if not 0 <= self.crossovers < smallest:
      raise ValueError(
        f'crossovers={self.crossovers}: expected fewer than the {smallest} '
        'statements of the smallest population, one of which survives'
      )
    if self.mutation not in _MUTATIONS:
      raise ValueError(
        f'mutation={self.mutation!r}: expected {" or ".join(_MUTATIONS)}'
      )
    if not 0 <= self.validate <= 1:
      raise ValueError(f'validate={self.validate}: expected a share in 0..1')


FAITHFUL = EpicConfig()
FIXED = EpicConfig(
  close_first=1.0,
  close_generation=1.0,
  least_growth=-1.0,
  elitism=True,
  validate=0.2,
  submit_best=True,
  shown_tests=0,
)
# As many mutations and crossovers as in an older variant of the released code.
WORDS = dataclasses.replace(FIXED, mutation='model', crossovers=2)
