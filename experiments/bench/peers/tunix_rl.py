"""Models, rewards and data of Tunix's learners of GRPO and PPO."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import iterations
import jax
import numpy as np
import optax
import tunix_qwen2
from flax import nnx
from tunix.rl import rl_cluster
from tunix.rl import utils as rl_utils
from tunix.rl.rollout import base_rollout


class Words:
  """A tokenizer for texts of token ids, without end and padding ids."""

  def encode(self, text, **kwargs):
    return [int(word) for word in text.split()]

  def decode(self, ids, **kwargs):
    return ' '.join(str(int(i)) for i in ids)

  def bos_id(self):
    return None

  def eos_id(self):
    return -2

  def pad_id(self):
    return -1


def make_cluster(
  work: iterations.Work, dtype: str, devices: int, critic: bool
) -> rl_cluster.RLCluster:
  """Returns models with float32 parameters and their optimizers."""
  mesh = tunix_qwen2.mesh(devices)
  config = tunix_qwen2.config(work.shape, dtype, 'float32', sampling=False)
  actor = tunix_qwen2.make_model(config, mesh)
  adam = lambda: optax.chain(
    optax.clip_by_global_norm(1.0),
    optax.adamw(work.learning_rate, weight_decay=0.0),
  )
  return rl_cluster.RLCluster(
    actor=actor,
    critic=rl_utils.create_critic_model(actor) if critic else None,
    reference=tunix_qwen2.make_model(config, mesh),
    tokenizer=Words(),
    cluster_config=rl_cluster.ClusterConfig(
      role_to_mesh=dict.fromkeys(rl_cluster.Role, mesh),
      rollout_engine='vanilla',
      training_config=rl_cluster.RLTrainingConfig(
        actor_optimizer=adam(),
        critic_optimizer=adam() if critic else None,
        eval_every_n_steps=10**9,
        max_steps=10**9,
      ),
      rollout_config=base_rollout.RolloutConfig(
        max_tokens_to_generate=work.new,
        max_prompt_length=work.prompt,
        kv_cache_size=work.prompt + work.new,
        temperature=1.0,
        top_p=1.0,
        eos_tokens=[work.no_token],
      ),
    ),
  )


def make_reward_fn(work: iterations.Work):
  """Returns the reward as a function with Tunix's signature."""

  def reward(prompts, completions, **kwargs):
    ids = [[int(word) for word in text.split()] for text in completions]
    return iterations.even(work, ids)

  return reward


def batches(work: iterations.Work, copies: int) -> Iterator[dict]:
  """Yields batches for ever, with each prompt `copies` times."""
  texts = np.repeat(iterations.texts(work, work.prompts), copies)
  return itertools.repeat({'prompts': texts})


def train(
  work: iterations.Work, learner, copies: int, models: list[nnx.Module]
) -> iterations.Clock:
  """Runs a learner until the clock ends it.

  Args:
    work: number of prompts and timed iterations.
    learner: Tunix's learner of GRPO or PPO.
    copies: copies of each prompt in the data; GRPO's learner copies prompts
      itself.
    models: models that the learner updates.
  """
  # The second iteration compiles some programs again.
  clock = iterations.Clock(work, rest='update', untimed=2)
  clock.during(learner.rl_cluster, 'generate', 'rollout')
  clock.during(
    learner,
    '_generate_and_compute_advantage',
    'score',
    wait=jax.block_until_ready,
  )
  step = learner._run_global_step

  def timed_step(*args, **kwargs):
    step(*args, **kwargs)
    jax.block_until_ready([nnx.state(model) for model in models])
    clock.iteration_ends()

  learner._run_global_step = timed_step
  with clock.running():
    learner.train(batches(work, copies))
  return clock
