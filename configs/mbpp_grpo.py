"""The rewriter learns which words make a frozen code model pass its tests.

  python -m experiments.mbpp_grpo --config=configs/mbpp_grpo.py:smoke \
    --workdir=W

Arguments:
  smoke       the whole walk in about a minute: a few problems, two updates
  minicode    GRPO on the embedded suite and models (the default)
  algorithms  GRPO, PPO with a value head and REINFORCE, one after the other
  mbpp        the official MBPP file and models of your own:
                --config.data.path=mbpp.jsonl --config.coder.model=FOLDER
                --config.rewriter.model=FOLDER

`ALGORITHMS` of promptrl_jax/training/rewriter/algorithms.py says what a name in
--config.algorithms changes.
"""

import ml_collections

from configs import mbpp_ppo
from promptrl_jax.training.rewriter.algorithms import ALGORITHMS

_ARGUMENTS = ('smoke', 'minicode', 'algorithms', 'mbpp')


def get_config(arg: str = 'minicode') -> ml_collections.ConfigDict:
  if arg not in _ARGUMENTS:
    raise ValueError(
      f'config argument {arg!r}: expected one of {", ".join(_ARGUMENTS)}'
    )
  main = mbpp_ppo.get_config('minicode')
  c = ml_collections.ConfigDict()
  c.preset = arg
  c.algorithms = ('grpo',)  # keys of ALGORITHMS
  c.seed = 0  # of the first run
  c.seeds = 1  # runs of each algorithm
  # Updates from which on another of ALGORITHMS takes over: ((30, 'pairs'),)
  c.switches = ()

  c.mesh = ''  # a process' devices by axis; empty: all along data

  c.data = main.data
  c.coder = main.coder
  c.rewriter = main.rewriter  # where training starts
  c.pool = main.pool
  c.env = main.env  # how rewriters are evaluated

  c.reward = ml_collections.ConfigDict()
  c.reward.kind = 'solved'  # one of `rewards.registry.REWARDS`
  c.reward.options = ml_collections.ConfigDict()  # of rewards but `solved`
  c.reward.temperature = 0.0  # of the coder
  c.reward.solved_bonus = 1.0
  c.reward.share_weight = 0.0
  c.reward.word_cost = 0.0
  c.reward.allow_keep = True  # an empty rewrite keeps the statement
  c.reward.timeout_s = 120.0

  c.train = ml_collections.ConfigDict()
  c.train.iterations = 40
  c.train.train = 'full'  # full | lora
  c.train.value_head = False
  c.train.value_trunk = False  # whether its loss changes the model below
  c.train.rows_per_piece = 4
  # For large vocabularies and long rows: places with logits at a time (of
  # packing.lanes * packing.lane_size), and layers computed twice.
  c.train.logits_chunk = ml_collections.config_dict.placeholder(int)
  c.train.remat = False
  c.train.overlap = False  # sample ahead while programs run
  c.train.dtype = 'float32'  # of the sampler

  c.rollout = ml_collections.ConfigDict()
  c.rollout.prompts = 64
  c.rollout.group = 8
  c.rollout.new_tokens = 64
  c.rollout.temperature = 0.8
  c.rollout.drop_uniform = True
  c.rollout.resample_rounds = 0

  c.packing = ml_collections.ConfigDict()
  c.packing.prompt_size = 256
  c.packing.lanes = 8
  c.packing.lane_size = 64
  c.packing.sequences = 32

  c.advantage = ml_collections.ConfigDict()
  c.advantage.kind = 'grpo'
  c.advantage.gamma = 1.0
  c.advantage.lam = 1.0
  c.advantage.normalize = True
  c.advantage.beta = 0.1
  c.advantage.charge_kl = 'auto'  # auto | loss | reward | token
  c.advantage.deviation = 'population'  # population | sample: with n - 1
  c.advantage.kl_estimator = 'k1'  # where the divergence is a reward
  c.advantage.kl_cap = ml_collections.config_dict.placeholder(float)
  c.advantage.kl_min_prob = ml_collections.config_dict.placeholder(float)

  c.learner = ml_collections.ConfigDict()
  c.learner.loss = 'ppo'
  c.learner.loss_options = ml_collections.ConfigDict()
  c.learner.aggregation = 'token_mean'
  c.learner.constant_length = ml_collections.config_dict.placeholder(int)
  c.learner.kl_estimator = 'k3'  # k1 | k2 | k3 | exact
  c.learner.kl_cap = ml_collections.config_dict.placeholder(float)
  c.learner.kl_min_prob = ml_collections.config_dict.placeholder(float)
  c.learner.entropy_coef = 0.0
  c.learner.value_coef = 0.5
  c.learner.value_clip = ml_collections.config_dict.placeholder(float)
  c.learner.importance = 'none'
  c.learner.importance_cap = 2.0
  c.learner.epochs = 1
  c.learner.minibatches = 1
  c.learner.compute_dtype = 'float32'

  c.reference = ml_collections.ConfigDict()
  # none | frozen | copy | ema | adapter_off | model
  c.reference.kind = 'frozen'
  c.reference.model = ''  # of model: one with the rewriter's tokenizer
  c.reference.every = 10
  c.reference.decay = 0.99
  c.reference.kl_coef = 0.02
  c.reference.control = 'fixed'  # fixed | adaptive | linear
  c.reference.target = 0.05
  c.reference.end = 0.0
  c.reference.steps = 100

  c.optimizer = ml_collections.ConfigDict()
  c.optimizer.lr = 1e-4
  c.optimizer.warmup = 5
  c.optimizer.decay = 'linear'  # constant | linear
  c.optimizer.weight_decay = 0.0
  c.optimizer.b2 = 0.99
  c.optimizer.max_grad_norm = 1.0

  c.lora = ml_collections.ConfigDict()  # of train.train=lora
  c.lora.rank = 16
  c.lora.alpha = 32.0
  c.lora.targets = ('.*',)

  c.validate_every = 10  # iterations
  c.validate_limit = 0  # first N validation problems, 0 = all
  c.checkpoint_every = 10

  c.eval = ml_collections.ConfigDict()
  c.eval.split = 'test'  # or validation
  c.eval.resamples = 10_000

  if arg == 'algorithms':
    c.algorithms = ('grpo', 'ppo', 'reinforce')
  if arg == 'smoke':
    c.data.train_limit, c.data.validation_limit, c.data.test_limit = 32, 8, 16
    c.train.iterations = 2
    c.rollout.prompts, c.rollout.group = 4, 4
    c.train.rows_per_piece = 1
    c.validate_every = c.checkpoint_every = 1
    c.eval.resamples = 1000
  if arg == 'mbpp':
    c.data.name = 'mbpp'
    c.pool.cpu_s = 5.0
    c.train.train = 'lora'
    c.reference.kind = 'adapter_off'
    c.train.logits_chunk, c.train.remat = 64, True
  return c


def get_hyper():
  """The sweep of the algorithms, and of the KL coefficient."""
  sweep = [{'algorithms': (name,)} for name in ALGORITHMS]
  return sweep + [{'reference.kl_coef': value} for value in (0.0, 0.005, 0.1)]
