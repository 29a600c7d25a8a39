"""Whether a new actor goes live: not if what was said shows it to be worse."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from promptrl_jax.training.gpro import drift, off_policy
from promptrl_jax.training.gpro.learner import GPROLearner
from promptrl_jax.training.gpro.replay import RATING, THUMBS, Replay
from promptrl_jax.training.gpro.state import GPROState
from promptrl_jax.training.gpro.update import Metrics

FEWEST = 20  # ratings and thumbs from which an actor is judged


def judge(
  learner: GPROLearner, old: GPROState, new: GPROState, replay: Replay
) -> tuple[GPROState, Metrics]:
  """Returns the new state, with the old actor if the new one is worse for sure.

  That is, if the interval of its gain over what was shown, estimated on what
  was said of one taste, lies below 0.

  Args:
    old, new: states before and after an update on the replay.

  Returns:
    The state, and the estimate as metrics; none where too little was said.
  """
  # What was said of another taste says nothing of an actor for this one.
  log = drift.current(replay, new.changed)
  counted = np.isin(log.kind, (RATING, THUMBS)).sum()
  if int(new.changed) != int(old.changed) or counted < FEWEST:
    return new, {}
  key = jax.random.key(0)  # Only probabilities are read.
  choice = learner.act(new, log.features, log.mask, key)
  estimate = off_policy.evaluate(log, np.asarray(choice.logps))
  metrics = {
    f'off_policy/{name}': jnp.asarray(value)
    for name, value in estimate._asdict().items()
  }
  if estimate.gain_high >= 0:
    return new, metrics
  before: Any = old
  after: Any = new
  kept = dataclasses.replace(
    after,
    params=after.params | {'actor': before.params['actor']},
    opt_state=after.opt_state | {'actor': before.opt_state['actor']},
    anchor=before.anchor,
  )
  return kept, metrics
