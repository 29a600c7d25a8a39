"""What the experiments that train a rewriter share: where it starts, its parts.

No flags here.
"""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import jax

from promptrl_jax.envs.prompt_edit import EnvConfig
from promptrl_jax.llm import load
from promptrl_jax.llm.jax_lm import JaxLM, JaxLMConfig
from promptrl_jax.models import lora, peft, pretrained
from promptrl_jax.models.config import TransformerConfig
from promptrl_jax.models.tokenizer import Tokenizer
from promptrl_jax.operators.lexical import LexicalConfig
from promptrl_jax.training import (
  checkpoint,
  lm_advantages,
  lm_config,
  lm_rollout,
  packing,
  reference,
  rewriter,
  rewriter_config,
)


@dataclasses.dataclass(frozen=True)
class Start:
  """The model that training starts from.

  Attributes:
    name: what a report calls it.
    config: its shape.
    params: with `params` at the top, float32.
    tokenizer: of the model.
  """

  name: str
  config: TransformerConfig
  params: Any
  tokenizer: Tokenizer

  def backend(self, mesh, new_tokens):
    """The model as a backend whose parameters can be replaced."""
    shapes = JaxLMConfig()
    if shapes.new_tokens < new_tokens:
      shapes = dataclasses.replace(shapes, new_tokens=new_tokens)
    return JaxLM(
      self.name, self.config, self.params, self.tokenizer, mesh, shapes
    )


def load_start(settings) -> Start:
  """Reads the model that a config names.

  Raises:
    ValueError: it is not in this process, or not a causal model.
  """
  if settings.backend != 'jax':
    raise ValueError(
      f'rewriter.backend={settings.backend!r}: only a model in this process '
      'can be trained, expected jax'
    )
  folder = load.find(settings.model)
  config, params, tokenizer = pretrained.load_pretrained(folder)
  if not isinstance(config, TransformerConfig):
    raise ValueError(
      f'{folder} is a {config.family} model: expected a causal one, which is '
      'what training is written for'
    )
  name = f'{pathlib.Path(folder).name}@{pretrained.digest(folder)}'
  return Start(name, config, params, tokenizer)


def make_env_config(config) -> EnvConfig:
  """How rewriters are evaluated."""
  settings = config.env.to_dict()
  return EnvConfig(
    **{**settings, 'lexical': LexicalConfig(**settings['lexical'])}
  )


def make_config(config) -> rewriter_config.RewriterConfig:
  """Settings of the learner, checked.

  Raises:
    ValueError: they do not go together.
  """
  return rewriter_config.RewriterConfig(
    **config.train,
    packing=packing.PackingConfig(**config.packing),
    rollout=lm_rollout.RolloutConfig(**config.rollout),
    advantage=lm_advantages.AdvantageConfig(**config.advantage),
    update=lm_config.LMUpdateConfig(
      **{
        **config.learner.to_dict(),
        'loss_options': config.learner.loss_options.to_dict(),
      }
    ),
    reference=reference.ReferenceConfig(**config.reference),
    optimizer=rewriter_config.OptimizerConfig(**config.optimizer),
  )


def make(config, start: Start, mesh, seed: int) -> rewriter.Rewriter:
  """The jitted functions of one rewriter."""
  settings = make_config(config)
  params, adapters = dict(start.params), None
  if settings.train == 'lora':
    adapters = lora.LoraConfig(
      **config.lora, family=lora.family_of(start.config)
    )
    shapes = jax.eval_shape(lambda: start.params)
    params['adapters'] = lora.init(adapters, shapes, jax.random.key(seed))
  lengths = [
    n for n in JaxLMConfig().prompt_lengths if n < settings.packing.prompt_size
  ]
  return rewriter.make_rewriter(
    start.config, params, start.tokenizer, mesh, settings, seed, adapters,
    (*lengths, settings.packing.prompt_size),
  )  # fmt: skip


def save_best(
  made: rewriter.Rewriter, start: Start, folder: pathlib.Path
) -> pathlib.Path:
  """Writes the best checkpoint as a model folder; adapters are merged."""
  with checkpoint.open_checkpoints(
    folder / 'checkpoints', read_only=True
  ) as checkpoints:
    state, _ = checkpoint.restore_checkpoint(checkpoints, made.initial, 'best')
  params = made.params(state)
  model = {'params': params['params']}
  if made.policy.lora is not None:
    model = lora.merge(made.policy.lora, model, params['adapters'])
    peft.save(
      folder / 'adapter', made.policy.lora, params['adapters'], start.name
    )
  pretrained.save_pretrained(
    folder / 'model', start.config, model, start.tokenizer, 'float32'
  )
  return folder / 'model'
