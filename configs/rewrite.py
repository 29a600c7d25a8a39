"""PRewrite-I and PRewrite-S: a better instruction, chosen with dev examples.

  python -m experiments.rewrite --config=configs/rewrite.py:smoke --workdir=W

Arguments:
  smoke     a dozen of the embedded tasks, in under a minute
  minicode  the embedded tasks and models, no GPU, hub or key (the default):
            184 instructions, K = 10; four minutes on two cores
  jsonl     tasks from files of JSON lines (see tasks/instructions.py), with any
            models:
              --config.data.dev=dev.jsonl --config.data.test=test.jsonl
            Both models are behind an OpenAI-compatible server, which Ollama is,
            too; `--config.rewriter.backend=jax --config.rewriter.model=FOLDER`
            runs one in this process.
"""

import ml_collections

from configs import mbpp_ppo

_ARGUMENTS = ('smoke', 'minicode', 'jsonl')


def _model(backend: str, name: str) -> ml_collections.ConfigDict:
  """A language model, as for `mbpp_ppo`, with the lengths of its texts."""
  c = mbpp_ppo.model(name)
  c.backend = backend
  c.prompt_tokens = 400  # jax: most tokens of a prompt
  c.new_tokens = 80 if backend == 'jax' else 256  # jax: of a completion
  if backend == 'http':
    c.base_url = 'http://127.0.0.1:11434/v1'  # Ollama's
  return c


def get_config(arg: str = 'minicode') -> ml_collections.ConfigDict:
  if arg not in _ARGUMENTS:
    raise ValueError(
      f'config argument {arg!r}: expected one of {", ".join(_ARGUMENTS)}'
    )
  embedded = arg != 'jsonl'
  c = ml_collections.ConfigDict()
  c.preset = arg
  c.seed = 0  # of subsampled examples and of the bootstrap
  # Devices by axis, for models that one device cannot hold: tensor=2.
  c.mesh = ''
  c.strategies = ('I', 'S')  # I: the greedy rewrite; S: the best of K on dev
  c.cache = ''  # SQLite file of answers; empty: cache.sqlite in the workdir

  c.data = ml_collections.ConfigDict()
  c.data.name = 'minicode' if embedded else 'jsonl'
  c.data.split = 'test'  # minicode: of the suite; problems are disjoint
  c.data.dev_examples = 8  # minicode: inputs that choose an instruction
  c.data.test_examples = 8  # minicode: inputs that measure it
  c.data.dev = ''  # jsonl: file of dev examples
  c.data.test = ''  # jsonl: file of test examples; may be empty
  c.data.instruction = ''  # jsonl: replaces the instruction of the files
  c.data.tasks_limit = 12 if arg == 'smoke' else 0  # first N tasks, 0 = all
  c.data.dev_limit = 0  # examples per task, drawn with the seed, 0 = all
  c.data.test_limit = 0

  backend = 'jax' if embedded else 'http'
  c.rewriter = _model(backend, 'minicode_rewriter' if embedded else '')
  c.task_model = _model(backend, 'minicode_coder' if embedded else '')
  # The task model writes a program, and its value is the answer; for models
  # and prompts like the embedded ones.
  c.runs_programs = embedded

  c.meta = ml_collections.ConfigDict()
  # generic_a | generic_b | minicode (of the embedded rewriter) | custom
  c.meta.family = 'minicode' if embedded else 'generic_b'
  c.meta.text = ''  # custom: a text with {instruction} in it

  c.rewrite = ml_collections.ConfigDict()
  c.rewrite.samples = 4 if arg == 'smoke' else 10  # K
  c.rewrite.temperature = 1.0  # of these
  c.rewrite.max_tokens = 64 if embedded else 256
  c.rewrite.seed = 0  # of the first sample

  c.reward = ml_collections.ConfigDict()
  # auto (em for qa, accuracy for classification, numeric for math) | em | f1 |
  # accuracy | numeric | perplexity | perplexity_f1
  c.reward.metric = 'auto'
  c.reward.max_tokens = 80 if embedded else 256  # of an answer
  c.reward.stop = ()  # strings that end an answer
  c.reward.label_prefix = '\n'  # perplexity: between a prompt and its label

  c.pool = ml_collections.ConfigDict()  # where programs run
  c.pool.workers = 2
  c.pool.cpu_s = 1.0  # per call
  c.pool.memory_mb = 512
  c.pool.allow_weak = False  # run even where programs cannot be confined

  c.eval = ml_collections.ConfigDict()
  c.eval.resamples = 10_000
  return c
