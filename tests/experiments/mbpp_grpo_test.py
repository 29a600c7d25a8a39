"""Training a rewriter: whole, killed and resumed, with bad input."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from promptrl_jax.evaluation.cells import read_csv
from promptrl_jax.evaluation.training_cost import training_calls
from promptrl_jax.llm.load import ASSETS
from promptrl_jax.models import pretrained
from promptrl_jax.tasks import splits
from promptrl_jax.tasks.minicode.suite import SUITE
from promptrl_jax.testing import tiny, tiny_encoder_decoder
from tests.experiments import commands
from tests.variants import mostly_slow

ITERATIONS = 3
SMALL = (
  '--config=configs/mbpp_grpo.py:smoke',
  f'--config.train.iterations={ITERATIONS}',
  '--config.train.rollout.prompts=2',
  '--config.data.train_limit=8',
  '--config.data.validation_limit=2',
  '--config.data.test_limit=4',
  '--config.validate_every=2',
)


def command(workdir, *flags):
  chosen = []  # A flag of a tuple that is given twice is put together.
  if not any('algorithms' in flag for flag in flags):
    # It learns from groups without a difference, too.
    chosen = ["--config.algorithms=('ppo',)"]
  name = 'experiments.mbpp_grpo'
  return name, f'--workdir={workdir}', *SMALL, *chosen, *flags


def run(workdir, *flags):
  return commands.run(*command(workdir, *flags))


def rows(workdir):
  """Metrics of the training without the times."""
  path = workdir / 'ppo' / 'seed_0' / 'metrics.jsonl'
  return [
    {k: v for k, v in json.loads(line).items() if not k.startswith('time/')}
    for line in path.read_text().splitlines()
  ]


def leaves(folder):
  _, params, _ = pretrained.load_pretrained(folder)
  return [np.asarray(leaf) for leaf in jax.tree.leaves(params)]


def equal(first, second):
  pairs = zip(leaves(first), leaves(second), strict=True)
  return all(np.array_equal(a, b) for a, b in pairs)


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
  """A run that nothing interrupted."""
  workdir = tmp_path_factory.mktemp('whole')
  result = run(workdir)
  assert result.returncode == 0, result.stderr[-3000:]
  return workdir, result


def test_it_leaves_results_and_a_model(whole):
  workdir, result = whole
  for name in ('config.json', 'results.json', 'results.md', 'curves.png'):
    assert (workdir / name).stat().st_size > 0, name
  folder = workdir / 'ppo' / 'seed_0'
  assert list(folder.glob('events*'))
  assert str(folder / 'model') in result.stdout
  assert 'TensorBoard' in result.stdout
  start = ASSETS / 'minicode_rewriter'
  assert not equal(start, folder / 'model')
  calls = [row['budget/calls'] for row in rows(workdir)]
  assert training_calls(str(folder / 'model')) == sum(calls) > 0
  results = json.loads((workdir / 'results.json').read_text())
  paid = {c['strategy']: c['optimisation_calls'] for c in results['cells']}
  assert paid == {'direct': 0, 'start': 0, 'ppo': sum(calls)}
  header = results['header']
  assert header['seeds'] == [0] and 'minicode' in header['data_hash']


def test_every_iteration_has_a_row_of_finite_numbers(whole):
  found = rows(whole[0])
  assert [row['step'] for row in found] == list(range(ITERATIONS))
  for row in found:
    assert all(np.isfinite(v) for v in row.values() if v is not None)
    assert row['budget/rewrites'] == 8
    assert row['train/tokens'] == row['rollout/steps'] > 0
    assert 0 <= row['reward/mean'] <= 1
  scored = [i for i, r in enumerate(found) if 'eval/validation_pass' in r]
  assert scored == [1, 2]
  # Minibatches after the first see a policy that has moved.
  assert any(row['train/approx_kl'] > 0 for row in found)


def test_all_are_compared_on_the_same_problems_with_two_calls(whole):
  found = read_csv(whole[0] / 'results.csv')
  assert {'direct', 'start', 'ppo'} == {cell.strategy for cell in found}
  assert len({cell.task_ids for cell in found}) == 1
  wanted = tuple(task.task_id for task in SUITE.load('test')[:4])
  assert found[0].task_ids == wanted
  assert {cell.budget for cell in found} == {2}


# The same `Run` is killed by a test of two processes every time.
@pytest.mark.slow
def test_kill_and_resume_equals_the_uninterrupted_run(whole, tmp_path):
  path = tmp_path / 'ppo' / 'seed_0' / 'metrics.jsonl'
  commands.kill_when(lambda: commands.has_rows(path, 2), *command(tmp_path))
  assert not (tmp_path / 'results.json').exists()
  result = commands.run_fresh(*command(tmp_path))
  assert result.returncode == 0, result.stderr[-3000:]
  assert rows(tmp_path) == rows(whole[0])
  folders = [path / 'ppo/seed_0/model' for path in (tmp_path, whole[0])]
  assert equal(*folders)
  csv = 'results.csv'
  assert (tmp_path / csv).read_text() == (whole[0] / csv).read_text()


@pytest.mark.slow
def test_without_an_algorithm_the_start_plays_alone(whole, tmp_path):
  model = whole[0] / 'ppo' / 'seed_0' / 'model'
  result = run(
    tmp_path, '--config.algorithms=()', f'--config.rewriter.model={model}'
  )
  assert result.returncode == 0, result.stderr[-3000:]
  found = {c.strategy: c for c in read_csv(tmp_path / 'results.csv')}
  assert found.keys() == {'direct', 'start'}
  trained = {c.strategy: c for c in read_csv(whole[0] / 'results.csv')}['ppo']
  np.testing.assert_array_equal(found['start'].passed, trained.passed)


@pytest.mark.slow
def test_tasks_that_rewrites_solve_are_chosen_once(tmp_path):
  flags = ('--config.solvable_by=2', '--config.train.iterations=1')
  result = run(tmp_path, *flags)
  assert result.returncode == 0, result.stderr[-3000:]
  path = tmp_path / 'solvable.json'
  chosen = json.loads(path.read_text())
  assert 0 < len(chosen['problems']) <= 8 and chosen['calls'] > 16
  trained = sum(row['budget/calls'] for row in rows(tmp_path))
  model = tmp_path / 'ppo' / 'seed_0' / 'model'
  assert training_calls(str(model)) == trained + chosen['calls']
  # What a run that goes on finds there, it takes.
  chosen['problems'] = chosen['problems'][:1]
  path.write_text(json.dumps(chosen))
  result = run(tmp_path, *flags)
  assert result.returncode == 0, result.stderr[-3000:]
  assert 'training tasks that a rewrite solves: 1\n' in result.stdout


@pytest.mark.slow
def test_another_config_or_model_in_the_same_workdir_is_refused(
  whole, tmp_path
):
  path = whole[0] / 'config.json'
  before = path.read_text()
  model = tmp_path / 'model'
  config = dataclasses.replace(tiny.CONFIG, max_positions=512)
  pretrained.save_pretrained(
    model, config, tiny.params(), tiny.tokenizer(), 'float32'
  )
  for flags, message in (
    (['--config.train.optimizer.lr=0.5'], 'optimizer.lr'),
    ([f'--config.rewriter.model={model}'], 'rewriter.model'),
  ):
    result = run(whole[0], *flags)
    assert result.returncode != 0
    assert message in result.stderr and 'Traceback' not in result.stderr
  assert path.read_text() == before
  # The folder is called what it was, and its weights are others.
  start = json.loads(before)['models']['start']
  path.write_text(before.replace(start, 'minicode_rewriter@0000'))
  try:
    result = run(whole[0])
  finally:
    path.write_text(before)
  assert result.returncode != 0
  assert "models.start: 'minicode_rewriter@0000' there" in result.stderr


@pytest.fixture
def t5(tmp_path):
  """An encoder-decoder that knows nothing, with a tokenizer of its own."""
  encoder = tiny.tokenizer()
  config = dataclasses.replace(
    tiny_encoder_decoder.CONFIG, vocab_size=encoder.vocab_size
  )
  params = tiny_encoder_decoder.params(config)
  pretrained.save_pretrained(tmp_path / 't5', config, params, encoder)
  return tmp_path / 't5'


@pytest.mark.slow
def test_an_encoder_decoder_is_trained_and_can_be_the_next_start(t5, tmp_path):
  model, flags = t5, ['--config.train.packing.prompt_size=400']
  for number in range(2):
    workdir = tmp_path / f'run_{number}'
    result = run(workdir, f'--config.rewriter.model={model}', *flags)
    assert result.returncode == 0, result.stderr[-2000:]
    assert [row['step'] for row in rows(workdir)] == list(range(ITERATIONS))
    model = workdir / 'ppo' / 'seed_0' / 'model'
  # As nothing that it writes can be used, nothing is learned.
  before, after = (pretrained.load_pretrained(m) for m in (t5, model))
  assert before[0] == after[0]
  jax.tree.map(np.testing.assert_array_equal, before[1], after[1])


def refuses(workdir, flags, message):
  result = run(workdir, *flags)
  assert result.returncode != 0
  assert message in result.stderr, result.stderr[-800:]
  assert 'Traceback' not in result.stderr
  assert not (workdir / 'results.json').exists()


# Most of what refuses them has tests of its own; here it reaches the user.
REFUSED = [
  (("--config.algorithms=('ppq',)",), "algorithm 'ppq': expected one of grpo"),
  (
    ("--config.algorithms=('ppo', 'grpo')", '--config.train.rollout.group=1'),
    'a group of 1',
  ),
  (('--config.train.overlap=True',), 'overlap=True with importance=none'),
  (('--config.eval.split=train',), "eval.split='train': expected validation"),
  (('--config.rewriter.backend=http',), "rewriter.backend='http'"),
  (('--config.data.protocol=all',), "'all'"),
  (('--config.train.reference.kind=adapter_off',), "needs parameters='lora'"),
]


@pytest.mark.parametrize(
  ('flags', 'message'), mostly_slow(REFUSED, REFUSED[:1] + REFUSED[3:4])
)
def test_bad_input_is_one_clear_message(flags, message, tmp_path):
  refuses(tmp_path, flags, message)


@pytest.mark.slow
def test_a_reference_with_another_tokenizer_is_refused(t5, tmp_path):
  flags = (
    '--config.train.reference.kind=model',
    f'--config.train.reference.model={t5}',
  )
  message = f"reference.model='{t5}' has another tokenizer than"
  refuses(tmp_path / 'run', flags, message)


def test_prompts_of_a_run_hold_no_hidden_test():
  from configs.mbpp_grpo import Config
  from promptrl_jax.envs.rewriting.env import RewritingEnv
  from promptrl_jax.testing.scripted import ScriptedBackend

  config = Config()
  env = RewritingEnv(
    ScriptedBackend(lambda _: ''), None, config.rewriting, config.ask
  )
  tasks = SUITE.load('train')[:20]
  for task, messages in zip(tasks, env.prompts(tasks), strict=True):
    for test in splits.hidden_tests(task, config.data.protocol):
      assert test not in json.dumps(messages)


def test_each_algorithm_is_a_change_of_the_config_that_is_there():
  from configs.mbpp_grpo import Config
  from promptrl_jax.training.rewriter.algorithms import ALGORITHMS, make_config

  config = Config()
  for name in ALGORITHMS:
    settings = make_config(config.train, name)
    assert settings.value_head == (name == 'ppo')
  with pytest.raises(ValueError, match="'ppq': expected one of grpo, dr_grpo"):
    make_config(config.train, 'ppq')


def test_those_that_take_over_are_changes_of_the_same_config():
  from configs.mbpp_grpo import Config
  from promptrl_jax.training.rewriter.algorithms import make_config

  config = Config().train
  switches = ((1, 'reinforce'), (2, 'pairs'))
  settings = make_config(config, 'dr_grpo', switches)
  kinds = [phase.advantage.kind for phase in settings.phases]
  assert kinds == ['dr_grpo', 'reinforce', 'pairs']
  # Nothing of the one before is left.
  assert [p.rollout.drop_uniform for p in settings.phases] == [
    True,
    False,
    True,
  ]
  assert [p.loss.constant_length for p in settings.phases] == [64, None, 1]
  message = "update 1 changes the advantage from 'grpo' to 'gae'"
  with pytest.raises(ValueError, match=message):
    make_config(config, 'grpo', ((1, 'ppo'),))
