"""PRewrite-I and PRewrite-S: a better instruction, chosen with dev examples.

  python -m experiments.rewrite --config=configs/rewrite.py:smoke --workdir=W

Arguments:
  smoke     a dozen of the embedded tasks, in under a minute
  minicode  the embedded tasks and models, no GPU, hub or key (the default):
            184 instructions, K = 10; four minutes on two cores
  jsonl     tasks from files of JSON lines (see tasks/instructions.py), with any
            models:
              --config.data.options.dev=dev.jsonl
              --config.data.options.test=test.jsonl
            Both models are behind an OpenAI-compatible server, which Ollama is,
            too; `--config.rewriter.backend=jax --config.rewriter.model=FOLDER`
            runs one in this process.
  questions as jsonl, with a file of questions and answers:
              --config.data.path=x.jsonl --config.data.options.instruction=...
  ag_news, sst2, nq, gsm8k
            as jsonl, with the data sets of the paper from the hub, or from a
            folder: --config.data.path=FOLDER
  plugin    as jsonl, with a task set of your own:
              --config.data.plugin=MODULE --config.data.name=NAME
"""

import ml_collections

from configs import mbpp_ppo
from promptrl_jax import settings
from promptrl_jax.tasks.load import TASK_SETS

# Argument -> task set.
ARGUMENTS = {
  'smoke': 'minicode_instructions',
  'minicode': 'minicode_instructions',
  'jsonl': 'instructions',
  **{name: name for name in ('questions', 'ag_news', 'sst2', 'nq', 'gsm8k')},
  'plugin': '',
}


def _model(backend: str, name: str) -> ml_collections.ConfigDict:
  """A language model, as for `mbpp_ppo`, with the lengths of its texts."""
  c = mbpp_ppo.model(name)
  c.backend = backend
  c.prompt_tokens = 400  # jax: most tokens of a prompt
  c.new_tokens = 80 if backend == 'jax' else 256  # jax: of a completion
  if backend == 'http':
    c.base_url = 'http://127.0.0.1:11434/v1'  # Ollama's
  return c


def _data(name: str) -> ml_collections.ConfigDict:
  """Which instructions are rewritten; the fields of `DataConfig`."""
  c = ml_collections.ConfigDict()
  c.name = name  # one of `tasks.load.TASK_SETS` with instructions
  c.path = ''  # file or folder of the data, for sets that need one
  c.plugin = ''  # module that registers further task sets and rewards
  # First N instructions, 0 = all.
  c.train_limit = c.validation_limit = c.test_limit = 0
  # What this set alone has, documented at its class of options.
  options = settings.to_mapping(TASK_SETS[name].options()) if name else {}
  c.options = ml_collections.ConfigDict(options)
  return c


def get_config(arg: str = 'minicode') -> ml_collections.ConfigDict:
  if arg not in ARGUMENTS:
    raise ValueError(
      f'config argument {arg!r}: expected one of {", ".join(ARGUMENTS)}'
    )
  embedded = arg in ('smoke', 'minicode')
  c = ml_collections.ConfigDict()
  c.preset = arg
  c.seed = 0  # of subsampled examples and of the bootstrap
  # Devices by axis, for models that one device cannot hold: tensor=2.
  c.mesh = ''
  c.strategies = ('I', 'S')  # I: the greedy rewrite; S: the best of K on dev
  c.cache = ''  # SQLite file of answers; empty: cache.sqlite in the workdir

  c.data = _data(ARGUMENTS[arg])

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
  # One of `rewards.registry.REWARDS`. score: the metric of the task set (em for
  # qa, accuracy for classification, numeric for math) | em | f1 | accuracy |
  # numeric | perplexity | perplexity_f1
  c.reward.kind = 'score'
  c.reward.options = ml_collections.ConfigDict()  # of that reward
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
  c.eval.dev_examples = 0  # examples per task, drawn with the seed, 0 = all
  c.eval.test_examples = 0
  if arg == 'smoke':
    c.data.validation_limit = c.data.test_limit = 12
  return c
