"""What the experiments that train a rewriter share: where it starts, its parts.

No flags here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import tqdm

from configs import mbpp_grpo
from promptrl_jax.envs.prompt_edit import EnvConfig
from promptrl_jax.envs.rewrite_env import Identified, RewriteEnv
from promptrl_jax.llm import load
from promptrl_jax.llm.jax_lm import JaxLM
from promptrl_jax.models import lora, peft, pretrained
from promptrl_jax.models import tokenizer as tokenizer_lib
from promptrl_jax.models.encoder_decoder_config import LanguageModelConfig
from promptrl_jax.models.tokenizer import Tokenizer
from promptrl_jax.operators.lexical import LexicalConfig
from promptrl_jax.parallel import distributed, exchange
from promptrl_jax.sampling import EngineConfig, Sampler
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.training import (
  checkpoint,
  lm_advantages,
  lm_config,
  lm_rollout,
  loop,
  metrics,
  packing,
  reference,
  rewriter,
  rewriter_config,
  rewriter_training,
)

# For how long processes that have saved their part wait for the others.
_SAVED_S = 3600.0


@dataclasses.dataclass(frozen=True)
class Start:
  """The model that training starts from.

  Attributes:
    name: what a report calls it.
    config: its shape.
    params: with `params` at the top, float32.
    tokenizer: of the model.
    reference: another one that training is not to leave, with this tokenizer.
  """

  name: str
  config: LanguageModelConfig
  params: Any
  tokenizer: Tokenizer
  reference: Start | None = None

  @property
  def reference_name(self) -> dict[str, str]:
    """Of the reference if there is one, for a list of models."""
    return {'reference': self.reference.name} if self.reference else {}

  def backend(self, mesh, new_tokens):
    """The model as a backend whose parameters can be replaced."""
    shapes = EngineConfig()
    if shapes.new_tokens < new_tokens:
      shapes = dataclasses.replace(shapes, new_tokens=new_tokens)
    sampler = Sampler(self.config, self.params, self.tokenizer, mesh, shapes)
    return JaxLM(self.name, sampler)


def load_start(settings, reference: str = '') -> Start:
  """Reads the model that a config names.

  Args:
    settings: of the rewriter.
    reference: folder or name of another model, if it is to be compared with.

  Raises:
    ValueError: it is not in this process, writes no text, or is to be drawn
      from in part; or the reference has another tokenizer.
  """
  if settings.backend != 'jax':
    raise ValueError(
      f'rewriter.backend={settings.backend!r}: only a model in this process '
      'can be trained, expected jax'
    )
  method = load.BackendConfig(**settings).method
  if method != Sampling():
    raise ValueError(
      f'rewriter: {method}: training draws from the whole distribution, '
      f'expected {Sampling()}'
    )
  start = _read(settings.model)
  if not reference:
    return start
  other = _read(reference)
  found = tokenizer_lib.difference(start.tokenizer, other.tokenizer)
  if found:
    raise ValueError(
      f'reference.model={reference!r} has another tokenizer than '
      f'rewriter.model={settings.model!r}: {found}; expected the same, since '
      'log-probs of the same tokens are compared'
    )
  return dataclasses.replace(start, reference=other)


def _read(model: str) -> Start:
  folder = load.find(model)
  config, params, tokenizer = pretrained.load_pretrained(folder)
  if not isinstance(config, LanguageModelConfig):
    raise ValueError(
      f'{folder} is a {config.family} model, which writes no text: expected a '
      'causal or an encoder-decoder language model'
    )
  name = f'{pathlib.Path(folder).name}@{pretrained.digest(folder)}'
  return Start(name, config, params, tokenizer)


def make_env_config(config) -> EnvConfig:
  """How rewriters are evaluated."""
  settings = config.env.to_dict()
  return EnvConfig(
    **{**settings, 'lexical': LexicalConfig(**settings['lexical'])}
  )


def with_algorithm(config, name):
  """The config with what an algorithm changes, and those that take over."""
  if name not in mbpp_grpo.ALGORITHMS:
    raise ValueError(
      f'algorithm {name!r}: expected one of {", ".join(mbpp_grpo.ALGORITHMS)}'
    )
  chosen = config.copy_and_resolve_references()
  chosen.update_from_flattened_dict(mbpp_grpo.ALGORITHMS[name])
  plain = config.copy_and_resolve_references()
  plain.switches = ()
  chosen.switches = tuple(
    (start, with_algorithm(plain, taker)) for start, taker in config.switches
  )
  return chosen


def make_config(config) -> rewriter_config.RewriterConfig:
  """Settings of the learner, and of those that take over.

  Raises:
    ValueError: a setting makes no sense, alone or beside another.
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
    switches=tuple(
      (start, make_config(later)) for start, later in config.get('switches', ())
    ),
  )


def check(config, start: Start) -> None:
  """Raises ValueError if a config cannot train this start."""
  settings = make_config(config)
  if settings.reference.kind == 'model':
    assert start.reference is not None
    rewriter.check_reference(settings, start.config, start.reference.config)


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
  other = start.reference if settings.reference.kind == 'model' else None
  return rewriter.make_rewriter(
    start.config, params, start.tokenizer, mesh, settings, seed, adapters,
    other=(other.config, dict(other.params)) if other else None,
  )  # fmt: skip


def train(
  made: rewriter.Rewriter,
  env: RewriteEnv[Any],
  tasks: Sequence[Identified],
  validate_fn: Callable[[rewriter.RewriterState], float],
  settings: loop.LoopConfig,
  seed: int,
  folder: pathlib.Path,
  patience: int = 0,
) -> None:
  """Trains one rewriter to the end, from its last checkpoint if any.

  Args:
    made: the learner.
    env: gives rewards.
    tasks: of the training split.
    validate_fn: score of a state, larger is better.
    settings: when things happen.
    seed: of the order of tasks and of the sampler.
    folder: of metrics and checkpoints.
    patience: validations in a row without a new best after which the run ends,
      0: it goes on. With it the state of step 0 is validated as well, and stays
      the best if nothing is better.
  """
  with checkpoint.open_checkpoints(folder / 'checkpoints') as checkpoints:
    state, totals = made.initial, dict(loop.TOTALS)
    if checkpoints.latest_step() is not None:
      state, totals = checkpoint.restore_checkpoint(checkpoints, state)
    elif patience:
      totals |= {'best': validate_fn(state), 'stale': 0}
      checkpoint.save_checkpoint(
        checkpoints, state, totals, score=totals['best']
      )
    start = int(state.step)
    progress = tqdm.tqdm(
      initial=start, total=settings.iterations, unit='update',
      desc=f'{folder.parent.name} seed {seed}',
      disable=not distributed.is_first(),
    )  # fmt: skip

    def score(state):
      value = validate_fn(state)
      if patience:
        # In the checkpoint: a resumed run stops where it would have.
        totals['stale'] = 0 if value > totals['best'] else totals['stale'] + 1
      return value

    starts = dict(made.config.switches)

    def show(step, row, totals):
      best = totals['best']
      if step in starts:
        kind = starts[step].advantage.kind
        progress.write(f'update {step}: from here on by {kind}')
      progress.set_postfix(
        reward=f'{row["reward/mean"]:.2f}',
        kl=f'{row.get("train/kl", 0.0):.3f}',
        best_validation='-' if best == loop.TOTALS['best'] else f'{best:.3f}',
        refresh=False,
      )
      progress.update()
      if is_stale(totals) and settings.is_validated(step + 1):
        raise loop.Stop

    def is_stale(totals):
      return bool(patience) and totals['stale'] >= patience

    training = rewriter_training.Training(
      made, env, tasks, seed, settings.is_saved
    )
    writing = distributed.first_only(metrics.MetricWriter)(
      folder, resume_step=start
    )
    with writing or contextlib.nullcontext() as writer, progress:
      if not is_stale(totals):
        loop.run(
          state, totals, training.iterate, score, checkpoints, writer,
          settings, [show],
        )  # fmt: skip


def save_best(
  made: rewriter.Rewriter, start: Start, folder: pathlib.Path
) -> pathlib.Path:
  """Writes the best checkpoint as a model folder; adapters are merged.

  All processes read the checkpoint, the first one writes.
  """
  distributed.barrier(f'checkpoints of {folder}', _SAVED_S)
  with checkpoint.open_checkpoints(
    folder / 'checkpoints', read_only=True
  ) as checkpoints:
    state, _ = checkpoint.restore_checkpoint(checkpoints, made.initial, 'best')
  distributed.first_only(save)(made, start, state, folder)
  return folder / 'model'


def save(
  made: rewriter.Rewriter,
  start: Start,
  state: rewriter.RewriterState,
  folder: pathlib.Path,
) -> pathlib.Path:
  """Writes a state as a model folder; adapters are merged."""
  params = exchange.own_copies(made.params(state), made.own_mesh)
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
