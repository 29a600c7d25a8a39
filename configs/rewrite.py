"""PRewrite-I and PRewrite-S: a better instruction, chosen with dev examples.

  python -m experiments.rewrite --config=configs/rewrite.py:smoke --workdir=W

Arguments:
  smoke     a dozen of the embedded tasks, in under a minute
  minicode  the embedded tasks and models, no GPU, hub or key (the default):
            184 instructions, K = 10; four minutes on two cores
  minicode_real  the same with SmolLM2 135M Instruct as task model (`make
            real`); six minutes on two cores
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
  mbpp      as jsonl, with one instruction for the official MBPP file:
              --config.data.path=mbpp.jsonl
  mbpp_real the same with SmolLM2 135M Instruct in both roles (`make real`)
  plugin    as jsonl, with a task set of your own:
              --config.plugins="('MODULE',)" --config.data.name=NAME
"""

import dataclasses

import ml_collections

from configs.job import check_argument, use_smollm2
from promptrl_jax import settings
from promptrl_jax.envs.rewriting.config import RewritingConfig
from promptrl_jax.evaluation.statistics import RESAMPLES
from promptrl_jax.execution.config import PoolConfig
from promptrl_jax.llm.ask import AskConfig
from promptrl_jax.llm.http_config import HttpConfig
from promptrl_jax.llm.ledger import SpendConfig
from promptrl_jax.llm.load import BackendConfig
from promptrl_jax.prompts.meta import MetaConfig
from promptrl_jax.strategies.prewrite import RewriteConfig
from promptrl_jax.tasks.load import TASK_SETS
from promptrl_jax.tasks.task_set import DataConfig

EMBEDDED = ('smoke', 'minicode', 'minicode_real')
# Argument -> task set.
ARGUMENTS = {
  **dict.fromkeys(EMBEDDED, 'minicode_instructions'),
  'jsonl': 'instructions',
  **{name: name for name in ('questions', 'ag_news', 'sst2', 'nq', 'gsm8k')},
  **dict.fromkeys(('mbpp', 'mbpp_real'), 'mbpp_instruction'),
  'plugin': '',
}
# Argument -> roles of SmolLM2.
_SMOLLM2 = {
  'minicode_real': ('task_model',),
  'mbpp_real': ('rewriter', 'task_model'),
}
# Ollama's.
_SERVER = BackendConfig(
  'http', new_tokens=256, http=HttpConfig('http://127.0.0.1:11434/v1')
)


@dataclasses.dataclass(frozen=True)
class EvalConfig:
  """How instructions are compared.

  Attributes:
    resamples: of the bootstrap.
    dev_examples, test_examples: examples per task, drawn with the seed; 0 for
      all.
    answers: of the task model to each test example, whose rewards are averaged;
      they differ where `ask.first_temperature` is above 0.
    first_answer: seed of the first of them; behind those of an earlier run, the
      answers are ones that nobody has looked at.
    given: instructions that are measured for every task beside those that are
      chosen; `''` is none at all.
  """

  resamples: int = RESAMPLES
  dev_examples: int = 0
  test_examples: int = 0
  answers: int = 1
  first_answer: int = 0
  given: tuple[str, ...] = ()

  def __post_init__(self):
    if self.answers < 1:
      raise ValueError(f'eval.answers={self.answers}: expected 1 or more')
    if self.first_answer < 0:
      raise ValueError(
        f'eval.first_answer={self.first_answer}: expected 0 or more'
      )
    if len(set(self.given)) < len(self.given):
      raise ValueError(f'eval.given={self.given}: expected each text once')


@dataclasses.dataclass(frozen=True)
class Config:
  """Settings of the job; each section is documented at its class.

  Attributes:
    seed: of subsampled examples and of the bootstrap.
    mesh: devices by axis, for models that one device cannot hold: `tensor=2`.
    plugins: modules that register task sets and rewards.
    strategies: `I`: the greedy rewrite; `S`: the best of K on dev. None: only
      what `eval.given` holds is measured.
    cache: SQLite file of answers; empty: `cache.sqlite` in the workdir.
    task_model: the frozen model.
    runs_programs: the task model writes a program, and its value is the answer;
      for models and prompts like the embedded ones.
    pool: where programs run.
    spend: caps of calls, tokens and dollars, prices, dry run.
  """

  seed: int = 0
  mesh: str = ''
  plugins: tuple[str, ...] = ()
  strategies: tuple[str, ...] = ('I', 'S')
  cache: str = ''
  data: DataConfig = DataConfig(name='minicode_instructions')
  rewriter: BackendConfig = BackendConfig(model='minicode_rewriter')
  task_model: BackendConfig = BackendConfig(model='minicode_coder')
  runs_programs: bool = True
  ask: AskConfig = AskConfig()
  rewrite: RewriteConfig = RewriteConfig()
  rewriting: RewritingConfig = RewritingConfig(
    meta=MetaConfig('minicode'), reward='score'
  )
  pool: PoolConfig = PoolConfig()
  spend: SpendConfig = SpendConfig()
  eval: EvalConfig = EvalConfig()


def get_config(arg: str = 'minicode') -> ml_collections.ConfigDict:
  c = settings.to_config_dict(Config())
  adapt(c, arg)
  if arg == 'smoke':
    c.rewrite.samples = 4
    c.data.validation_limit = c.data.test_limit = 12
  return c


def adapt(c: ml_collections.ConfigDict, arg: str) -> None:
  """Sets tasks and models; what they are is the same for `prewrite`."""
  check_argument(arg, ARGUMENTS)
  name = c.data.name = ARGUMENTS[arg]
  # What this set alone has, documented at its class of options.
  options = settings.to_mapping(TASK_SETS[name].options()) if name else {}
  c.data.options = ml_collections.ConfigDict(options)
  for role in _SMOLLM2.get(arg, ()):
    use_smollm2(c, role)
    c.ask.instruction = ''  # What is rewritten takes its place.
  if arg in EMBEDDED:
    return
  c.runs_programs = False
  c.rewriting.meta.family = 'generic_b'
  if arg == 'mbpp_real':
    _for_smollm2(c)
    return
  for role in ('rewriter', 'task_model'):
    c[role] = settings.to_config_dict(_SERVER)
  c.ask.max_tokens = c.ask.rewrite_max_tokens = 256
  if arg == 'mbpp':
    c.ask.template = 'chat'


def _for_smollm2(c: ml_collections.ConfigDict) -> None:
  c.task_model.prompt_tokens = 1848  # for the tests of problem 493
  c.rewriter.prompt_tokens = 128
  c.rewriter.new_tokens = c.ask.rewrite_max_tokens = 48
  # A problem in ten is solved: few examples could not tell rewrites apart, and
  # one answer to each is not enough to measure what was chosen.
  c.rewrite.samples, c.rewrite.rounds = 32, 4
  c.rewrite.choose_on = 'train_and_dev'
  c.ask.first_temperature = 0.3
  c.eval.answers = 4
