"""Random adapters of tiny models, by PEFT.

  python -m tests.golden.lora        writes tests/golden/lora/*
  python -m tests.golden.lora t5     writes tests/golden/lora/t5

Needs peft, torch and transformers. Each folder holds adapters that PEFT has
saved, and the log-probs and the greedy text that the model of
`tests/golden/causal` or `tests/golden/encoder_decoder` gave with them for the
prompts of that module.
"""

from __future__ import annotations

import pathlib
import sys

import numpy as np

from tests.golden import causal, encoder_decoder

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


# Likewise, of encoder-decoders.
T5_CASES = {
  't5': (
    'codet5p',
    {'r': 2, 'lora_alpha': 3, 'target_modules': 'all-linear'},
  ),
  't5_gated': (
    'flan_t5',
    {
      'r': 3,
      'lora_alpha': 6,
      'target_modules': r'decoder\..*\.(SelfAttention\.q|wi_1)|.*\.[kv]',
    },
  ),
}


def reference(name: str):
  """The model with its adapters, which are large enough to matter."""
  import peft
  import torch

  if name in T5_CASES:
    (model, settings), std = T5_CASES[name], 0.2
    base, task = encoder_decoder.reference(model), 'SEQ_2_SEQ_LM'
  else:
    (model, settings), std = CASES[name], 0.3
    base, task = causal.reference(model), 'CAUSAL_LM'
  config = peft.LoraConfig(task_type=task, **settings)
  adapted = peft.get_peft_model(base, config).eval()
  adapted.peft_config['default'].base_model_name_or_path = model
  torch.manual_seed(1)
  for key, parameter in adapted.named_parameters():
    if 'lora_' in key:
      torch.nn.init.normal_(parameter, std=std)
  return adapted


def expected(name: str, model) -> dict[str, np.ndarray]:
  """Log-probs and greedy text."""
  if name in T5_CASES:
    tokens, mask = encoder_decoder.prompts()
    log_probs = encoder_decoder.log_probs(model, tokens, mask)
    greedy = encoder_decoder.greedy(model, tokens, mask)
  else:
    tokens, mask = causal.prompts(model.config.vocab_size)
    log_probs = causal.log_probs(model, tokens, mask)[mask]
    greedy = causal.greedy(model, tokens, mask)
  return {'log_probs': log_probs, 'greedy': greedy.astype(np.int16)}


def main() -> None:
  for name in (CASES | T5_CASES) if len(sys.argv) < 2 else sys.argv[1:]:
    model, folder = reference(name), FOLDER / name
    model.save_pretrained(folder)
    (folder / 'README.md').unlink(missing_ok=True)
    np.savez_compressed(folder / 'expected.npz', **expected(name, model))


if __name__ == '__main__':
  main()
