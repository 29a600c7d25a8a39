"""People with a known taste: queries, candidates and noisy ratings of 1 to 5.

A query is of one of three kinds, each with its own taste over six properties of
an answer. Features are the kind, the properties, and their products.
"""

import numpy as np

from promptrl_jax.models.candidates import cross_features
from promptrl_jax.training.gpro import learner as learner_lib
from promptrl_jax.training.gpro import replay as replay_lib

KINDS, PROPERTIES, CANDIDATES = 3, 6, 5
FEATURES = KINDS + PROPERTIES + KINDS * PROPERTIES
MASK = np.ones(CANDIDATES, bool)


class World:
  """Draws queries; `taste` is 'linear' or 'mild', which bends it a little.

  From query `drift` on, what was liked is mostly disliked, and as much is
  liked as before.
  """

  def __init__(self, seed, taste='linear', drift=10**9):
    self.rng = np.random.default_rng([seed, 1])
    self.taste, self.drift = taste, drift
    before, other = self.rng.normal(0, 0.9, (2, KINDS, PROPERTIES))
    self.weights = before, 0.8 * other - 0.6 * before

  def query(self):
    kind = self.rng.integers(KINDS)
    answers = self.rng.normal(size=(CANDIDATES, PROPERTIES))
    return (kind, answers), cross_features(np.eye(KINDS)[kind], answers)

  def satisfaction(self, query, time):
    kind, x = query
    z = x @ self.weights[int(time >= self.drift)][kind]
    if self.taste == 'mild':
      close = 1 - abs(x[:, 0] - x[:, 1])
      z = 0.6 * z + 0.8 * close + 0.5 * np.tanh(2 * x[:, 2] * x[:, 3])
    return 1 / (1 + np.exp(-z))

  def rate(self, satisfaction):
    noisy = satisfaction + self.rng.normal(0, 0.15)
    return (np.clip(np.round(1 + 4 * noisy), 1, 5) - 1) / 4


def play(learner, state, world, queries, policy='gpro', replay=None, start=0):
  """Plays queries; returns state, replay, and `[queries]` values by name.

  The rivals are 'random' and 'greedy', which shows the best candidate of the
  same critic, but a random one in a tenth of the queries.
  """
  if replay is None:
    replay = replay_lib.empty(learner.config)
  rows = []
  for time in range(start, start + queries):
    query, features = world.query()
    values = world.satisfaction(query, time)
    key = learner_lib.act_key(state, time)
    choice = learner.act(state, features[None], MASK[None], key)
    shown, logps = int(choice.shown[0]), np.asarray(choice.logps[0])
    scores = np.asarray(choice.scores[0])
    if policy != 'gpro':
      epsilon = 1.0 if policy == 'random' else 0.1
      p = np.full(CANDIDATES, epsilon / CANDIDATES)
      p[scores.argmax()] += 1 - epsilon
      shown, logps = int(world.rng.choice(CANDIDATES, p=p)), np.log(p)
    replay, serial = replay_lib.add(
      replay, features, MASK, logps, scores, shown
    )
    replay, _ = replay_lib.rate(
      replay, serial, world.rate(values[shown]), 'rating'
    )
    if learner.due(replay) and policy != 'random':
      state, _ = learner.update(state, replay)
    rows.append((values[shown], values.max(), values.mean()))
  value, best, mean = np.array(rows).T
  return state, replay, {'value': value, 'regret': best - value, 'mean': mean}


def correlation(learner, state, world, time, queries=100):
  """Correlation of the critic with the satisfaction with unseen candidates."""
  pairs = []
  for _ in range(queries):
    query, features = world.query()
    key = learner_lib.act_key(state, 0)
    choice = learner.act(state, features[None], MASK[None], key)
    pairs.append((choice.scores[0], world.satisfaction(query, time)))
  expected, true = np.array(pairs).swapaxes(0, 1).reshape(2, -1)
  return np.corrcoef(expected, true)[0, 1]
