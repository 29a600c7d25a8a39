"""Fine-tuning of the rewriter: whole, killed and resumed, with bad input."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.evaluation.cells import read_csv
from promptrl_jax.models import pretrained
from promptrl_jax.tasks import splits
from promptrl_jax.tasks.minicode.suite import SUITE
from promptrl_jax.testing import tiny
from tests.experiments import commands
from tests.variants import mostly_slow

STEPS = 6


def trace_row(task, step, statement, passed):
  return {
    'strategy': 'random',
    'protocol': 'visible1',
    'budget': 4,
    'seed': 0,
    'row': 0,
    'task_id': task.task_id,
    'step': step,
    'action': 'semantic' if step else 'keep',
    'prompt': {
      'statement': statement,
      'signature': task.signature,
      'tests': list(task.tests[:1]),
      'attempt': '',
      'feedback': '',
    },
    'code': task.reference if passed else 'def wrong(): pass',
    'visible_passed': passed,
    'feedback': 'TEST_PASS_MASK: (False,)\nFAILED: it returned 1, expected 2',
  }


def write_trace(path, split='train', count=8):
  tasks = [t for t in SUITE.load(split) if t.register != 'canonical'][:count]
  rows = [
    row
    for task in tasks
    for row in (
      trace_row(task, 0, task.statement, False),
      trace_row(task, 1, task.canonical, True),
    )
  ]
  path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
  return tasks


@pytest.fixture(scope='module')
def inputs(tmp_path_factory):
  """A tiny model with random parameters, and a trace of training problems."""
  folder = tmp_path_factory.mktemp('inputs')
  config = dataclasses.replace(tiny.CONFIG, max_positions=1024)
  encoder = tiny.tokenizer()
  config = dataclasses.replace(
    config,
    bos_token_id=encoder.bos_id,
    eos_token_ids=(encoder.eos_id,),
    pad_token_id=encoder.pad_id,
  )
  pretrained.save_pretrained(
    folder / 'model', config, tiny.params(), encoder, 'float32'
  )
  write_trace(folder / 'trace.jsonl')
  write_trace(folder / 'test.jsonl', 'test')
  return folder


def command(inputs, workdir, *flags):
  traces = []  # A flag of a tuple that is given twice is put together.
  if not any('traces' in flag for flag in flags):
    traces = [f"--config.traces=('{inputs / 'trace.jsonl'}',)"]
  return [
    'experiments.sft_rewriter',
    '--config=configs/sft_rewriter.py:smoke',
    f'--workdir={workdir}',
    f'--config.rewriter.model={inputs / "model"}',
    f'--config.coder.model={inputs / "model"}',
    *traces,
    '--config.data.validation_limit=3',
    f'--config.supervised.steps={STEPS}',
    '--config.supervised.row_length=400',
    '--config.ask.max_tokens=8',
    '--config.edits.feedback=both',
    '--config.edits.originals=False',
    '--config.edits.keep=1.0',
    '--config.ask.rewrite_max_tokens=8',
    *flags,
  ]


def run(inputs, workdir, *flags):
  return commands.run(*command(inputs, workdir, *flags))


@pytest.fixture(scope='module')
def whole(inputs, tmp_path_factory):
  """A run that nothing interrupted."""
  workdir = tmp_path_factory.mktemp('whole')
  result = run(inputs, workdir)
  assert result.returncode == 0, result.stderr[-3000:]
  return workdir, result


def rows(workdir):
  lines = (workdir / 'metrics.jsonl').read_text().splitlines()
  return [json.loads(line) for line in lines]


def leaves(folder):
  _, params, _ = pretrained.load_pretrained(folder)
  return jax.tree.leaves(params)


@pytest.mark.slow
def test_it_leaves_a_model_that_the_other_experiments_read(inputs, whole):
  workdir, result = whole
  before, after = leaves(inputs / 'model'), leaves(workdir / 'model')
  assert any(
    not np.array_equal(a, b) for a, b in zip(before, after, strict=True)
  )
  assert {x.dtype for x in after} == {jnp.dtype('float32')}
  for name in ('results.json', 'results.md', 'results.csv', 'edits.jsonl'):
    assert (workdir / name).stat().st_size > 0, name
  assert list(workdir.glob('events*'))
  assert 'start' in result.stdout and str(workdir / 'model') in result.stdout


@pytest.mark.slow
def test_the_loss_falls_and_every_step_has_a_row(whole):
  found = rows(whole[0])
  assert [row['step'] for row in found] == list(range(STEPS))
  losses = [row['train/completion_loss'] for row in found]
  assert losses[-1] < losses[0]
  scored = [row for row in found if 'eval/held_out_likelihood' in row]
  assert [row['step'] for row in scored] == [1, 3, 5]
  assert all(0 < row['eval/held_out_likelihood'] < 1 for row in scored)


@pytest.mark.slow
def test_edits_are_of_training_problems_and_hold_no_hidden_test(whole):
  tasks = {task.task_id: task for task in SUITE.load('train')}
  lines = (whole[0] / 'edits.jsonl').read_text().splitlines()
  assert len(lines) == 16  # eight problems, with and without feedback
  for line in lines:
    row = json.loads(line)
    task = tasks[row['task_id']]
    assert row['reply'] == f' {task.canonical}'
    for hidden in splits.hidden_tests(task, 'visible1'):
      assert hidden not in json.dumps(row['messages'])


@pytest.mark.slow
def test_results_are_of_three_strategies_on_the_same_problems(whole):
  found = read_csv(whole[0] / 'results.csv')
  assert [cell.strategy for cell in found] == ['direct', 'start', 'sft']
  assert {cell.budget for cell in found} == {2}
  assert len({cell.task_ids for cell in found}) == 1
  assert found[0].task_ids == tuple(
    task.task_id for task in SUITE.load('validation')[:3]
  )


# The same `Run` is killed by tests of mbpp_ppo and of two processes every time.
@pytest.mark.slow
def test_kill_and_resume_equals_the_uninterrupted_run(inputs, whole, tmp_path):
  path = tmp_path / 'metrics.jsonl'
  arguments = command(inputs, tmp_path)
  commands.kill_when(lambda: commands.has_rows(path, 3), *arguments)
  assert not (tmp_path / 'results.json').exists()
  result = commands.run_fresh(*arguments)
  assert result.returncode == 0, result.stderr[-3000:]
  assert rows(tmp_path) == rows(whole[0])
  pairs = zip(
    leaves(tmp_path / 'model'), leaves(whole[0] / 'model'), strict=True
  )
  assert all(np.array_equal(a, b) for a, b in pairs)
  csv = 'results.csv'
  assert (tmp_path / csv).read_text() == (whole[0] / csv).read_text()


@pytest.mark.slow
def test_another_config_in_the_same_workdir_is_refused(inputs, whole):
  result = run(inputs, whole[0], '--config.supervised.lr=0.5')
  assert result.returncode != 0
  assert 'supervised.lr' in result.stderr and '0.5' in result.stderr


@pytest.mark.parametrize(
  ('flags', 'message'),
  mostly_slow(
    (
      (("traces=('/nowhere.jsonl',)",), 'no trace at /nowhere'),
      (("traces=('{cut}',)",), '{cut}:1: no JSON'),
      (
        ("traces=('{inputs}/test.jsonl',)",),
        'of 8 that pass, 0 are of training problems',
      ),
      (('collect.rewrites=-1',), 'rewrites=-1: expected 0 or more'),
      (('rewriter.backend=http',), 'expected jax'),
      (('rewriter.model=/nowhere',), '/nowhere'),
      (('edits.feedback=some',), "'some'"),
      (('supervised.row_length=4',), 'row_length=4'),
      (
        ('traces=()', "collect.strategies=('best',)"),
        "('best',): expected some of direct",
      ),
    ),
    {(('supervised.row_length=4',), 'row_length=4')},
  ),
)
def test_bad_input_is_one_clear_message(inputs, tmp_path, flags, message):
  cut = tmp_path / 'cut.jsonl'
  cut.write_text('{"task_id": "minicode/')
  named = {'cut': cut, 'inputs': inputs}
  flags = [f'--config.{flag.format(**named)}' for flag in flags]
  assert_refused(inputs, tmp_path / 'run', flags, message.format(**named))


@pytest.mark.slow
def test_rewrites_that_help_nobody_are_one_clear_message(inputs, tmp_path):
  flags = '--config.traces=()', '--config.collect.rewrites=2'
  message = 'none of 2 rewrites of each of 64 statements'
  assert_refused(inputs, tmp_path, flags, message)


def assert_refused(inputs, workdir, flags, message):
  result = run(inputs, workdir, *flags)
  assert result.returncode != 0, flags
  assert message in result.stderr, (flags, result.stderr[-800:])
  assert 'Traceback' not in result.stderr, flags
  assert not (workdir / 'model').exists()
