"""Times vLLM's CPU build, compiled and eager.

`workload` defines input and output. Each engine has its own process, because an
engine that fails ends its process.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import sys
import tempfile

import qwen2
import workload

# Read when vLLM is imported. The engine runs in the timing process and on all
# cores; in a separate process, one of two cores would wait for the other.
SETTINGS = {
  'HF_HUB_OFFLINE': '1',
  'VLLM_CPU_KVCACHE_SPACE': '2',  # GiB; 32 rows of the large model take 0.5
  'VLLM_CPU_OMP_THREADS_BIND': ','.join(map(str, os.sched_getaffinity(0))),
  'VLLM_ENABLE_V1_MULTIPROCESSING': '0',
  'VLLM_LOGGING_LEVEL': 'ERROR',
  'VLLM_NO_USAGE_STATS': '1',
}


def engine(
  work: workload.Workload, folder: str, dtype: str, eager: bool
) -> None:
  """Times one engine; `folder` holds the config of the model."""
  from vllm import LLM, SamplingParams

  with contextlib.redirect_stdout(sys.stderr):
    llm = LLM(
      model=folder,
      load_format='dummy',  # random weights
      skip_tokenizer_init=True,
      dtype=dtype,
      max_model_len=work.prompt + work.new,
      max_num_seqs=max(work.batches),
      enable_prefix_caching=False,
      enforce_eager=eager,
      seed=0,
    )
  settings = SamplingParams(
    temperature=1.0, max_tokens=work.new, ignore_eos=True, detokenize=False
  )

  def sample(prompts):
    results = llm.generate(
      [{'prompt_token_ids': ids} for ids in prompts], settings, use_tqdm=False
    )
    return [result.outputs[0].token_ids for result in results]

  mode = 'eager' if eager else 'compiled'
  workload.measure(work, 'vllm', sample, dtype=dtype, mode=mode)


def apart(function, *args) -> bool:
  """Calls a function in a new process; returns whether it succeeded."""
  process = multiprocessing.get_context('spawn').Process(
    target=function, args=args
  )
  process.start()
  process.join()
  return process.exitcode == 0


def main() -> None:
  work = workload.read()
  os.environ.update(SETTINGS)
  with tempfile.TemporaryDirectory() as folder:
    qwen2.config(work.shape).save_pretrained(folder)
    ways = itertools.product(work.dtypes, (False, True))
    ran = [apart(engine, work, folder, *way) for way in ways]
  # Without a C compiler only the eager engines run.
  if not any(ran):
    sys.exit('vLLM: no engine ran')


if __name__ == '__main__':
  main()
