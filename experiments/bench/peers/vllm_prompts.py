"""Times vLLM's CPU build on given prompts with a model folder.

  python vllm_prompts.py WORK.json

WORK.json is that of `transformers_prompts.py`, with a folder in the place of
the file. The engine forms batches itself, of as many rows as that has in one.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import sys
import time

from vllm_engine import SETTINGS


def main() -> None:
  os.environ.update(SETTINGS)
  from vllm import LLM, SamplingParams

  work = json.loads(pathlib.Path(sys.argv[1]).read_text())
  prompts, ends, file, batch, new, alone = work
  with contextlib.redirect_stdout(sys.stderr):
    llm = LLM(
      model=file,
      skip_tokenizer_init=True,
      dtype='bfloat16',
      max_model_len=max(map(len, prompts)) + new,
      max_num_seqs=batch,
      seed=0,
    )
  settings = SamplingParams(
    temperature=0.0, max_tokens=new, stop_token_ids=ends, detokenize=False
  )

  def generate(some):
    """Returns the number of new tokens."""
    asked = [{'prompt_token_ids': ids} for ids in some]
    results = llm.generate(asked, settings, use_tqdm=False)
    return sum(len(result.outputs[0].token_ids) for result in results)

  for size, parts in ((batch, [prompts]), (1, [[p] for p in prompts[:alone]])):
    times, count = [], 0
    for _ in range(2):  # The first one warms up.
      start = time.perf_counter()
      count = sum(map(generate, parts))
      times.append(time.perf_counter() - start)
    line = {
      'sampler': 'vllm',
      'dtype': 'bfloat16',
      'at_once': size,
      'new_tokens': count,
      'tokens_per_s': round(count / times[-1], 1),
    }
    print(json.dumps(line), flush=True)


if __name__ == '__main__':
  main()
