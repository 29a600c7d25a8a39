"""Times `generate` of transformers on given prompts with a GGUF file.

  python transformers_prompts.py WORK.json

WORK.json holds the prompts as ids, the ids that end a text, the file, the size
of a batch, the most new tokens, and how many prompts are also asked one by one.
"""

from __future__ import annotations

import json
import pathlib
import sys
import time

import torch
from transformers import AutoModelForCausalLM


def main() -> None:
  work = json.loads(pathlib.Path(sys.argv[1]).read_text())
  prompts, ends, file, batch, new, alone = work
  path = pathlib.Path(file)
  for dtype in ('bfloat16', 'float32'):
    model = AutoModelForCausalLM.from_pretrained(
      path.parent, gguf_file=path.name, dtype=getattr(torch, dtype)
    ).eval()
    for size, some in ((batch, prompts), (1, prompts[:alone])):
      generate(model, some[:size], ends, new)  # warms up
      start, count = time.perf_counter(), 0
      for i in range(0, len(some), size):
        count += generate(model, some[i : i + size], ends, new)
      taken = time.perf_counter() - start
      line = {
        'sampler': 'transformers',
        'dtype': dtype,
        'at_once': size,
        'new_tokens': count,
        'tokens_per_s': round(count / taken, 1),
      }
      print(json.dumps(line), flush=True)


@torch.inference_mode()
def generate(model, prompts, ends, new):
  """Greedy completions of a padded batch; returns the number of new tokens."""
  length = max(map(len, prompts))
  tokens = torch.tensor([[0] * (length - len(p)) + p for p in prompts])
  mask = torch.tensor([[0] * (length - len(p)) + [1] * len(p) for p in prompts])
  rows = model.generate(
    tokens,
    attention_mask=mask,
    max_new_tokens=new,
    do_sample=False,
    eos_token_id=ends,
    pad_token_id=0,
  )[:, length:].tolist()
  count = 0
  for row in rows:
    stops = [i for i, token in enumerate(row) if token in ends]
    count += stops[0] + 1 if stops else len(row)
  return count


if __name__ == '__main__':
  main()
