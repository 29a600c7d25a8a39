"""What the settings of several jobs share."""

import dataclasses
from collections.abc import Iterable

import ml_collections

from promptrl_jax import settings
from promptrl_jax.execution.config import PoolConfig
from promptrl_jax.llm.ask import AskConfig
from promptrl_jax.llm.ledger import SpendConfig
from promptrl_jax.llm.load import BackendConfig
from promptrl_jax.tasks.minicode2 import suite as minicode2
from promptrl_jax.tasks.task_set import DataConfig

SMOLLM2 = 'smollm2_135m_instruct'


@dataclasses.dataclass(frozen=True)
class Job:
  """Settings of a job that has programs written for tasks.

  Each section is documented at its class.

  Attributes:
    seed: of the first run.
    mesh: devices by axis, for models that one device cannot hold: `tensor=2`,
      or `data=2,fsdp=2,tensor=2`. Empty: all along data, a copy on each.
    plugins: modules that register operators, strategies, task sets, rewards,
      ...
    rewriter: rewrites statements; where training starts, if it is trained.
    spend: caps of calls, tokens and dollars, prices, dry run.
  """

  seed: int = 0
  mesh: str = ''
  plugins: tuple[str, ...] = ()
  data: DataConfig = DataConfig()
  coder: BackendConfig = BackendConfig(model='minicode_coder')
  rewriter: BackendConfig = BackendConfig(model='minicode_rewriter')
  pool: PoolConfig = PoolConfig()
  ask: AskConfig = AskConfig()
  spend: SpendConfig = SpendConfig()


def on_minicode2(config: ml_collections.ConfigDict) -> None:
  """Names the tasks and the models of minicode 2."""
  config.data.name = 'minicode2'
  config.data.options = settings.to_config_dict(minicode2.Options())
  config.coder.model = 'minicode2_coder'
  config.rewriter.model = 'minicode2_rewriter'
  config.ask.max_tokens = config.coder.new_tokens = 96


def use_smollm2(config: ml_collections.ConfigDict, role: str) -> None:
  """Lets SmolLM2 135M Instruct write programs for MBPP.

  Format, instruction and temperature were chosen by `experiments.headroom`.
  """
  model = config[role]
  model.backend, model.model = 'jax', SMOLLM2
  model.dtype = model.kv_cache = 'bfloat16'
  model.prompt_tokens, model.slots = 1024, 64
  model.prompt_cache_gib = 4.0
  model.new_tokens = config.ask.max_tokens = 200
  config.ask.template = 'code'
  config.ask.instruction = (
    'You are a helpful assistant that writes correct Python code.'
  )
  config.ask.sample_temperature = 0.4
  # A model of this size writes many endless loops; all references need less.
  config.pool.limits.cpu_s = 2.0


def train_adapters(config: ml_collections.ConfigDict) -> None:
  """Trains adapters of a public model, in little memory."""
  config.train.parameters = 'lora'
  config.train.reference.kind = 'adapter_off'
  config.train.logits_chunk, config.train.remat = 64, True


def train_smollm2(
  config: ml_collections.ConfigDict, prompt: int, completion: int
) -> None:
  """Trains adapters of SmolLM2 135M Instruct to rewrite, on two cores.

  `prompt` and `completion` are the most tokens of a request and of a rewrite.
  """
  train_adapters(config)
  config.rewriter.model = SMOLLM2
  config.train.packing.prompt_size = prompt
  config.train.packing.lane_size = completion
  config.train.rollout.new_tokens = completion
  config.ask.rewrite_max_tokens = completion


def check_argument(argument: str, known: Iterable[str]) -> None:
  """Raises ValueError for an argument that a config file does not know."""
  if argument not in known:
    raise ValueError(
      f'config argument {argument!r}: expected one of {", ".join(known)}'
    )
