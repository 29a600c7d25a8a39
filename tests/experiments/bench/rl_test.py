"""The clock and the comparisons of the benchmark, without any peer."""

import json
import pathlib
import sys
import types

import pytest

from experiments.bench import rl_comparison, rl_iteration
from experiments.bench.peers import iterations, launch
from tests.experiments.bench.models import CONFIG, NORMS, TWO_LAYERS

WORK = iterations.Work(
  size='tiny',
  shape={'vocab_size': 50},
  prompts=2,
  group=2,
  prompt=3,
  new=2,
  beta=0.04,
  learning_rate=1e-6,
  dtypes=['float32'],
  runs=2,
  limit_s=60,
)


class Watch:
  """A clock that a test turns on."""

  def __init__(self, monkeypatch):
    self.now = 0.0
    monkeypatch.setattr(iterations.time, 'perf_counter', lambda: self.now)

  def wait(self, seconds):
    self.now += seconds


@pytest.fixture
def watch(monkeypatch):
  return Watch(monkeypatch)


def trainer(watch):
  """Scores for 1 s, rolls out 2 s inside of that, updates for `spent`."""
  made = types.SimpleNamespace()
  made.generate = lambda: watch.wait(2)

  def score():
    watch.wait(0.5)
    made.generate()
    watch.wait(0.5)

  made.score = score
  return made


def train(watch, clock, updates):
  made = trainer(watch)
  clock.during(made, 'score', 'score')
  clock.during(made, 'generate', 'rollout')
  with clock.running():
    for seconds in updates:
      made.score()
      watch.wait(seconds)
      clock.iteration_ends()


def test_each_moment_counts_for_one_part(watch, capsys):
  clock = iterations.Clock(WORK, rest='update')
  train(watch, clock, [100, 4, 6, 0])
  iterations.report(clock.line('peer', 'grpo', dtype='float32'))
  line = json.loads(capsys.readouterr().out)
  assert line.pop('other_cores') >= 0
  assert line == {
    'size': 'tiny',
    'algorithm': 'grpo',
    'peer': 'peer',
    'dtype': 'float32',
    'iteration_s': 8.0,
    'rollout_s': 2.0,
    'score_s': 1.0,
    'update_s': 5.0,
    'first_iteration_s': 103.0,
    'iterations': 2,
  }


def test_a_part_that_was_entered_lasts_until_the_iteration_ends(watch):
  clock = iterations.Clock(WORK._replace(runs=1), rest='score')
  with clock.running():
    while True:
      watch.wait(1)
      clock.enter('update')
      watch.wait(3)
      clock.iteration_ends()
  line = clock.line('peer', 'ppo')
  assert (line['score_s'], line['update_s']) == (1.0, 3.0)


def test_seconds_move_from_one_part_to_another(watch):
  clock = iterations.Clock(WORK._replace(runs=1), rest='score')
  with clock.running():
    while True:
      watch.wait(4)
      clock.charge('update', 3)
      clock.iteration_ends()
  line = clock.line('peer', 'ppo')
  assert (line['score_s'], line['update_s']) == (1.0, 3.0)


@pytest.mark.parametrize('untimed, timed', [(1, 1), (2, 1)])
def test_a_slow_trainer_is_timed_once(watch, untimed, timed):
  clock = iterations.Clock(WORK._replace(limit_s=5), 'update', untimed)
  train(watch, clock, [9] * 9)
  assert len(clock.iterations) == untimed + timed


def test_a_loop_that_ends_early_is_an_error(watch):
  clock = iterations.Clock(WORK, rest='update')
  with pytest.raises(RuntimeError, match='ended after 1 iterations'):
    train(watch, clock, [1])


def test_what_a_trainer_prints_is_no_line(watch, capsys):
  clock = iterations.Clock(WORK._replace(runs=1), rest='update')
  with clock.running():
    print('{"loss": 1}')
    watch.wait(1)
    clock.iteration_ends()
    watch.wait(1)
    clock.iteration_ends()
  assert capsys.readouterr().out == ''


def test_the_reward_is_the_share_of_even_ids():
  ids = [[2, 4], [2, 3], [3, 5], [0, 1]]
  assert iterations.even(WORK, ids) == [1.0, 0.5, 0.0, 0.5]
  with pytest.raises(
    ValueError, match=r'\[2, 2, 2, 1\]: expected 4, each of 2'
  ):
    iterations.even(WORK, [*ids[:3], [1]])


def test_prompts_are_words_of_the_vocabulary():
  found = iterations.texts(WORK, 40)
  assert {len(text.split()) for text in found} == {3}
  assert len(set(found)) == 40
  assert all(3 <= int(word) < 50 for text in found for word in text.split())


def test_the_learner_reads_prompts_as_these_ids():
  (text,) = iterations.texts(WORK, 1)
  tokenizer = rl_iteration.words(50)
  ids = tokenizer.render((('user', text),))
  assert [str(i) for i in ids] == text.split()
  assert tokenizer.decode_after([ids]) == [f' {text}']
  assert not tokenizer.eos_ids


def test_work_survives_the_command_line(monkeypatch):
  peer = launch.TRAINERS['tunix', 'ppo']
  line = launch.drive(peer, '/env/bin/python', WORK)
  assert pathlib.Path(line[1]).is_file()
  monkeypatch.setattr(sys, 'argv', line[1:])
  assert iterations.read() == WORK


@pytest.mark.parametrize(
  'package, is_there',
  [('json', True), ('json.decoder', True), ('json.x', False), ('x.y', False)],
)
def test_a_module_of_a_package_may_be_missing(capsys, package, is_there):
  peer = launch.Peer('trl_ppo.py', package, 'pip install that')
  assert launch.has(peer, 'trl ppo', sys.executable) == is_there
  assert ('pip install that' in capsys.readouterr().err) != is_there


def test_operations_of_an_update_by_hand():
  # A layer: 4 products of 8 x 8, 3 of 8 x 16, two norms, biases of 24.
  layer = 4 * 64 + 3 * 128 + 16 + 24 * CONFIG.qkv_bias
  body = 3 * layer + 8
  head = 50 * 8
  # 4 rows of 5 tokens and 15 pairs; each pair 12 x 3 layers x 8.
  floor = 6 * (body + head) * 20 + 12 * 3 * 8 * 60
  assert rl_comparison.floor_operations(CONFIG, WORK) == floor
  # 2 prompts of 3 tokens and 6 pairs; 4 rows of 2 tokens, with 6 + 3 pairs.
  least = 6 * body * 14 + 6 * head * 8 + 12 * 3 * 8 * (12 + 36)
  assert rl_comparison.least_operations(CONFIG, WORK) == least


def test_the_best_ways_are_compared_by_part():
  of = lambda peer, dtype, rollout, score, update: {
    'size': 'tiny',
    'algorithm': 'grpo',
    'peer': peer,
    'dtype': dtype,
    'rollout_s': rollout,
    'score_s': score,
    'update_s': update,
    'iteration_s': rollout + score + update,
  }
  mine = [of('ours', 'float32', 1, 1, 2), of('ours', 'float32', 2, 1, 0.5)]
  theirs = [of('peer', 'float32', 3, 2, 2), of('peer', 'bfloat16', 4, 1, 1)]
  common = {'size': 'tiny', 'algorithm': 'grpo', 'over': 'peer'}
  assert rl_comparison.ratios(mine, theirs) == [
    common
    | {'dtype': 'float32', 'iteration': 2.0}
    | {'rollout': 3.0, 'score': 2.0, 'update': 4.0},
    common
    | {'dtype': 'best', 'iteration': 1.71}
    | {'rollout': 3.0, 'score': 1.0, 'update': 2.0},
  ]


def test_what_reading_prompts_costs():
  found = rl_comparison.forward_operations(TWO_LAYERS, rows=3, length=5)
  products = 3 * 5 * (2 * (4 * 64 + 3 * 128) + NORMS) + 3 * 400
  # Scores and values: two products of 8 for each layer and pair of tokens.
  pairs = 3 * (5 + 4 + 3 + 2 + 1)
  assert found == 2 * products + 2 * 2 * 2 * 8 * pairs


@pytest.mark.slow
@pytest.mark.parametrize('algorithm', ['grpo', 'ppo'])
def test_an_iteration_of_ours_is_timed(algorithm):
  way = rl_iteration.Way(devices=1, micro_batches=1)
  line = rl_iteration.run(
    WORK._replace(runs=1), CONFIG, algorithm, 'float32', way
  )
  parts = [line[f'{part}_s'] for part in iterations.PARTS]
  assert all(seconds > 0 for seconds in parts)
  assert line['iteration_s'] == pytest.approx(sum(parts), abs=2e-3)
  assert line['first_iteration_s'] > line['iteration_s']
  assert ('value head' in line['models']) == (algorithm == 'ppo')
