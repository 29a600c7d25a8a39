"""Settings of an environment and of how models are asked, from one mapping."""

from promptrl_jax import settings
from promptrl_jax.llm.ask import AskConfig


def split(values):
  """An `AskConfig`, and the values that are none of its fields."""
  asked = {k: v for k, v in values.items() if k in settings.fields(AskConfig)}
  rest = {k: v for k, v in values.items() if k not in asked}
  return AskConfig(**asked), rest
