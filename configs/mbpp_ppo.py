"""PPO learns which prompt edit makes a frozen code model pass its tests.

  python -m experiments.mbpp_ppo --config=configs/mbpp_ppo.py:smoke --workdir=W

Arguments:
  smoke     the whole walk in about a minute: a few problems, two updates
  minicode  the embedded suite and models; no GPU, hub or key (the default)
  mbpp      the official MBPP file, full splits, any code model behind an
            OpenAI-compatible endpoint:
              --config.data.path=mbpp.jsonl --config.coder.backend=http
              --config.coder.base_url=http://127.0.0.1:8000/v1
              --config.coder.model=NAME   (likewise --config.rewriter...)
            without an endpoint the embedded coder walks it, near zero
  promis    the settings of PROMIS (arXiv 2605.19102, released code): three
            actions, ten features, +1 / -0.1, Monte-Carlo returns, 1000 episodes
"""

import ml_collections

_ARGUMENTS = ('smoke', 'minicode', 'mbpp', 'promis')


def model(name: str) -> ml_collections.ConfigDict:
  """A language model: embedded weights, a folder, or an HTTP endpoint."""
  c = ml_collections.ConfigDict()
  c.backend = 'jax'  # jax | http
  c.model = name  # embedded name or model folder; http: name at the server
  c.dtype = 'float32'  # jax: of the parameters; or bfloat16, int8
  c.kv_cache = 'plain'  # jax: or int8
  c.top_k = 0  # jax: most probable tokens to draw from, 0 = all
  c.min_p = 0.0  # jax: least probability, as a share of the highest
  c.repetition_penalty = 1.0  # jax: of tokens that are there already, 1 = none
  c.filters = ''  # jax: further filters, as epsilon=3e-4
  c.beams = 1  # jax: of an encoder-decoder at temperature 0, 1 = greedy
  c.base_url = ''  # http: up to and without /chat/completions
  c.api_key_env = 'OPENAI_API_KEY'  # http: variable that holds the key
  c.timeout_s = 180.0  # http: limit on one attempt
  c.max_retries = 5  # http: attempts after the first
  c.concurrency = 8  # http: requests in flight
  c.options = ml_collections.ConfigDict()  # of a registered backend
  c.max_context = 0  # http: context window in tokens, 0 = the server's
  return c


def get_config(arg: str = 'minicode') -> ml_collections.ConfigDict:
  if arg not in _ARGUMENTS:
    raise ValueError(
      f'config argument {arg!r}: expected one of {", ".join(_ARGUMENTS)}'
    )
  c = ml_collections.ConfigDict()
  c.preset = arg
  c.seed = 0  # of the first controller
  c.seeds = 1  # controllers trained and averaged in the report
  # Devices by axis, for models that one device cannot hold: tensor=2, or
  # data=2,fsdp=2,tensor=2. Empty: each device holds a copy.
  c.mesh = ''
  c.plugins = ()  # modules that register operators, strategies, task sets, ...

  c.data = ml_collections.ConfigDict()
  c.data.name = 'minicode'  # one of `tasks.load.TASK_SETS`
  c.data.path = ''  # file or folder of the data; mbpp: empty for the hub
  c.data.options = ml_collections.ConfigDict()  # of that task set alone
  c.data.protocol = 'visible1'  # blind | visible1 | visible_all | oracle
  c.data.train_tasks = ''  # file of ids: train on these alone
  c.data.train_limit = 0  # first N tasks of a split, 0 = all
  c.data.validation_limit = 0
  c.data.test_limit = 0

  c.coder = model('minicode_coder')
  c.rewriter = model('minicode_rewriter')

  c.pool = ml_collections.ConfigDict()
  c.pool.workers = 2
  c.pool.cpu_s = 1.0  # per test
  c.pool.memory_mb = 512
  c.pool.allow_weak = False  # run even where programs cannot be confined
  c.pool.import_header = False  # standard imports before every program

  c.env = ml_collections.ConfigDict()
  c.env.actions = (
    'keep',
    'resample',
    'lexical',
    'semantic',
    'repair',
    'reset_prompt',
    'submit',
  )
  c.env.budget = 8  # language-model calls per episode
  c.env.max_steps = 8
  c.env.observation = 'rich'  # rich | legacy
  c.env.accumulate = True  # edits build on one another
  c.env.first_temperature = 0.0  # of a prompt that was not asked yet
  c.env.sample_temperature = 0.8  # of a repeated prompt, and of resample
  c.env.rewrite_temperature = 0.8  # of a repeated rewrite
  c.env.top_p = 1.0
  c.env.max_tokens = 80  # of a program
  c.env.rewrite_max_tokens = 64  # of a statement
  c.env.template = 'plain'  # plain: embedded models; chat: instruction models
  c.env.lexical = ml_collections.ConfigDict()
  c.env.lexical.probability = 0.5  # of replacing a word that has synonyms
  c.env.lexical.max_candidates = 10
  c.env.lexical.similarity_threshold = 0.7
  c.env.lexical.synonyms = 'embedded'  # embedded | wordnet
  c.env.lexical.wordnet_path = ''  # its folder, default /usr/share/wordnet
  c.env.lexical.embedding = ''  # ranks synonyms: minilm, or a folder

  c.reward = ml_collections.ConfigDict()
  c.reward.kind = 'shaped'  # shaped | legacy
  c.reward.success = 1.0  # legacy
  c.reward.penalty = -0.1  # legacy
  c.reward.scale = 1.0
  c.reward.share_weight = 0.0
  c.reward.solved_bonus = 1.0
  c.reward.call_cost = 0.02
  c.reward.potential = False

  c.ppo = ml_collections.ConfigDict()
  c.ppo.lr = 2e-3
  c.ppo.gamma = 1.0  # episodes are short and calls have a price
  c.ppo.gae_lambda = 0.95
  c.ppo.clip = 0.2
  c.ppo.epochs = 6
  c.ppo.minibatches = 4
  c.ppo.value_coef = 0.5
  c.ppo.value_clip = ml_collections.config_dict.placeholder(float)
  c.ppo.entropy_coef = 0.01
  c.ppo.max_grad_norm = 0.5
  c.ppo.adam_epsilon = 1e-5
  c.ppo.normalize_ddof = 0
  c.ppo.anneal = True  # learning rate falls linearly to 0

  c.controller = ml_collections.ConfigDict()
  c.controller.iterations = 30
  c.controller.episodes = 256  # per iteration
  c.controller.budgets = (1, 2, 4, 8, 8)  # drawn per training episode
  c.controller.bootstrap_truncated = False
  c.controller.trunk = (128, 128)
  c.controller.head = (64,)

  c.bandit = ml_collections.ConfigDict()  # the contextual bandit, a rival
  c.bandit.iterations = 6  # of controller.episodes each
  c.bandit.exploration = 0.3  # width of the confidence bound, in rewards

  c.validate_every = 10  # iterations
  c.checkpoint_every = 5  # iterations

  c.eval = ml_collections.ConfigDict()
  c.eval.budgets = (1, 2, 4, 8)
  c.eval.strategies = ()  # registered strategies that are played, too
  c.eval.oracle = True  # also the parity table, best of at most 10 tries
  c.eval.oracle_limit = 100  # first N test problems of that table, 0 = all
  c.eval.resamples = 10_000

  if arg == 'smoke':
    c.data.train_limit, c.data.validation_limit, c.data.test_limit = 32, 16, 24
    c.controller.iterations, c.controller.episodes = 2, 16
    c.bandit.iterations = 1
    c.validate_every = c.checkpoint_every = 1
    c.eval.budgets = (1, 4)
    c.eval.oracle = False
    c.eval.resamples = 1000
  if arg == 'mbpp':
    c.data.name = 'mbpp'
    c.pool.cpu_s = 5.0
    c.env.max_tokens = 80
  if arg == 'promis':
    c.seed = 42
    c.data.protocol = 'oracle'
    c.env.actions = ('keep', 'semantic', 'lexical')
    c.env.budget = 20  # two calls for each of at most 10 rewrites
    c.env.max_steps = 10
    c.env.observation = 'legacy'
    c.env.accumulate = False
    c.env.first_temperature = c.env.sample_temperature = 0.7
    c.env.rewrite_temperature = 0.7
    c.env.top_p = 0.9
    c.env.lexical.probability = 0.25
    c.reward.kind = 'legacy'
    c.ppo.lr = 3e-4
    c.ppo.epochs = 4
    c.ppo.gamma = 0.99
    c.ppo.gae_lambda = 1.0  # Monte-Carlo returns minus values
    c.ppo.minibatches = 1
    c.ppo.adam_epsilon = 1e-8
    c.ppo.normalize_ddof = 1
    c.ppo.anneal = False
    # 1000 episodes. PROMIS updates after each; a batch of ten is the smallest
    # that gives a meaningful standard deviation of returns.
    c.controller.iterations, c.controller.episodes = 100, 10
    c.controller.budgets = (20,)
    c.controller.bootstrap_truncated = True
    c.validate_every = 25
    c.eval.budgets = (20,)
    c.eval.oracle = False
  return c


def get_hyper():
  """The sweep of the ablations: reward, observation, action set."""
  return [
    {'reward.kind': 'legacy'},
    {'reward.potential': True},
    {'env.observation': 'legacy'},
    {'env.accumulate': False},
    {'env.actions': ('keep', 'semantic', 'lexical')},
  ]
