"""Settings of the prompt-editing environment."""

from __future__ import annotations

import dataclasses

from promptrl_jax import operators
from promptrl_jax.envs.editing import observation as observation_lib
from promptrl_jax.operators.lexical import LexicalConfig
from promptrl_jax.rewards.tests import StepRewardConfig

OBSERVATIONS = ('rich', 'masked', 'legacy')


@dataclasses.dataclass(frozen=True)
class EditingConfig:
  """Settings of the environment.

  Attributes:
    actions: operators that may be chosen; see `promptrl_jax.operators`.
    budget: most language-model calls of an episode.
    max_steps: most steps of an episode.
    observation: `rich`; `masked`, the same without anything that running the
      programs has shown; or `legacy` (the ten features of PROMIS).
    sees_certainty: how sure the coder was of its last program is part of the
      observation; takes a coder that measures it (`coder.certainty`).
    sees_agreement: how many of the programs so far compute the same on inputs
      that are mutated from the visible tests is part of the observation; each
      program is run on them, at no call.
    sees_price: the price of a token is part of the observation, see
      `ControllerConfig.token_prices`.
    accumulate: edits build on one another; False starts each from the original
      statement, as PROMIS does.
    lexical: of the synonym mutation.
    step_reward: of the reward.
  """

  actions: tuple[str, ...] = operators.DEFAULT
  budget: int = 8
  max_steps: int = 8
  observation: str = 'rich'
  sees_certainty: bool = False
  sees_agreement: bool = False
  sees_price: bool = False
  accumulate: bool = True
  lexical: LexicalConfig = LexicalConfig()
  step_reward: StepRewardConfig = StepRewardConfig()

  def __post_init__(self):
    operators.check(self.actions)
    if self.observation not in OBSERVATIONS:
      raise ValueError(
        f'observation {self.observation!r}: expected one of {OBSERVATIONS}'
      )
    if self.budget < 1:
      raise ValueError(f'budget={self.budget}: expected at least one call')

  @property
  def observation_size(self) -> int:
    size = observation_lib.rich_size(len(self.actions))
    if self.observation == 'legacy':
      size = observation_lib.LEGACY_SIZE
    if self.sees_certainty:
      size += observation_lib.CERTAINTY_SIZE
    if self.sees_agreement:
      size += observation_lib.AGREEMENT_SIZE
    return size + self.sees_price

  def without(self, name: str) -> EditingConfig:
    """Returns the settings without one operator."""
    actions = tuple(action for action in self.actions if action != name)
    return dataclasses.replace(self, actions=actions)
