"""Groups of rewrites of a batch of tasks: sampled, answered, judged.

  tasks ─► prompts ─► G completions each ─► frozen model ─► rewards

`sample` runs the rewriter, `RewriteEnv.submit` asks the frozen model and leaves
the rest to other threads or processes, and `to_rollout` takes what came back.
Between the two a caller may sample the next batch.
"""

from __future__ import annotations

import dataclasses
import time
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from promptrl_jax.envs.rewrite_env import Identified, RewriteEnv
from promptrl_jax.models.tokenizer import Tokenizer
from promptrl_jax.sampling.engine import Engine
from promptrl_jax.sampling.requests import (
  EngineRequest,
  Sample,
  SamplingParams,
)


@dataclasses.dataclass(frozen=True)
class RolloutConfig:
  """What one iteration samples.

  Attributes:
    prompts: B, tasks per iteration.
    group: G, rewrites of each.
    new_tokens: most tokens of a rewrite.
    temperature: of the rewriter.
    drop_uniform: whether groups whose rewards are all equal are left out:
      compared within the group, they say nothing.
    resample_rounds: how many more times as many tasks are drawn as groups were
      left out (dynamic sampling, arXiv 2503.14476, section 3.2).
  """

  prompts: int = 32
  group: int = 8
  new_tokens: int = 64
  temperature: float = 1.0
  drop_uniform: bool = True
  resample_rounds: int = 0

  def __post_init__(self):
    for field in ('prompts', 'group', 'new_tokens'):
      if getattr(self, field) < 1:
        raise ValueError(f'{field}={getattr(self, field)}: expected 1 or more')
    if self.temperature <= 0:
      raise ValueError(
        f'temperature={self.temperature}: a policy that explores needs more '
        'than 0'
      )


@dataclasses.dataclass(frozen=True)
class Sampled:
  """Rewrites of B tasks, G of each, task after task.

  Attributes:
    tasks: B.
    prompts: token ids of what the rewriter was asked, B.
    samples: B * G.
    texts: the same as text.
    seconds: that sampling took.
  """

  tasks: Sequence[Identified]
  prompts: list[list[int]]
  samples: Sequence[Sample]
  texts: Sequence[str]
  seconds: float


@dataclasses.dataclass
class Rollout:
  """Completions that an update learns from.

  Attributes:
    prompts: token ids of each prompt.
    completions: token ids of each completion.
    owners: the prompt of each.
    sampler_logps: float32 of each, a number per token.
    rewards: of each, finite.
  """

  prompts: list[list[int]]
  completions: list[list[int]]
  owners: list[int]
  sampler_logps: list[np.ndarray]
  rewards: list[float]

  def extend(self, other: Rollout) -> None:
    """Adds the prompts and completions of another rollout."""
    self.owners += [len(self.prompts) + owner for owner in other.owners]
    for field in ('prompts', 'completions', 'sampler_logps', 'rewards'):
      getattr(self, field).extend(getattr(other, field))


def seed_of(*parts: object) -> int:
  """A seed for one purpose: the same parts give the same one."""
  return zlib.crc32('/'.join(map(str, parts)).encode())


def sample(
  engine: Engine,
  tokenizer: Tokenizer,
  env: RewriteEnv[Any],
  tasks: Sequence[Identified],
  config: RolloutConfig,
  seed: int,
) -> Sampled:
  """Draws G rewrites of each task; each prompt is read once."""
  started = time.perf_counter()
  prompts = [tokenizer.render(messages) for messages in env.prompts(tasks)]
  requests = [
    EngineRequest(
      prompt,
      [
        SamplingParams(
          config.new_tokens,
          config.temperature,
          seed=seed_of(seed, task.task_id, i),
        )
        for i in range(config.group)
      ],
    )
    for task, prompt in zip(tasks, prompts, strict=True)
  ]
  samples = [s for group in engine.run(requests) for s in group]
  texts = tokenizer.decode_after([s.tokens.tolist() for s in samples])
  seconds = time.perf_counter() - started
  return Sampled(tasks, prompts, samples, texts, seconds)


def to_rollout(
  sampled: Sampled, rewards: np.ndarray, config: RolloutConfig
) -> Rollout:
  """What there is to learn from.

  Args:
    sampled: B * G rewrites.
    rewards: [B * G]; NaN for a sample that the system dropped.
    config: says whether groups without a difference are left out.
  """
  found = Rollout([], [], [], [], [])
  grouped = np.asarray(rewards).reshape(-1, config.group)
  for i, group in enumerate(grouped):
    there = np.flatnonzero(np.isfinite(group))
    if not len(there) or (config.drop_uniform and np.ptp(group[there]) == 0):
      continue
    for place in (i * config.group + there).tolist():
      sample = sampled.samples[place]
      found.owners.append(len(found.prompts))
      found.completions.append(sample.tokens.tolist())
      found.sampler_logps.append(sample.logps)
      found.rewards.append(float(rewards[place]))
    found.prompts.append(sampled.prompts[i])
  return found


def draw_tasks(count: int, size: int, seed: int, step: int) -> list[int]:
  """Indices of the tasks of an iteration: a walk through shuffled passes."""
  indices = []
  for place in range(step * size, (step + 1) * size):
    epoch, offset = divmod(place, count)
    order = np.random.default_rng([seed, epoch, 0]).permutation(count)
    indices.append(int(order[offset]))
  return indices
