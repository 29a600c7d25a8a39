"""Improves one task of your own: its prompt and its program.

  python -m experiments.improve --config=configs/improve.py:server \
    --config.coder.model=NAME --config.rewriter.model=NAME \
    --statement='Write a function that ...' --tests=my_asserts.py

Arguments:
  minicode2 the embedded models, no GPU, hub or key; they know the few dozen
            families of problems of that suite (the default)
  smollm2   SmolLM2 135M Instruct in both roles, in this process (`make real`)
  server    any model behind an OpenAI-compatible server, by default that of
            Ollama
"""

import dataclasses

import ml_collections

from configs.job import Job, check_argument, on_minicode2, use_smollm2
from promptrl_jax import settings
from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.llm.http import HttpConfig
from promptrl_jax.llm.load import BackendConfig
from promptrl_jax.operators.examples import check_kind

_ARGUMENTS = ('minicode2', 'smollm2', 'server')
# Ollama's.
_SERVER = BackendConfig('http', http=HttpConfig('http://127.0.0.1:11434/v1'))


@dataclasses.dataclass(frozen=True)
class Config(Job):
  """Settings of the job, in addition to those of `Job`.

  Attributes:
    budget: most model calls of each strategy; calls that two of them share are
      made once.
    strategies: that are played, see `experiments.improve`.
    examples: how solved training problems of `data` are found for `fewshot`: by
      `words`, `shipped` or `minilm`; empty for none.
    cache: file of completions; empty keeps them in memory.
  """

  budget: int = 8
  strategies: tuple[str, ...] = (
    *('direct', 'greedy_first', 'repair', 'hand_rule'),
  )
  examples: str = ''
  cache: str = ''
  editing: EditingConfig = EditingConfig()

  def __post_init__(self):
    check_kind(self.examples)
    if self.budget < 1:
      raise ValueError(f'budget={self.budget}: expected 1 call or more')
    if not self.strategies:
      raise ValueError('strategies=(): expected at least one')
    if 'fewshot' in self.strategies and not self.examples:
      raise ValueError(
        "examples='': fewshot needs worked examples, expected words, shipped "
        'or minilm'
      )


def get_config(arg: str = 'minicode2') -> ml_collections.ConfigDict:
  check_argument(arg, _ARGUMENTS)
  c = settings.to_config_dict(Config())
  if arg == 'minicode2':
    on_minicode2(c)
    return c
  c.data.name = 'mbpp'
  if arg == 'smollm2':
    for role in ('coder', 'rewriter'):
      use_smollm2(c, role)
    c.ask.rewrite_max_tokens = 96
  else:
    for role in ('coder', 'rewriter'):
      c[role] = settings.to_config_dict(_SERVER)
    c.ask.template = 'chat'
    c.ask.max_tokens = c.ask.rewrite_max_tokens = 512
  return c
