"""Times `generate` of transformers; `workload` defines input and output."""

from __future__ import annotations

import itertools

import qwen2
import torch
import workload
from transformers import GenerationConfig, Qwen2ForCausalLM


def main() -> None:
  work = workload.read()
  torch.manual_seed(0)
  model = Qwen2ForCausalLM(qwen2.config(work.shape)).eval()
  for dtype, cache in itertools.product(work.dtypes, (None, 'static')):
    model = model.to(getattr(torch, dtype))
    settings = GenerationConfig(
      max_new_tokens=work.new,
      do_sample=True,
      top_k=0,
      pad_token_id=0,
      eos_token_id=None,
      cache_implementation=cache,
    )

    @torch.inference_mode()
    def sample(prompts, model=model, settings=settings):
      tokens = torch.tensor(prompts)
      rows = model.generate(
        tokens,
        attention_mask=torch.ones_like(tokens),
        generation_config=settings,
      )
      return rows[:, work.prompt :].tolist()

    workload.measure(
      work, 'transformers', sample, dtype=dtype, cache=cache or 'dynamic'
    )


if __name__ == '__main__':
  main()
