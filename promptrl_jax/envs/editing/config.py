"""Settings of the prompt-editing environment."""

from __future__ import annotations

import dataclasses

from promptrl_jax import operators
from promptrl_jax.envs.editing import observation as observation_lib
from promptrl_jax.operators import lexical
from promptrl_jax.prompts import templates
from promptrl_jax.rewards import tests as rewards

OBSERVATIONS = ('rich', 'legacy')


@dataclasses.dataclass(frozen=True)
class EditingConfig:
  """Settings of the environment.

  Attributes:
    actions: operators that may be chosen; see `promptrl_jax.operators`.
    budget: most language-model calls of an episode.
    max_steps: most steps of an episode.
    observation: `rich`, or `legacy` (the ten features of PROMIS).
    accumulate: edits build on one another; False starts each from the original
      statement, as PROMIS does.
    first_temperature: the first time a prompt is asked in an episode.
    sample_temperature: every further time, and always with `resample`.
    rewrite_temperature: of a rewrite that was asked before in the episode; the
      first one is greedy.
    top_p: nucleus mass of all samples.
    max_tokens: most tokens of a program.
    rewrite_max_tokens: most tokens of a statement.
    template: how requests are written; see `prompts.templates`.
    lexical: settings of the synonym mutation.
    reward: settings of the reward.
    gamma: discount, for potential-based shaping.
  """

  actions: tuple[str, ...] = operators.DEFAULT
  budget: int = 8
  max_steps: int = 10
  observation: str = 'rich'
  accumulate: bool = True
  first_temperature: float = 0.0
  sample_temperature: float = 0.8
  rewrite_temperature: float = 0.8
  top_p: float = 1.0
  max_tokens: int = 80
  rewrite_max_tokens: int = 64
  template: str = 'plain'
  lexical: lexical.LexicalConfig = lexical.DEFAULT
  reward: rewards.RewardConfig = rewards.RewardConfig()
  gamma: float = 1.0

  def __post_init__(self):
    operators.check(self.actions)
    if self.observation not in OBSERVATIONS:
      raise ValueError(
        f'observation {self.observation!r}: expected "rich" or "legacy"'
      )
    if self.template not in templates.TEMPLATES:
      raise ValueError(
        f'template {self.template!r}: expected one of '
        f'{sorted(templates.TEMPLATES)}'
      )
    if self.budget < 1:
      raise ValueError(f'budget={self.budget}: expected at least one call')

  @property
  def observation_size(self) -> int:
    if self.observation == 'legacy':
      return observation_lib.LEGACY_SIZE
    return observation_lib.rich_size(len(self.actions))
