"""Tokens per second on real prompts with a public model.

  python -m experiments.bench.real_prompts --path=mbpp.jsonl

SmolLM2 135M Instruct (`make real`) writes greedy programs for test problems of
MBPP in the chat template, with the first assertion in the prompt. Each line of
JSON is one number of batch slots and one kind of cache; the first run compiles,
the others are timed.
"""

from __future__ import annotations

import json
import time

import jax
from absl import app, flags

from promptrl_jax.llm import load
from promptrl_jax.llm.ask import Attempt, coder_prompt
from promptrl_jax.parallel import compilation
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.prompts import templates
from promptrl_jax.sampling import Sampler
from promptrl_jax.sampling.requests import EngineConfig, SamplingParams
from promptrl_jax.tasks import mbpp, splits

_PATH = flags.DEFINE_string('path', None, 'The official MBPP file.')
_PROBLEMS = flags.DEFINE_integer('problems', 192, 'First N test problems.')
_SLOTS = flags.DEFINE_list('slots', ['16', '32', '64'], 'Batch slots.')
_CACHES = flags.DEFINE_list('caches', ['plain', 'bfloat16'], 'Kinds of cache.')
_DTYPE = flags.DEFINE_string('dtype', 'bfloat16', 'Type of the parameters.')
_RUNS = flags.DEFINE_integer('runs', 2, 'Timed runs, the best one counts.')
flags.mark_flag_as_required('path')

_NEW = 200
_PREFILL_ROWS = 4
_LENGTHS = (128, 160, 192, 256, 512)


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {argv[1:]}')
  mesh_lib.use_cpu_cores()
  compilation.use_cache()
  tasks = mbpp.load('test', _PATH.value)[: _PROBLEMS.value]
  model = load.find('smollm2_135m_instruct')
  for cache in _CACHES.value:
    for slots in map(int, _SLOTS.value):
      shapes = EngineConfig(
        slots,
        _LENGTHS,
        _NEW,
        prefill_rows=_PREFILL_ROWS,
        prompt_cache_bytes=0,  # Each run reads its prompts.
      )
      sampler = Sampler.load(
        model, dtype=_DTYPE.value, kv_cache=cache, shapes=shapes
      )
      print(json.dumps(_line(sampler, tasks, cache, slots)), flush=True)


def _line(sampler, tasks, cache, slots):
  prompts = [
    sampler.tokenizer.render(
      templates.CHAT.coder(
        coder_prompt(Attempt(splits.reveal(task, 'visible1')))
      )
    )
    for task in tasks
  ]
  params = [SamplingParams(_NEW, temperature=0.0) for _ in prompts]
  taken = []
  for _ in range(1 + _RUNS.value):
    start = time.perf_counter(), time.process_time()
    samples = sampler.complete(prompts, params)
    taken.append(
      (time.perf_counter() - start[0], time.process_time() - start[1])
    )
  tokens = sum(len(sample.tokens) for sample in samples)
  wall, processor = min(taken[1:])
  return {
    'model': 'smollm2_135m_instruct',
    'devices': jax.device_count(),
    'dtype': _DTYPE.value,
    'kv_cache': cache,
    'slots': slots,
    'prompts': len(prompts),
    'prompt_tokens': sum(map(len, prompts)),
    'new_tokens': tokens,
    'tokens_per_s': round(tokens / wall, 1),
    'tokens_per_processor_s': round(tokens / processor, 1),
    'first_run_s': round(taken[0][0], 2),
  }


if __name__ == '__main__':
  app.run(main)
