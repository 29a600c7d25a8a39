"""Seconds from the start of a process to the first answer of a public model.

  python -m experiments.bench.first_answer

Each model (`make real`) answers one question in a process of its own, twice:
`cold` with an empty cache of compiled programs, `warm` with that of the first.
Targets on two cores: 40 s cold, 10 s warm. A model that is not installed is
left out, with the command that installs it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time

from absl import app, flags

from promptrl_jax.llm import load
from promptrl_jax.llm.backend import Message, Request
from promptrl_jax.parallel import compilation
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.tools import command

_MODELS = flags.DEFINE_list(
  'models', ['smollm2_135m_instruct', 'gemma3_270m'], 'Names or folders.'
)
_DTYPE = flags.DEFINE_string('dtype', 'bfloat16', 'Type of the parameters.')
_ANSWER = flags.DEFINE_string('answer', '', 'Answer with this model, and end.')

_QUESTION = 'Write a Python function that adds two numbers.'
_LIMIT_S = 600.0
_COLD_S, _WARM_S = 40.0, 10.0  # targets


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {argv[1:]}')
  with command.in_one_line():
    if _ANSWER.value:
      answer(_ANSWER.value, _DTYPE.value)
      return
    for model in _MODELS.value:
      try:
        load.find(model)
      except FileNotFoundError as error:
        print(json.dumps({'model': model, 'left_out': str(error)}), flush=True)
        continue
      with tempfile.TemporaryDirectory() as folder:
        cold, warm = (time_answer(model, _DTYPE.value, folder) for _ in 'cw')
      line = {
        'model': model,
        'cold_s': round(cold, 1),
        'warm_s': round(warm, 1),
        'on_target': cold <= _COLD_S and warm <= _WARM_S,
      }
      print(json.dumps(line), flush=True)


def answer(model: str, dtype: str) -> None:
  """Asks the question in this process, as a job would."""
  mesh_lib.use_cpu_cores()
  compilation.use_cache()
  backend = load.load_backend(load.BackendConfig('jax', model, dtype=dtype))
  messages = (Message('user', _QUESTION),)
  (completion,) = backend.complete([Request(messages, max_tokens=64)])
  print(completion.text)


def time_answer(model: str, dtype: str, cache: str) -> float:
  """Seconds that a new process takes, until it has ended."""
  started = time.perf_counter()
  subprocess.run(
    [
      *(sys.executable, '-m', 'experiments.bench.first_answer'),
      *(f'--answer={model}', f'--dtype={dtype}'),
    ],
    env={**os.environ, 'PROMPTRL_COMPILATION_CACHE': cache},
    check=True,
    stdout=subprocess.DEVNULL,
    timeout=_LIMIT_S,
  )
  return time.perf_counter() - started


if __name__ == '__main__':
  app.run(main)
