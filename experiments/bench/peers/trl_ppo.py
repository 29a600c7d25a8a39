"""Times PPO of TRL; `iterations` defines input and output.

TRL's trainer is a single function. The score begins when `generate` returns,
and the update with the first forward pass of the policy and its critic, a model
of the same size. The reward model computes the Python reward of all peers.
"""

from __future__ import annotations

import tempfile
import types

import iterations
import torch
import trl_models
from datasets import Dataset
from transformers import (
  AutoModelForCausalLM,
  AutoModelForSequenceClassification,
)
from trl.experimental.ppo import PPOConfig, PPOTrainer, ppo_trainer


class EvenReward(torch.nn.Module):
  """A reward model that returns the reward at every position of a row."""

  base_model_prefix = 'backbone'

  def __init__(self, work: iterations.Work):
    super().__init__()
    self.work = work

  def backbone(self, input_ids, **kwargs):
    return types.SimpleNamespace(hidden_states=[input_ids])

  def score(self, input_ids):
    ids = input_ids[:, self.work.prompt :].tolist()
    reward = torch.tensor(iterations.even(self.work, ids))
    return reward[:, None, None].expand(*input_ids.shape, 1)


def make_config(
  work: iterations.Work, folder: str, dtype: str, steps: int
) -> PPOConfig:
  """Returns the settings of a trainer of `steps` updates."""
  return PPOConfig(
    output_dir=folder,
    per_device_train_batch_size=work.sequences,
    gradient_accumulation_steps=1,
    num_mini_batches=1,
    num_ppo_epochs=1,
    total_episodes=work.sequences * steps,
    local_rollout_forward_batch_size=work.sequences,
    response_length=work.new,
    temperature=1.0,
    kl_coef=work.beta,
    learning_rate=work.learning_rate,
    num_sample_generations=0,
    bf16=dtype == 'bfloat16',
    gradient_checkpointing=False,
    use_cpu=True,
    save_strategy='no',
    report_to=[],
    logging_steps=1,
    disable_tqdm=True,
    seed=0,
  )


def run(work: iterations.Work, folder: str, dtype: str) -> iterations.Clock:
  """Times one configuration; `folder` holds the model."""
  steps = work.runs + 1
  tokenizer = trl_models.make_tokenizer(work)
  prompts = iterations.texts(work, work.prompts) * (work.group * steps)
  data = Dataset.from_dict({'input_ids': tokenizer(prompts)['input_ids']})
  policy, reference = (
    AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for _ in range(2)
  )
  clock = iterations.Clock(work, rest='score')
  trainer = PPOTrainer(
    args=make_config(work, folder, dtype, steps),
    processing_class=tokenizer,
    model=policy,
    ref_model=reference,
    reward_model=EvenReward(work),
    value_model=AutoModelForSequenceClassification.from_pretrained(
      folder, num_labels=1, dtype=torch.float32
    ),
    train_dataset=data,
    eval_dataset=data.select(range(work.sequences)),
  )
  forward = ppo_trainer.forward

  def marked(model, *args, **kwargs):
    if model is not reference:
      clock.enter('update')  # until the iteration ends
    return forward(model, *args, **kwargs)

  generation = ppo_trainer.batch_generation
  ppo_trainer.forward = marked
  clock.during(ppo_trainer, 'batch_generation', 'rollout')
  try:
    trl_models.train(trainer, clock)
  finally:
    ppo_trainer.forward = forward
    ppo_trainer.batch_generation = generation
  return clock


def main() -> None:
  work = iterations.read()
  trl_models.quiet()
  with tempfile.TemporaryDirectory() as folder:
    trl_models.save_model(work, folder)
    for dtype in work.dtypes:
      clock = run(work, folder, dtype)
      iterations.report(
        clock.line('trl', 'ppo', dtype=dtype, models='policy+reference+critic')
      )


if __name__ == '__main__':
  main()
