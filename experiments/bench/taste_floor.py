"""How soon a simulated taste could be learned at best: a floor for `hybrid`.

  python -m experiments.bench.taste_floor --people=50 --drift=150

Who learns here knows all that `experiments.hybrid` has to find out: of which
aspects tastes are made, how much each counts, how preferences are drawn, how
ratings err, and at which question the taste changes. It samples the posterior
of the taste (Gibbs sampling of several chains) and shows the answer to one of
all prompts of the catalogue: that of the highest expected satisfaction, and
`--optimism` standard deviations. Lines of JSON with 95 % intervals over people:

first, last   mean satisfaction of the first and the last 50 questions
recovery      questions until a window of 25 is as good as before, to 90 %
reached       questions after the change until such a window reaches `--level`
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import tqdm
from absl import app, flags
from scipy import special

from promptrl_jax.envs import simulated_user
from promptrl_jax.envs.simulated_user import ASPECTS, SimulatedUser, UserConfig
from promptrl_jax.evaluation import regret
from promptrl_jax.llm import templated
from promptrl_jax.prompts import catalogue
from promptrl_jax.tasks import queries as queries_lib
from promptrl_jax.tools import command

_PEOPLE = flags.DEFINE_integer('people', 10, 'People.', lower_bound=2)
_SEED = flags.DEFINE_integer('seed', 100, 'Of the first person.')
_QUERIES = flags.DEFINE_integer('queries', 300, 'Questions.', lower_bound=100)
_DRIFT = flags.DEFINE_integer(
  'drift', 150, 'Question of another taste; 0: none.'
)
_OPTIMISM = flags.DEFINE_float('optimism', 0.0, 'Standard deviations.')
_LEVEL = flags.DEFINE_float('level', 0.59, 'Satisfaction to reach.')

_CHAINS, _SWEEPS = 24, 3  # samples of the posterior, and sweeps per question
_GRID = 1000  # steps of satisfaction, of the table of log-likelihoods
_SIZES = [len(options) for options, _ in ASPECTS.values()]
_WEIGHTS = np.array([weight for _, weight in ASPECTS.values()])
_SUMMARY = 50  # questions


class Posterior:
  """Samples of what somebody prefers, given ratings.

  Attributes:
    preferred: int [C, kinds, aspects], in each of C chains.
    general: int [C, aspects], of the kinds without a preference of their own.
  """

  def __init__(self, config: UserConfig, seed: int):
    self._config = config
    self._rng = np.random.default_rng(seed)
    shape = _CHAINS, len(queries_lib.KINDS)
    draw = lambda *of: np.stack(
      [self._rng.integers(size, size=of) for size in _SIZES], axis=-1
    )
    self.preferred, self.general = draw(*shape), draw(_CHAINS)
    # What was rated, of each kind: by aspect [n, preferences], and ratings [n].
    nothing = [np.zeros((0, size)) for size in _SIZES]
    self._shown = [nothing for _ in queries_lib.KINDS]
    self._ratings = [np.zeros(0, int) for _ in queries_lib.KINDS]
    self._log_likelihood = _log_likelihood(config)

  def hear(self, kind: int, suits: Sequence[np.ndarray], rating: int) -> None:
    """Adds a rating of an answer; `suits` is [preferences] by aspect."""
    rows = zip(self._shown[kind], suits, strict=True)
    self._shown[kind] = [np.vstack(pair) for pair in rows]
    self._ratings[kind] = np.append(self._ratings[kind], rating)
    for _ in range(_SWEEPS):
      self._sweep()

  def satisfaction(self, kind: int, suits: Sequence[np.ndarray]) -> np.ndarray:
    """Of each chain with some answers, [C, answers].

    Args:
      suits: [preferences, answers] by aspect.
    """
    liked = self.preferred[:, kind]
    parts = [w * suits[a][liked[:, a]] for a, w in enumerate(_WEIGHTS)]
    return self._config.satisfaction(np.sum(parts, axis=0))

  def _sweep(self) -> None:
    """Draws each preference given all others, once."""
    for kind in range(len(queries_lib.KINDS)):
      for aspect in range(len(_SIZES)):
        logits = self._log_prior(aspect) + self._evidence(kind, aspect)
        self.preferred[:, kind, aspect] = self._draw(logits)
    for aspect, size in enumerate(_SIZES):
      own = self._config.own
      of = self.preferred[:, :, aspect, None] == np.arange(size)
      # A kind prefers what is general with so many times the other's chance.
      ratio = (1 - own + own / size) / (own / size)
      self.general[:, aspect] = self._draw(of.sum(axis=1) * np.log(ratio))

  def _log_prior(self, aspect: int) -> np.ndarray:
    """Of each preference given the general ones, [C, preferences]."""
    own, size = self._config.own, _SIZES[aspect]
    is_general = self.general[:, aspect, None] == np.arange(size)
    return np.log(own / size + (1 - own) * is_general)

  def _evidence(self, kind: int, aspect: int) -> np.ndarray:
    """Log-likelihood of each preference in an aspect, [C, preferences]."""
    shown, ratings = self._shown[kind], self._ratings[kind]
    others = [
      weight * shown[a][:, self.preferred[:, kind, a]]
      for a, weight in enumerate(_WEIGHTS)
      if a != aspect
    ]
    others = np.sum(others, axis=0)[:, :, None]
    mine = _WEIGHTS[aspect] * shown[aspect][:, None, :]
    suits = others + mine  # [n, C, preferences]
    satisfaction = self._config.satisfaction(suits)
    cells = np.rint(satisfaction * _GRID).astype(int)
    return self._log_likelihood[cells, ratings[:, None, None]].sum(0)

  def _draw(self, logits: np.ndarray) -> np.ndarray:
    return (logits + self._rng.gumbel(size=logits.shape)).argmax(axis=-1)


def _log_likelihood(config: UserConfig) -> np.ndarray:
  """Of ratings 0 (never) to 5 by satisfaction in steps: [steps + 1, 6]."""
  scores = 1 + 4 * np.linspace(0, 1, _GRID + 1)[:, None]
  edges = np.array([-np.inf, 1.5, 2.5, 3.5, 4.5, np.inf])
  share = np.diff(special.ndtr((edges - scores) / config.noise), axis=1)
  share = (1 - config.slips) * share + config.slips / 5
  with np.errstate(divide='ignore'):  # of ratings that nobody gives
    return np.log(np.pad(share, ((0, 0), (1, 0))))


def learn(config: UserConfig, seed: int, queries: int, optimism: float):
  """Satisfaction of one person with each answer, [T]."""
  user = SimulatedUser(config, seed)
  posterior, found = Posterior(config, seed), []
  for at, query in enumerate(queries_lib.draw('train', queries, seed)):
    if config.drift and at == config.drift:
      posterior = Posterior(config, seed)
    kind = queries_lib.KINDS.index(query.kind)
    suits = list(simulated_user.suits(query).values())
    expected = posterior.satisfaction(kind, suits)
    score = expected.mean(axis=0) + optimism * expected.std(axis=0)
    best = int(score.argmax())
    text = templated.answer(catalogue.every()[best].render(), query.text)
    rating = user.rate(query, text, at)
    posterior.hear(kind, [x[:, best] for x in suits], rating)
    found.append(user.satisfaction(query, text, at))
  return np.array(found)


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {argv[1:]}')
  with command.in_one_line():
    config = UserConfig(drift=_DRIFT.value)
    seeds = range(_SEED.value, _SEED.value + _PEOPLE.value)
    bar = tqdm.tqdm(seeds, desc='taste_floor', unit='person')
    runs = np.array(
      [learn(config, seed, _QUERIES.value, _OPTIMISM.value) for seed in bar]
    )
    rows = {
      'first': regret.interval(runs[:, :_SUMMARY].mean(axis=1)),
      'last': regret.interval(runs[:, -_SUMMARY:].mean(axis=1)),
      'reached': regret.reached(runs[:, config.drift :], _LEVEL.value),
    }
    if config.drift:
      rows['recovery'] = regret.recovery(runs, config.drift)
    for name, row in rows.items():
      print(json.dumps({'name': name} | {k: round(row[k], 3) for k in row}))


if __name__ == '__main__':
  app.run(main)
