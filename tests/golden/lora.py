"""Random adapters of tiny models, by PEFT.

  python -m tests.golden.lora        writes tests/golden/lora/*

Needs peft, torch and transformers. Each folder holds adapters that PEFT has
saved, and the log-probs and the greedy text that the model of
`tests/golden/causal` gave with them for `causal.prompts`.
"""

from __future__ import annotations

import pathlib

import numpy as np

from tests.golden import causal

FOLDER = pathlib.Path(__file__).parent / 'lora'
# name: model, settings of PEFT's LoraConfig
CASES = {
  'all': ('qwen2', {'r': 3, 'lora_alpha': 6, 'target_modules': 'all-linear'}),
  'some': (
    'llama3',
    {
      'r': 2,
      'lora_alpha': 3,
      'target_modules': ['v_proj', 'q_proj', 'up_proj'],
      'use_rslora': True,
    },
  ),
  'gpt2': (
    'gpt2',
    {'r': 4, 'lora_alpha': 6, 'target_modules': ['c_attn', 'mlp.c_proj']},
  ),
}


def reference(name: str):
  """The model with its adapters, which are large enough to matter."""
  import peft
  import torch

  model, settings = CASES[name]
  config = peft.LoraConfig(task_type='CAUSAL_LM', **settings)
  adapted = peft.get_peft_model(causal.reference(model), config).eval()
  adapted.peft_config['default'].base_model_name_or_path = model
  torch.manual_seed(1)
  for key, parameter in adapted.named_parameters():
    if 'lora_' in key:
      torch.nn.init.normal_(parameter, std=0.3)
  return adapted


def main() -> None:
  for name in CASES:
    model, folder = reference(name), FOLDER / name
    model.save_pretrained(folder)
    (folder / 'README.md').unlink(missing_ok=True)
    tokens, mask = causal.prompts(model.config.vocab_size)
    np.savez_compressed(
      folder / 'expected.npz',
      log_probs=causal.log_probs(model, tokens, mask)[mask],
      greedy=causal.greedy(model, tokens, mask).astype(np.int16),
    )


if __name__ == '__main__':
  main()
