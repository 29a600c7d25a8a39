"""A controller that picks edits, a rewriter that words them, in turns.

  python -m experiments.joint --config=configs/joint.py:smoke --workdir=W

Arguments:
  smoke     the whole walk in about a minute: a few problems and calls
  minicode  the embedded suite and models (the default): three arms of
            5,000 coder calls each; docs/joint.md has a larger run

An arm is a way to spend the same number of coder calls:
  --config.arms.both='(1,2)' --config.calls=20000
"""

import ml_collections

from configs import mbpp_grpo, mbpp_ppo

_ARGUMENTS = ('smoke', 'minicode')


def get_config(arg: str = 'minicode') -> ml_collections.ConfigDict:
  if arg not in _ARGUMENTS:
    raise ValueError(
      f'config argument {arg!r}: expected one of {", ".join(_ARGUMENTS)}'
    )
  played = mbpp_ppo.get_config('minicode')
  written = mbpp_grpo.get_config('minicode')
  c = ml_collections.ConfigDict()
  c.preset = arg
  c.seed = 0  # of the first run
  c.seeds = 1  # runs of each arm
  c.mesh = ''  # devices by axis; empty: all along data

  c.calls = 5000  # of the coder, in the training of each arm
  c.calls_per_leg = 500  # between two rows of metrics
  c.arms = ml_collections.ConfigDict()
  # Iterations of the controller, then of the rewriter, in one turn.
  c.arms.controller = (1, 0)
  c.arms.rewriter = (0, 1)
  c.arms.both = (1, 1)

  c.data = played.data
  c.coder = played.coder
  c.rewriter = played.rewriter  # where training starts
  c.pool = played.pool
  del c.pool.import_header  # the rewriter's rewards know no header
  c.env = played.env

  # The controller: reward of an episode, network and update.
  c.reward = played.reward
  c.ppo = played.ppo
  c.ppo.anneal = False  # how many updates the calls pay is not known ahead
  c.controller = played.controller
  del c.controller.iterations
  # Small iterations: the one that ends an arm passes its calls by less.
  c.controller.episodes = 128
  c.controller.budgets = (2, 4, 8)  # drawn per training episode

  # The rewriter: reward of a rewrite, and the sections of configs/mbpp_grpo.py.
  c.rewrite_reward = written.reward
  for name in (
    'train',
    'rollout',
    'packing',
    'advantage',
    'learner',
    'reference',
    'optimizer',
    'lora',
  ):
    c[name] = written[name]
  del c.train.iterations
  c.optimizer.decay = 'constant'  # as c.ppo.anneal

  c.validate_every = 5  # legs
  c.validate_limit = 128  # first N validation problems, 0 = all
  c.checkpoint_every = 5  # legs

  c.eval = ml_collections.ConfigDict()
  c.eval.budgets = (2, 4, 8)
  c.eval.subject = 'both'  # arm that the others are compared with
  c.eval.resamples = 10_000

  if arg == 'smoke':
    c.data.train_limit, c.data.validation_limit, c.data.test_limit = 32, 8, 16
    c.calls, c.calls_per_leg = 64, 32
    c.controller.episodes = 16
    c.rollout.prompts, c.rollout.group = 4, 4
    c.train.rows_per_piece = 1
    c.validate_every = c.checkpoint_every = 1
    c.eval.resamples = 1000
  return c


def get_hyper():
  """The sweep of how the calls are divided within a turn."""
  return [{'arms.both': turn} for turn in ((1, 1), (1, 2), (1, 4), (2, 1))]
