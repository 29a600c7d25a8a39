"""PRewrite: the rewriter of instructions is trained on what they are worth.

  python -m experiments.prewrite --config=configs/prewrite.py:smoke --workdir=W

Arguments:
  smoke     the whole walk in about a minute: a few tasks, two updates
  minicode  PPO on the embedded tasks and models, no GPU, hub or key (the
            default)
  jsonl     tasks from files of JSON lines (see tasks/instructions.py):
              --config.data.options.train=train.jsonl
              --config.data.options.dev=dev.jsonl
              --config.data.options.test=test.jsonl
              --config.rewriter.model=FOLDER
            The task model is behind an OpenAI-compatible server, which Ollama
            is, too: --config.task_model.model=NAME
  questions, ag_news, sst2, nq, gsm8k, plugin
            other task sets, as for configs/rewrite.py

`ALGORITHMS` of promptrl_jax/training/rewriter/algorithms.py says what a name in
--config.algorithms changes.
"""

import ml_collections

from configs import mbpp_grpo, rewrite

# Sections of the learner, which is the one that learns from tests.
_LEARNER = (
  'train',
  'rollout',
  'packing',
  'advantage',
  'learner',
  'reference',
  'optimizer',
  'lora',
)


def get_config(arg: str = 'minicode') -> ml_collections.ConfigDict:
  c = rewrite.get_config(arg)  # tasks, models, and how they are compared
  embedded = arg in ('smoke', 'minicode')
  learner = mbpp_grpo.get_config('minicode')
  c.algorithms = ('ppo',)  # keys of ALGORITHMS
  c.seeds = 1  # runs of each algorithm, from c.seed on
  c.switches = ()  # updates at which another takes over: ((30, 'pairs'),)

  if embedded:
    # Inputs of each instruction to train on, as PRewrite does; 0: other
    # problems are trained on, those of the train split of the suite.
    c.data.options.train_examples = 8

  # Only a model in this process can be trained. Its lengths are those of
  # `packing` and `rollout`, in training and after.
  c.rewriter.backend = 'jax'
  c.rewriter.base_url = ''
  del c.rewriter.prompt_tokens, c.rewriter.new_tokens, c.rewrite.max_tokens

  for section in _LEARNER:
    c[section] = learner[section]
  c.train.iterations = 40
  c.optimizer.lr = 5e-4
  c.rollout.prompts, c.rollout.group = 32, 4
  c.advantage.lam = 0.95  # of GAE

  c.env = ml_collections.ConfigDict()
  c.env.examples = 4  # of a task, for all rewrites of it in a batch; 0 = all
  # After which a batch without answers is asked for row by row.
  c.env.timeout_s = 600.0

  c.validate_every = 10  # updates
  c.checkpoint_every = 10
  c.patience = 3  # validations without a new best that end a run; 0: none do

  if arg == 'smoke':
    c.data.train_limit = c.data.validation_limit = c.data.test_limit = 8
    c.train.iterations = 2
    c.rollout.prompts, c.rollout.group = 4, 4
    c.train.rows_per_piece = 1
    c.validate_every = c.checkpoint_every = 1
    c.eval.resamples = 1000
  if not embedded:
    c.train.train = 'lora'
    c.reference.kind = 'adapter_off'
    # One instruction, so a batch is one group.
    c.rollout.prompts, c.rollout.group = 1, 32
    c.rollout.new_tokens = c.packing.lane_size = 256
    c.packing.prompt_size = 512
    c.env.examples = 32
  return c


def get_hyper():
  """The sweep of rewards, of algorithms, and of the KL coefficient."""
  sweep = [{'reward.kind': name} for name in ('em', 'f1')]
  sweep += [{'algorithms': (name,)} for name in mbpp_grpo.ALGORITHMS]
  return sweep + [{'reference.kl_coef': value} for value in (0.0, 0.005, 0.1)]
