"""Training problems that random operators solve now and then.

A decision is judged against others made in its state. Where every episode of a
problem fails there is nothing to compare, and with a weak coder that is so for
most problems. "Kimi k1.5: Scaling Reinforcement Learning with LLMs", 2025
(https://arxiv.org/abs/2501.12599), section 2.1, selects prompts likewise.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from promptrl_jax.envs.editing import rollout as env_rollout
from promptrl_jax.envs.editing.env import EditingEnv
from promptrl_jax.strategies import policies
from promptrl_jax.types import Problem


def solvable_problems(
  env: EditingEnv,
  problems: Sequence[Problem],
  episodes: int,
  budget: int,
  progress: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> tuple[tuple[Problem, ...], int]:
  """Returns the problems that one of K random episodes solves.

  Args:
    env: where episodes are played.
    problems: of the training split.
    episodes: K, of each problem: one in each of the worlds 0 to K - 1, so that
      all controllers have the same problems, and a cache what they ask.
    budget: model calls of an episode.
    progress: wraps the numbers of the worlds for a progress bar.

  Returns:
    The problems, in their order, and the calls made.

  Raises:
    ValueError: no problem is left.
  """
  solved, calls = np.zeros(len(problems), bool), 0
  for k in progress(range(episodes)):
    env_rollout.collect(
      env,
      policies.uniform(k),
      problems,
      [k] * len(problems),
      [budget] * len(problems),
    )
    # What the system lost says nothing of a problem, which is kept.
    solved |= [e.best_share == 1.0 or e.lost for e in env.episodes]
    calls += sum(episode.calls for episode in env.episodes)
  kept = tuple(itertools.compress(problems, solved))
  if not kept:
    raise ValueError(
      f'controller.solvable_by={episodes}: no episode by random operators '
      f'solves any of {len(problems)} training problems; expected a coder that '
      'solves some, more episodes, or 0 to train on all problems'
    )
  return kept, calls
