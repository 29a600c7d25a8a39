"""Prompts that learn from ratings: evolution and GPRO, simulated or served.

  python -m experiments.hybrid --config=configs/hybrid.py:smoke --workdir=W
  python -m experiments.hybrid --mode=serve --config=configs/hybrid.py:serve \
    --workdir=W

Arguments:
  smoke      two methods, two people and 60 questions: under two minutes
  simulated  five methods, ten people and 300 questions; no GPU, hub or key
             (the default)
  drift      the same, with a taste that changes at question 150
  serve      a person in the place of the simulated ones, 100 ratings; answers
             of SmolLM2 135M Instruct where it is installed (`make real`), else
             of templates
  smollm2, templated
             the same, with answers of the one or the other
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import ml_collections

from configs.job import SMOLLM2, check_argument
from promptrl_jax import settings
from promptrl_jax.envs.simulated_user import UserConfig
from promptrl_jax.llm.load import BackendConfig
from promptrl_jax.models import packaged
from promptrl_jax.rewards import safety
from promptrl_jax.tasks import queries
from promptrl_jax.training.gpro import choosing, people, reward
from promptrl_jax.training.gpro.config import GPROConfig
from promptrl_jax.training.gpro.phases import LoopConfig

_SERVED = ('serve', 'smollm2', 'templated')
_ARGUMENTS = ('smoke', 'simulated', 'drift', *_SERVED)
EVOLVING = '_evolution'  # the end of the name of a method that evolves
METHODS = (
  *('random', 'epsilon_greedy', 'thompson', 'gpro'),
  f'gpro{EVOLVING}',
)


@dataclasses.dataclass(frozen=True)
class Config:
  """Settings of the job; each section is documented at its class.

  Attributes:
    seed: of the first person.
    seeds: people.
    queries: questions of each; of a person who is served, ratings.
    split: of the bank of questions.
    methods: ways to choose what is shown, of `training/gpro/choosing.py`; with
      `_evolution` at the end the population of prompts evolves, too. Without,
      it stays as it was drawn. A person who is served gets the last one.
    ask: `one` answer is rated, or a `pair` is compared.
    reward: what is learned from: the `rating` alone, the `hybrid` of rating,
      critics, coherence and costs, `hybrid_legacy`, or one that a plug-in adds
      to `rewards.hybrid.REFINEMENT_REWARDS`.
    reward_options: of that reward; weights of the terms, say.
    safety: what finds the `safety_penalty` of a reward, one of
      `rewards.safety.SAFETY`.
    checkpoint_every: updates between checkpoints within the run of a person.
    components: principal components of the embedding of a question, beside what
      it asks for (`rewards/intent.py`).
    prompt_components: principal components of the embedding of the system
      prompt that critics see beside its answer; 0: they see the answer alone.
    embedding: `shipped`, or `minilm` with the extra `embedding`.
    threshold: fitness of the best prompt from which its evolution counts as
      converged, in the report alone.
    edits: what changes sections of prompts: the wordings of the `catalogue`, or
      the `model` that answers, which has to follow instructions.
    distances: by which prompts that say the same, and comments, are told:
      their `words`, or the embedding `shipped` or `minilm`.
    plugins: modules that register backends, rewards or safety checks.
    mesh: devices by axis, for models in this process.
    model: what answers.
  """

  seed: int = 0
  seeds: int = 10
  queries: int = 300
  split: str = 'train'
  methods: tuple[str, ...] = METHODS
  ask: str = 'one'
  reward: str = 'rating'
  reward_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  safety: str = 'disclosure'
  checkpoint_every: int = 20
  components: int = 2
  prompt_components: int = 0
  embedding: str = 'shipped'
  threshold: float = 0.6
  edits: str = 'catalogue'
  distances: str = 'words'
  plugins: tuple[str, ...] = ()
  mesh: str = ''
  model: BackendConfig = BackendConfig(backend='templated', model='templated')
  user: UserConfig = UserConfig()
  loop: LoopConfig = LoopConfig()
  gpro: GPROConfig = GPROConfig(
    members=16,
    capacity=512,
    half_life=4000.0,
    prior_scale=1.0,
    actor_lr=0.03,
    clip=0.5,
    entropy_coef=0.01,
    exploration=1.0,
  )

  def __post_init__(self):
    settings.check_choices(
      self,
      split=queries.SPLITS,
      embedding=('shipped', 'minilm'),
      edits=('catalogue', 'model'),
      distances=('words', 'shipped', 'minilm'),
      ask=people.ASK,
      safety=safety.SAFETY,
    )
    reward.check_reward(self.reward, self.reward_options)
    if self.edits == 'model' and self.model.backend == 'templated':
      raise ValueError(
        "edits='model', model.backend='templated': templates follow no "
        'instructions; expected a language model'
      )
    if self.checkpoint_every < 1:
      raise ValueError(
        f'checkpoint_every={self.checkpoint_every}: expected 1 update or more'
      )
    known = {*choosing.NAMES, *(f'{n}{EVOLVING}' for n in choosing.NAMES)}
    for name in self.methods:
      if name not in known:
        raise ValueError(
          f'method {name!r}: expected some of {", ".join(choosing.NAMES)}, '
          f'each also with {EVOLVING} at its end'
        )
    if len(set(self.methods)) < len(self.methods):
      raise ValueError(f'methods={self.methods}: expected each of them once')
    if not self.methods or self.seeds < 1 or self.queries < 1:
      raise ValueError(
        f'methods={self.methods}, seeds={self.seeds}, queries={self.queries}: '
        'expected a method, a person and a question or more'
      )


def get_config(arg: str = 'simulated') -> ml_collections.ConfigDict:
  check_argument(arg, _ARGUMENTS)
  c = settings.to_config_dict(Config())
  if arg == 'smoke':
    c.seeds, c.queries = 2, 60
    c.methods = ('random', f'gpro{EVOLVING}')
  if arg == 'drift':
    c.user.drift = 150
  if arg in _SERVED:
    c.seeds, c.queries, c.checkpoint_every = 1, 100, 1
    c.loop.judged = True
    c.methods = (f'gpro{EVOLVING}',)
  has_model = arg == 'serve' and packaged.SMOLLM2.is_installed
  if has_model or arg == 'smollm2':
    _answer_with_smollm2(c)
  return c


def _answer_with_smollm2(c: ml_collections.ConfigDict) -> None:
  """Few answers for each rating, so that a person does not wait long."""
  c.model.backend, c.model.model = 'jax', SMOLLM2
  c.model.dtype = c.model.kv_cache = 'bfloat16'
  c.model.prompt_tokens, c.model.slots = 256, 6
  c.model.new_tokens = c.loop.max_tokens = 96
  c.loop.temperature = 0.7
  c.loop.population_size, c.loop.window = 6, 3
  c.loop.evolution.elite_size, c.loop.evolution.children = 6, 2
  c.loop.schedule.every = 2


def get_hyper(arg: str = ''):
  """The sweep of what is learned from, and how much is tried."""
  del arg  # They are the same for all.
  rows = [{'gpro.advantage': name} for name in ('candidates', 'shown')]
  rows += [{'gpro.exploration': value} for value in (0.0, 0.5)]
  return rows + [{'loop.evolution.selection': n} for n in ('fitness', 'nsga2')]
