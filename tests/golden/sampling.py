"""What transformers draws with all its filters, and how probable that was.

  python -m tests.golden.sampling        writes tests/golden/sampling.npz

The models are those of `causal` and `encoder_decoder`.
"""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np

from tests.golden import causal, encoder_decoder

FILE = pathlib.Path(__file__).parent / 'sampling.npz'
NEW = 16
MODELS = {'llama2': causal, 'codet5p': encoder_decoder}
# name: arguments of transformers' `generate`
CASES: dict[str, dict[str, Any]] = {
  'all': {
    'do_sample': True,
    'temperature': 1.6,
    'top_k': 30,
    'top_p': 0.9,
    'min_p': 0.02,
    'repetition_penalty': 1.3,
  },
  'less_often': {
    'do_sample': True,
    'temperature': 1.0,
    'top_k': 0,
    'top_p': 1.0,
    'min_p': 0.1,
    'repetition_penalty': 0.8,
  },
  'greedy': {'do_sample': False, 'repetition_penalty': 1.7},
}
BEAMS = {'num_beams': 3, 'length_penalty': 0.7, 'repetition_penalty': 1.6}


def prompts() -> np.ndarray:
  """Tokens [3, 20] without padding, which transformers would penalise, too."""
  return np.random.default_rng(5).integers(3, 96, (3, 20)).astype(np.int32)


def sample(name: str, case: str) -> tuple[np.ndarray, np.ndarray]:
  """Tokens [3, NEW] by transformers, and their log-probs after the filters."""
  import torch

  torch.manual_seed(1)
  out = _generate(name, output_scores=True, **CASES[case])
  logps = torch.log_softmax(torch.stack(out.scores, dim=1), -1)
  tokens = out.sequences[:, -NEW:]
  chosen = torch.gather(logps, 2, tokens[..., None])[..., 0]
  return tokens.numpy().astype(np.int32), chosen.numpy()


def beams(name: str) -> tuple[np.ndarray, np.ndarray]:
  """Answers [3, NEW] of beam search, and their scores [3]."""
  out = _generate(name, early_stopping=True, output_scores=True, **BEAMS)
  tokens = out.sequences[:, -NEW:].numpy().astype(np.int32)
  return tokens, out.sequences_scores.numpy()


def _generate(name: str, **options: Any):
  import torch

  model = MODELS[name].reference(name)
  tokens = torch.tensor(prompts(), dtype=torch.long)
  return model.generate(
    tokens,
    attention_mask=torch.ones_like(tokens),
    max_new_tokens=NEW,
    eos_token_id=model.config.vocab_size,  # a token that never comes
    pad_token_id=0,
    return_dict_in_generate=True,
    **options,
  )


def main() -> None:
  arrays = {}
  for name in MODELS:
    for case in CASES:
      arrays[f'{name}/{case}/tokens'], arrays[f'{name}/{case}/logps'] = sample(
        name, case
      )
  arrays['codet5p/beams/tokens'], arrays['codet5p/beams/scores'] = beams(
    'codet5p'
  )
  np.savez_compressed(FILE, **arrays)


if __name__ == '__main__':
  main()
