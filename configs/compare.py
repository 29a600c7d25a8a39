"""All strategies at equal budgets, in one table and one report.

  python -m experiments.compare --config=configs/compare.py:smoke --workdir=W

Arguments:
  smoke      a part of minicode 2 with the published controllers, in minutes
  minicode2  the embedded suite and models, three seeds, all budgets; no GPU,
             hub or key (the default): about an hour on two cores
  mbpp_real  the official MBPP file with SmolLM2 135M Instruct in this process
             (`make real`): --config.data.path=mbpp.jsonl
  mbpp_all   the same with those that ask in words, verifiers and portfolio,
             and at 16 calls, which the controllers have not been trained for;
             it takes at most 1.3 million model calls, so that it wants an
             accelerator, and plays the strategies of a budget at once;
             --config.eval.without=... leaves some strategies out
  mbpp       the official MBPP file, any model behind an OpenAI-compatible
             endpoint, as for configs/mbpp_ppo.py; learns nothing unless
             --config.controllers=RUN names a finished run of that job
  humaneval  the same with HumanEval for test and MBPP for the rest:
               --config.data.path=HumanEval.jsonl.gz
               --config.data.options.mbpp=mbpp.jsonl

What is played: the rivals that follow from `editing.actions`, those that are
chosen on validation, the controllers of `controllers`, and the strategies of
`eval.strategies`, less `eval.without`.
"""

import dataclasses
import pathlib

import ml_collections

from configs import mbpp_ppo
from configs.job import check_argument
from promptrl_jax import settings

# The argument of `mbpp_ppo` whose settings each starts from.
_ARGUMENTS = {
  'smoke': 'minicode2',
  'minicode2': 'minicode2',
  'mbpp_real': 'mbpp_real',
  'mbpp_all': 'mbpp_real',
  'mbpp': 'mbpp',
  'humaneval': 'humaneval',
}
_RESULTS = pathlib.Path(__file__).parents[1] / 'docs' / 'results'
_IN_WORDS = ('mbpp_real', 'mbpp_all', 'mbpp', 'humaneval')
# Rivals, each before those that lack a part of it; see experiments/ablations.
_ABLATED = (
  'reflexion',
  *('reflexion_memory_1', 'reflexion_memory_0'),
  'reflexion_without_reflection',
  *('epic_fixed', 'epic_fixed_without_mutation'),
)


@dataclasses.dataclass(frozen=True)
class Config(mbpp_ppo.Config):
  """Settings of the job, in addition to those of `mbpp_ppo`.

  Attributes:
    seeds: runs of each strategy, from `seed` on.
    controllers: workdir of a finished run of `mbpp_ppo`, which trained what is
      played; its actions and observation are used. Empty: nothing is learned.
    subject: strategy that the others are compared with.
    portfolio: strategies that share the budget of a problem, one after the
      other, in a portfolio that is chosen on validation; empty: none plays.
    restarted: strategies that play once more, as NAME_restarted, and start anew
      from the problem after `restarted_after` calls: such as controllers that
      were trained with no more.
    restarted_after: calls of each start.
    verified: strategies that play once more, as NAME_verified, with a verifier
      that chooses what is submitted; see `strategies/verified.py`. Let the
      coder measure its `certainty`.
    verified_at: probability of being right at which they submit, with the calls
      that are left unspent; 1: after all calls.
    verifier_problems: first training problems that verifiers are fitted on.
    trained_rewriter: model of a rewriter that was trained, such as a run of
      `experiments.mbpp_grpo` leaves: with it in the place of `rewriter`, the
      best list (searched anew) plays as `rewriter`, the controllers as
      `ppo_rewriter`; empty: neither plays.
    together: strategies that play a budget at once, so that the batches of an
      accelerator are full. They are lost together if the process is killed, but
      not their completions; how long each took is not known.
    rescore: also play what was chosen by a score on validation there again,
      with fresh draws, beside that score and the one on test.
    split: whose problems are played: `test`, or `validation` to choose by.
    oracle_of_n: also measure what a perfect choice among B samples solves, in B
      calls per problem.
  """

  controllers: str = ''
  subject: str = 'ppo'
  portfolio: tuple[str, ...] = ()
  oracle_of_n: bool = False
  restarted: tuple[str, ...] = ()
  restarted_after: int = 8
  verified: tuple[str, ...] = ()
  verified_at: float = 1.0
  verifier_problems: int = 400
  trained_rewriter: str = ''
  together: int = 1
  rescore: bool = True
  split: str = 'test'

  def __post_init__(self):
    super().__post_init__()
    if self.together < 1:
      raise ValueError(f'together={self.together}: expected 1 or more')
    if self.restarted_after < 1:
      raise ValueError(
        f'restarted_after={self.restarted_after}: expected at least one call'
      )
    if self.split not in ('validation', 'test'):
      raise ValueError(f'split={self.split!r}: expected validation or test')


def get_config(arg: str = 'minicode2') -> ml_collections.ConfigDict:
  check_argument(arg, _ARGUMENTS)
  name = _ARGUMENTS[arg]
  theirs = mbpp_ppo.get_config(name).to_dict()
  shared = settings.from_mapping(mbpp_ppo.Config, theirs)
  c = settings.to_config_dict(Config(**vars(shared)))
  c.eval.oracle = c.eval.allocation = False
  c.seeds = 3
  if name == 'minicode2':
    c.controllers = str(_RESULTS / 'minicode2')
    c.cache = 'runs/compare_completions.sqlite'
    c.search.beam, c.search.seeds = 2, 1
    c.eval.strategies = ('mbr_exec',)
    c.eval.shuffled = c.eval.thompson = True
    c.examples = 'words'
    c.oracle_of_n = True
    c.trained_rewriter = str(_RESULTS / 'minicode2' / 'rewriter')
    c.subject = 'portfolio'
    c.portfolio = ('ppo_rewriter', 'rewriter', 'greedy_first', 'mbr_exec')
  if name == 'mbpp_real':
    c.controllers = str(_RESULTS / 'mbpp')
    c.oracle_of_n = True
  if arg == 'mbpp_all':
    c.eval.without = ()
    c.eval.budgets = (1, 2, 4, 8, 16)
    c.eval.strategies = (
      *('mbr_exec', 'codet'),
      *('immediate_refinement', 'immediate_reflexion'),
      *('reflexion', 'reflexion_ucs'),
      *('epic', 'epic_fixed', 'epic_words'),
    )
    c.eval.instruction_search.calls = 1200
    c.portfolio = ('ppo', 'best_open_loop', 'greedy_first', 'mbr_exec')
    c.verified = ('fewshot_tuned', 'greedy_first_tuned')
    c.coder.certainty = c.rewriter.certainty = True
    c.together = 40
  if name in ('mbpp', 'humaneval'):
    c.subject = 'best_open_loop'
  if arg == 'smoke':
    c.cache = c.examples = ''
    c.seeds = 1
    c.data.validation_limit, c.data.test_limit = 60, 90
    c.eval.budgets = (1, 2, 4)
    c.eval.resamples = 1000
    c.search.temperatures = (0.8,)
    c.search.beam = 1
  return c


def get_hyper(arg: str = 'minicode2'):
  """The sweep of the ablations of rivals: memory, reflection, mutation.

  Each row plays one of them, so that the sweep has a line for it. The models
  have to follow instructions (`ask.template` other than `plain`).

  Raises:
    ValueError: the models of the argument follow none.
  """
  if arg not in _IN_WORDS:
    raise ValueError(
      f'the sweep of configs/compare.py asks models in words, and those of '
      f'{arg} follow no instructions: expected one of {", ".join(_IN_WORDS)}'
    )
  return [
    {
      'plugins': ('experiments.ablations',),
      'subject': name,
      'eval.strategies': (name,),
    }
    for name in _ABLATED
  ]
