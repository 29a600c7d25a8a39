"""PPO learns which prompt edit makes a frozen code model pass its tests.

  python -m experiments.mbpp_ppo --config=configs/mbpp_ppo.py:smoke --workdir=W

Arguments:
  smoke      the whole walk in about a minute: a few problems, two updates
  quickstart minicode2 in minutes: a part of the problems, a short training
  minicode2  the embedded suite and models; no GPU, hub or key (the default)
  minicode   the first embedded suite, where a fixed list is level with PPO
  mbpp       the official MBPP file, full splits, any code model behind an
             OpenAI-compatible endpoint:
               --config.data.path=mbpp.jsonl --config.coder.backend=http
               --config.coder.http.base_url=http://127.0.0.1:8000/v1
               --config.coder.model=NAME   (likewise --config.rewriter...)
             without an endpoint the embedded coder walks it, near zero
             --config.data.name=mbpp_plus or mbpp_sanitized: docs/data.md
  humaneval  the same with HumanEval for test and MBPP for the rest:
               --config.data.path=HumanEval.jsonl
               --config.data.options.mbpp=mbpp.jsonl
  mbpp_real  the splits of mbpp with SmolLM2 135M Instruct as coder and
             rewriter, in this process (`make real`):
               --config.data.path=mbpp.jsonl
             about six hours on two cores with AVX-512
  promis     the settings of PROMIS (arXiv 2605.19102, released code): three
             actions, ten features, +1 / -0.1, Monte-Carlo returns, 1000
             episodes
"""

import dataclasses

import ml_collections

from configs.job import Job, check_argument, on_minicode2, use_smollm2
from promptrl_jax import operators, settings
from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.evaluation.instruction_search import InstructionSearchConfig
from promptrl_jax.evaluation.open_loop_search import SearchConfig
from promptrl_jax.evaluation.statistics import RESAMPLES
from promptrl_jax.operators.examples import EMBEDDINGS, check_kind
from promptrl_jax.prompts.templates import TEMPLATES
from promptrl_jax.strategies.base import STRATEGIES
from promptrl_jax.tasks import humaneval
from promptrl_jax.training.controller.config import (
  PROMIS,
  BanditConfig,
  CloneConfig,
  ControllerConfig,
  PPOConfig,
)

_ARGUMENTS = (
  *('smoke', 'quickstart', 'minicode2', 'minicode'),
  *('mbpp', 'humaneval', 'mbpp_real', 'promis'),
)


@dataclasses.dataclass(frozen=True)
class EvalConfig:
  """What the line-up plays.

  Attributes:
    budgets: model calls per problem, one column of the table each.
    strategies: registered strategies that are played, too.
    reflections: `trace.jsonl` of a run on training problems, whose reflections
      `reflexion` and its variants are shown, too; empty: none.
    without: strategies of the table that are not played, though the other
      settings allow them; any but the subject of the report.
    oracle: also the parity table, best of at most 10 tries.
    oracle_limit: first N test problems of that table; 0 for all.
    bandits: also train and play contextual bandits, LinUCB.
    thompson: also train and play one that explores by Thompson sampling.
    token_prices: prices of 1,000 tokens, in rewards, at which the controller
      also plays, as `ppo_at_PRICE`: its cost curve, if it was trained with
      `controller.token_prices`.
    shuffled: also train and play a controller whose rewards are shuffled.
    allocation: also give all problems one budget, see `strategies/allocation`.
    instruction_search: of the global instruction of `gepa`, which is played if
      there are calls for it; takes models that follow instructions.
    resamples: of the bootstrap.
  """

  budgets: tuple[int, ...] = (1, 2, 4, 8)
  strategies: tuple[str, ...] = ()
  reflections: str = ''
  without: tuple[str, ...] = ()
  oracle: bool = True
  oracle_limit: int = 100
  bandits: bool = True
  thompson: bool = False
  token_prices: tuple[float, ...] = ()
  shuffled: bool = False
  allocation: bool = False
  instruction_search: InstructionSearchConfig = InstructionSearchConfig()
  resamples: int = RESAMPLES

  def __post_init__(self):
    if not self.budgets or min(self.budgets) < 1:
      raise ValueError(
        f'eval.budgets={self.budgets}: expected at least one budget, each of '
        'at least one model call per problem'
      )
    if len(set(self.budgets)) < len(self.budgets):
      raise ValueError(
        f'eval.budgets={self.budgets}: expected each budget once (a flag that '
        'is given twice adds its values)'
      )
    if wrong := [price for price in self.token_prices if not price >= 0]:
      raise ValueError(f'eval.token_prices has {wrong}: expected 0 or more')


@dataclasses.dataclass(frozen=True)
class Config(Job):
  """Settings of the main job, in addition to those of `Job`.

  Attributes:
    seeds: controllers that are trained, and averaged in the report.
    search: of what is chosen on validation.
    examples: how solved training problems are found for `fewshot` and
      `add_demo`: by `words`, `shipped` or `minilm`; empty for none.
    cache: file of completions that runs share; empty keeps them in memory.
    clone: of the start from the best lists, with `controller.clone`.
    validate_every, checkpoint_every: iterations.
    validate_seeds: runs that a validation is the mean of.
    patience: validations without a new best that end a training; its start is
      then validated, too. 0: none do.
  """

  subject = 'ppo'  # no setting here: a comparison may be about another one

  seeds: int = 1
  editing: EditingConfig = EditingConfig()
  ppo: PPOConfig = PPOConfig()
  controller: ControllerConfig = ControllerConfig()
  bandit: BanditConfig = BanditConfig()
  examples: str = ''
  cache: str = ''
  search: SearchConfig = SearchConfig()
  clone: CloneConfig = CloneConfig()
  validate_every: int = 10
  validate_seeds: int = 1
  patience: int = 0
  checkpoint_every: int = 5
  eval: EvalConfig = EvalConfig()

  def __post_init__(self):
    check_kind(self.examples)
    # Raises for an unknown one, before any training.
    strategies = {name: STRATEGIES[name] for name in self.eval.strategies}
    if self.subject in self.eval.without:
      raise ValueError(
        f'eval.without={self.eval.without}: {self.subject} is what the report '
        'is about'
      )
    if self.editing.sees_certainty and not self.coder.certainty:
      raise ValueError(
        'editing.sees_certainty=True: the controller would see nothing; '
        'expected coder.certainty=True, too'
      )
    prices = self.controller.token_prices or self.eval.token_prices
    if prices and not self.editing.sees_price:
      raise ValueError(
        f'token_prices={prices}: the controller would not know them; expected '
        'editing.sees_price=True, too'
      )
    remembering = [name for name in STRATEGIES if STRATEGIES[name].remembers]
    if self.eval.reflections and not {*remembering} & strategies.keys():
      raise ValueError(
        f'eval.reflections={self.eval.reflections}: no strategy of '
        f'eval.strategies={self.eval.strategies} is shown them, expected some '
        f'of {", ".join(remembering)}'
      )
    used = {'fewshot', 'add_demo'} & {
      *self.eval.strategies,
      *self.editing.actions,
    }
    if used and not self.examples:
      raise ValueError(
        f"examples='': {', '.join(sorted(used))} needs worked examples, "
        f'expected one of {", ".join(EMBEDDINGS)}'
      )
    asking = [name for name, known in strategies.items() if known.instructed]
    if asking and not TEMPLATES[self.ask.template].instructed:
      raise ValueError(
        f'eval.strategies has {", ".join(asking)}, which asks in words, and '
        f'ask.template={self.ask.template!r} is that of models which follow no '
        'instruction: '
        "expected 'chat' or 'code', or the strategy 'mbr_exec'"
      )


def get_config(arg: str = 'minicode2') -> ml_collections.ConfigDict:
  check_argument(arg, _ARGUMENTS)
  c = settings.to_config_dict(Config())
  if arg == 'smoke':
    c.data.train_limit, c.data.validation_limit, c.data.test_limit = 32, 16, 24
    c.controller.iterations, c.controller.episodes = 2, 16
    c.validate_every = c.checkpoint_every = 1
    c.eval.budgets = (1, 4)
    c.eval.oracle = False
    c.eval.resamples = 1000
    c.search.beam = c.search.seeds = 1
    c.search.temperatures = (0.8,)
  if arg in ('minicode2', 'quickstart'):
    _for_minicode2(c)
  if arg == 'quickstart':
    c.data.train_limit, c.data.validation_limit = 600, 150
    c.data.test_limit = 300
    c.editing.budget = c.editing.max_steps = 8
    c.controller.budgets = c.eval.budgets = (1, 2, 4, 8)
    c.controller.worlds = c.search.seeds = c.validate_seeds = 1
    c.search.beam = 2
    c.controller.iterations, c.controller.episodes = 60, 512
    c.eval.bandits = False
  if arg in ('mbpp', 'mbpp_real'):
    c.data.name = 'mbpp'
  if arg == 'humaneval':
    c.data.name = 'humaneval'
    c.data.options = settings.to_config_dict(humaneval.Options())
  if arg in ('mbpp', 'humaneval'):
    c.pool.limits.cpu_s = 5.0
  if arg == 'mbpp_real':
    _for_smollm2(c)
  if arg == 'promis':
    _as_promis(c)
  return c


def _for_minicode2(c: ml_collections.ConfigDict) -> None:
  on_minicode2(c)
  c.editing.budget = c.editing.max_steps = 16
  # A call has a price only to settle ties: what is compared is what is solved.
  c.editing.step_reward.call_cost = 0.005
  c.controller.budgets = (1, 2, 4, 8, 16, 16)
  c.controller.worlds, c.controller.continuations = 16, 8
  c.controller.iterations, c.controller.episodes = 150, 1024
  c.validate_every, c.validate_seeds = 25, 3
  c.search.beam = 4
  c.eval.budgets = (1, 2, 4, 8, 16)
  c.eval.oracle = False


def _for_smollm2(c: ml_collections.ConfigDict) -> None:
  for role in ('coder', 'rewriter'):  # One model in memory has both roles.
    use_smollm2(c, role)
    c[role].prompt_cache_gib = 8.0  # 500 problems, each with an example
  c.ask.rewrite_max_tokens = 96
  c.eval.instruction_search.max_tokens = c.rewriter.new_tokens
  c.seeds = 3
  c.examples = 'words'
  c.editing.actions = (*operators.DEFAULT, 'add_demo')
  c.editing.step_reward.call_cost = 0.005
  c.controller.clone = True
  c.controller.worlds, c.controller.continuations = 4, 8
  # A problem in ten is solved: large batches and small steps.
  c.controller.iterations, c.controller.episodes = 12, 1024
  c.ppo.lr, c.ppo.entropy_coef = 5e-4, 0.003
  c.validate_every, c.validate_seeds, c.patience = 4, 2, 2
  c.checkpoint_every = 2
  c.search.beam, c.search.seeds = 2, 2
  c.search.temperatures = (0.2, 0.4, 0.6)
  # `experiments.headroom` shows what one operator does, in a tenth of the time;
  # those that sample play at the temperature that is best on validation.
  c.eval.without = (
    *('lexical', 'semantic', 'repair', 'hand_rule', 'single_list'),
    *('best_of_b', 'greedy_first'),
  )
  # Bandits explore: each would take hours of completions that no other asks.
  c.eval.oracle = c.eval.bandits = False
  c.cache = 'runs/mbpp_completions.sqlite'


def _as_promis(c: ml_collections.ConfigDict) -> None:
  c.seed = 42
  c.data.protocol = 'oracle'
  c.ask.first_temperature = c.ask.sample_temperature = 0.7
  c.ask.rewrite_temperature = 0.7
  c.ask.top_p = 0.9
  c.editing.actions = operators.PROMIS
  c.editing.budget = 20  # two calls for each of at most 10 rewrites
  c.editing.max_steps = 10
  c.editing.observation = 'legacy'
  c.editing.accumulate = False
  c.editing.lexical.probability = 0.25
  c.editing.step_reward.kind = 'legacy'
  c.ppo = settings.to_config_dict(PROMIS)
  # 1000 episodes. PROMIS updates after each; a batch of ten is the smallest
  # that gives a meaningful standard deviation of returns.
  c.controller.iterations, c.controller.episodes = 100, 10
  c.controller.budgets = (20,)
  c.controller.bootstrap_truncated = True
  c.validate_every = 25
  c.eval.budgets = (20,)
  c.eval.oracle = False


def get_hyper(arg: str = 'minicode2'):
  """The sweep of the ablations; rows that deviate from nothing are left out."""
  if arg == 'mbpp_real':
    return _ABLATIONS_OF_SMOLLM2
  config = get_config(arg)
  actions, budget = config.editing.actions, config.editing.budget
  shaped = (
    {'editing.step_reward.potential': True},
    {'editing.step_reward.share_weight': 1.0},
    {'editing.step_reward.call_cost': 0.0},
  )
  rows = [
    # What the controller sees.
    {'editing.observation': 'legacy'},
    {'editing.observation': 'rich'},
    # What it may do: without mutation, without any rewrite, ...
    {'editing.actions': operators.PROMIS},
    *(
      {'editing.actions': tuple(name for name in actions if name not in absent)}
      for absent in (
        *(('lexical',), ('semantic',), ('lexical', 'semantic')),
        *(('repair',), ('resample',), ('submit',)),
      )
    ),
    # What seeing programs fail is worth, how far they agree, and the coder's
    # log-probs.
    {'editing.observation': 'masked'},
    {'editing.sees_agreement': True},
    {'editing.sees_certainty': True, 'coder.certainty': True},
    # One network for all prices of a token.
    {
      'controller.token_prices': (0.02, 2.0),
      'editing.sees_price': True,
      'eval.token_prices': (0.05, 0.2, 0.5, 1.0),
    },
    # Whether an edit builds on those before it.
    {'editing.accumulate': not config.editing.accumulate},
    # What it is rewarded for.
    {'editing.step_reward.kind': 'legacy'},
    {'editing.step_reward.kind': 'shaped'},
    *(shaped if config.editing.step_reward.kind == 'shaped' else ()),
    # Which budgets it has seen: the largest alone, or small ones alone.
    {'controller.budgets': (budget,)},
    {'controller.budgets': (1, 2, 4)},
  ]
  flat = config.to_dict()
  return [row for row in rows if _deviates(flat, row)]


def _deviates(config, row) -> bool:
  """Whether a setting of a row has another value in the config."""
  for key, value in row.items():
    old = config
    for part in key.split('.'):
      old = old[part]
    if old != value:
      return True
  return False


# Why training adds nothing to the lists there: is it the start that hardly
# explores, the start itself, that few episodes are solved, what the controller
# sees, or its actions?
_ABLATIONS_OF_SMOLLM2 = [
  {'clone.entropy_coef': 0.5},
  {'controller.clone': False, 'ppo.lr': 2e-3, 'ppo.entropy_coef': 0.01},
  {'controller.solvable_by': 1, 'controller.episodes': 512},
  {'editing.observation': 'legacy'},
  {'editing.actions': operators.DEFAULT},
]
