"""Groups of rewrites of a batch of tasks, and which of them are learned from.

prompts [B] -> sample: G completions each -> Rollout [N = B * G]
  -> rewards [N] -> informative: completions that an update can learn from
"""

from __future__ import annotations

import collections
import dataclasses
import zlib
from collections.abc import Sequence

import numpy as np

from promptrl_jax.models.tokenizer import Tokenizer
from promptrl_jax.prompts.templates import Messages
from promptrl_jax.sampling.engine import Engine
from promptrl_jax.sampling.requests import EngineRequest, SamplingParams


@dataclasses.dataclass(frozen=True)
class RolloutConfig:
  """What one iteration samples.

  Attributes:
    prompts: B, tasks per iteration.
    group: G, rewrites of each task.
    new_tokens: most tokens of a rewrite.
    temperature: sampling temperature.
    drop_uniform: whether groups whose rewards are all equal are left out;
      compared within the group, they carry no signal.
    resample_rounds: how many more times tasks are drawn in the place of groups
      that were left out (dynamic sampling, arXiv 2503.14476, section 3.2).
  """

  prompts: int = 64
  group: int = 8
  new_tokens: int = 64
  temperature: float = 0.8
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


@dataclasses.dataclass
class Rollout:
  """N completions of B prompts.

  Attributes:
    prompts: B lists of token ids.
    owners: N indices into `prompts`: the prompt of each completion.
    completions: N lists of token ids, the stop token included.
    sampler_logps: N arrays, float32, one log-probability per token.
    texts: N completions as text.
    finished: N flags; False for a completion that the token limit cut off.
  """

  prompts: list[list[int]] = dataclasses.field(default_factory=list)
  owners: list[int] = dataclasses.field(default_factory=list)
  completions: list[list[int]] = dataclasses.field(default_factory=list)
  sampler_logps: list[np.ndarray] = dataclasses.field(default_factory=list)
  texts: list[str] = dataclasses.field(default_factory=list)
  finished: list[bool] = dataclasses.field(default_factory=list)

  def extend(self, other: Rollout) -> None:
    """Adds the prompts and completions of another rollout."""
    self.owners += [len(self.prompts) + owner for owner in other.owners]
    for field in dataclasses.fields(self):
      if field.name != 'owners':
        getattr(self, field.name).extend(getattr(other, field.name))


def seed_of(*parts: object) -> int:
  """Returns a seed for one purpose; equal parts give equal seeds."""
  return zlib.crc32('/'.join(map(str, parts)).encode())


def draw_tasks(count: int, size: int, seed: int, step: int) -> list[int]:
  """Draws the indices of the tasks of an iteration.

  Tasks are walked through in shuffled passes: each pass visits every task once.

  Args:
    count: number of tasks.
    size: tasks per iteration.
    seed: seed of the walk.
    step: number of the iteration.
  """
  indices = []
  for place in range(step * size, (step + 1) * size):
    epoch, offset = divmod(place, count)
    order = np.random.default_rng([seed, epoch, 0]).permutation(count)
    indices.append(int(order[offset]))
  return indices


def own_names(names: Sequence[str]) -> list[str]:
  """Returns a name for each place: the second `a` is `a/1`, the third `a/2`.

  A batch has a task twice where a pass over the tasks ends in it, or where
  there are fewer than it takes. Under one name both would draw the same
  rewrites.
  """
  seen = collections.Counter()
  own = []
  for name in names:
    own.append(f'{name}/{seen[name]}' if seen[name] else name)
    seen[name] += 1
  return own


def sample(
  engine: Engine,
  tokenizer: Tokenizer,
  prompts: Sequence[Messages],
  names: Sequence[str],
  config: RolloutConfig,
  seed: int,
) -> Rollout:
  """Draws G completions of each prompt; each prompt is prefilled once.

  Args:
    engine: samples with the parameters that it holds.
    tokenizer: the tokenizer of the model.
    prompts: B conversations.
    names: B names; a completion depends on the seed, the name of its prompt and
      its place in the group.
    config: size of a group, temperature and token limit.
    seed: seed of the batch.
  """
  ids = [tokenizer.render(messages) for messages in prompts]
  requests = [
    EngineRequest(
      prompt,
      [
        SamplingParams(
          config.new_tokens, config.temperature, seed=seed_of(seed, name, i)
        )
        for i in range(config.group)
      ],
    )
    for name, prompt in zip(names, ids, strict=True)
  ]
  samples = [s for group in engine.run(requests) for s in group]
  completions = [s.tokens.tolist() for s in samples]
  return Rollout(
    prompts=ids,
    owners=[i for i in range(len(ids)) for _ in range(config.group)],
    completions=completions,
    sampler_logps=[s.logps for s in samples],
    texts=list(tokenizer.decode_after(completions)),
    finished=[s.stopped for s in samples],
  )


def informative(
  rollout: Rollout, rewards: Sequence[float] | np.ndarray, drop_uniform: bool
) -> tuple[Rollout, np.ndarray]:
  """Returns the completions that an update can learn from, and their rewards.

  Args:
    rollout: N completions.
    rewards: `[N]`; a completion whose reward is not finite is left out.
    drop_uniform: whether groups whose rewards are all equal are left out.

  Returns:
    A rollout, and float32 `[N']` rewards. Prompts without a completion are left
    out.

  Raises:
    ValueError: the number of rewards is not that of the completions.
  """
  rewards = np.asarray(rewards, np.float32)
  if rewards.shape != (len(rollout.completions),):
    raise ValueError(
      f'rewards have shape {rewards.shape}, expected one for each of '
      f'{len(rollout.completions)} completions'
    )
  kept, chosen = Rollout(), []
  owners, is_valid = np.asarray(rollout.owners, int), np.isfinite(rewards)
  for owner, prompt in enumerate(rollout.prompts):
    group = np.flatnonzero((owners == owner) & is_valid).tolist()
    if not group or (drop_uniform and np.ptp(rewards[group]) == 0):
      continue
    kept.owners += [len(kept.prompts)] * len(group)
    kept.prompts.append(prompt)
    chosen += group
  for name in ('completions', 'sampler_logps', 'texts', 'finished'):
    values = getattr(rollout, name)
    setattr(kept, name, [values[i] for i in chosen])
  return kept, rewards[chosen]
