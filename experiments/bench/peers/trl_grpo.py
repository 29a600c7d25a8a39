"""Times GRPO of TRL; `iterations` defines input and output.

In float32 both the dynamic and the static cache of `generate` are timed; the
static cache does not work under autocast. Gradient checkpointing, TRL's
default, is off because it recomputes activations.
"""

from __future__ import annotations

import tempfile

import iterations
import torch
import trl_models
from datasets import Dataset
from transformers import Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer


def run(
  work: iterations.Work, folder: str, dtype: str, cache: str
) -> iterations.Clock:
  """Times one configuration; `folder` holds the model."""
  settings = GRPOConfig(
    output_dir=folder,
    per_device_train_batch_size=work.sequences,
    gradient_accumulation_steps=1,
    num_generations=work.group,
    max_completion_length=work.new,
    max_steps=work.runs + 1,
    beta=work.beta,
    learning_rate=work.learning_rate,
    temperature=1.0,
    top_p=1.0,
    loss_type='grpo',
    bf16=dtype == 'bfloat16',
    gradient_checkpointing=False,
    cache_implementation=None if cache == 'dynamic' else cache,
    use_cpu=True,
    save_strategy='no',
    report_to=[],
    logging_steps=1,
    disable_tqdm=True,
    seed=0,
  )

  def reward(completion_ids, **kwargs):
    return iterations.even(work, completion_ids)

  clock = iterations.Clock(work, rest='update')
  count = work.prompts * (work.runs + 1)
  trainer = GRPOTrainer(
    model=Qwen2ForCausalLM.from_pretrained(folder, dtype=torch.float32),
    reward_funcs=reward,
    args=settings,
    train_dataset=Dataset.from_dict({'prompt': iterations.texts(work, count)}),
    processing_class=trl_models.make_tokenizer(work),
  )
  clock.during(trainer, '_generate_and_score_completions', 'score')
  clock.during(trainer, '_generate', 'rollout')
  trl_models.train(trainer, clock)
  return clock


def main() -> None:
  work = iterations.read()
  trl_models.quiet()
  with tempfile.TemporaryDirectory() as folder:
    trl_models.save_model(work, folder)
    ways = [(dtype, 'dynamic') for dtype in work.dtypes]
    if 'float32' in work.dtypes:
      ways.append(('float32', 'static'))
    for dtype, cache in ways:
      clock = run(work, folder, dtype, cache)
      iterations.report(
        clock.line(
          'trl', 'grpo', dtype=dtype, cache=cache, models='policy+reference'
        )
      )


if __name__ == '__main__':
  main()
