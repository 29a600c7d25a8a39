"""Training of PRewrite as a user runs it: whole, killed, resumed, bad input."""

import dataclasses
import json
import pathlib
import re

import jax
import numpy as np
import pytest

from promptrl_jax.models import pretrained
from promptrl_jax.testing import tiny
from promptrl_jax.testing.fake_openai import FakeOpenAI
from tests.experiments import commands

UPDATES = 4
WORDS = {
  'train': ('secret', 'abc', 'de', 'fgh'),
  'dev': ('ij', 'hidden'),
  'test': ('unseen', 'kl'),
}


def answer(body):
  """Spells backwards if the instruction has an odd length."""
  instruction, given = body['messages'][-1]['content'].rsplit('\nWord: ', 1)
  return given[::-1] if len(instruction) % 2 else given


@pytest.fixture(scope='module')
def server():
  with FakeOpenAI(answer) as server:
    yield server


@pytest.fixture(scope='module')
def inputs(tmp_path_factory):
  """A tiny rewriter with random parameters, and files of one task."""
  folder = tmp_path_factory.mktemp('inputs')
  encoder = tiny.tokenizer()
  config = dataclasses.replace(
    tiny.CONFIG,
    max_positions=1024,
    bos_token_id=encoder.bos_id,
    # Every third token ends a rewrite, so that random ones do end.
    eos_token_ids=(encoder.eos_id, *range(40, 300, 3)),
    pad_token_id=encoder.pad_id,
  )
  pretrained.save_pretrained(
    folder / 'model', config, tiny.params(), encoder, 'float32'
  )
  for split, words in WORDS.items():
    write(folder / f'{split}.jsonl', words)
  return folder


def write(path, words, task='qa'):
  rows = [
    {
      'instruction': 'Spell backwards.',
      'input': word,
      'output': word[::-1],
      'task': task,
      'template': '{instruction}\nWord: {input}',
    }
    for word in words
  ]
  path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
  return path


def command(inputs, server, workdir, *flags):
  return [
    'experiments.prewrite',
    f'--workdir={workdir}',
    '--config=configs/prewrite.py:jsonl',
    *(f'--config.data.options.{name}={inputs / name}.jsonl' for name in WORDS),
    f'--config.rewriter.model={inputs / "model"}',
    f'--config.task_model.http.base_url={server.url}',
    '--config.task_model.model=task',
    '--config.task_model.http.max_retries=0',
    '--config.train.parameters=full',
    '--config.train.reference.kind=frozen',
    f'--config.train.iterations={UPDATES}',
    '--config.train.optimizer.warmup=1',
    '--config.train.optimizer.lr=0.01',
    '--config.train.rollout.group=4',
    '--config.train.rollout.new_tokens=8',
    '--config.train.packing.lane_size=8',
    '--config.train.packing.prompt_size=256',
    '--config.train.rows_per_piece=1',
    '--config.rewrite.samples=2',
    '--config.rewriting.examples=2',
    '--config.validate_every=2',
    '--config.checkpoint_every=1',
    '--config.eval.resamples=200',
    *flags,
  ]


def run(*arguments):
  return commands.run(*command(*arguments))


@pytest.fixture(scope='module')
def whole(inputs, server, tmp_path_factory):
  """A run that nothing interrupted."""
  workdir = tmp_path_factory.mktemp('whole')
  result = run(inputs, server, workdir)
  assert result.returncode == 0, result.stderr[-3000:]
  return workdir, result


def rows(workdir):
  """Metrics of the training without the times."""
  path = workdir / 'ppo' / 'seed_0' / 'metrics.jsonl'
  return [
    {k: v for k, v in json.loads(line).items() if not k.startswith('time/')}
    for line in path.read_text().splitlines()
  ]


def leaves(folder):
  _, params, _ = pretrained.load_pretrained(folder)
  return jax.tree.leaves(params)


def test_it_trains_chooses_and_measures(inputs, whole):
  workdir, result = whole
  found = rows(workdir)
  assert [row['step'] for row in found] == list(range(UPDATES))
  for row in found:
    assert all(np.isfinite(v) for v in row.values()), row
    assert 0 < row['budget/coder_calls'] <= 4 * 2
    assert row['train/value_loss'] > 0
  assert [row['step'] for row in found if 'eval/dev_reward' in row] == [1, 3]
  results = json.loads((workdir / 'results.json').read_text())
  assert list(results['table']) == [
    'initial',
    'untrained PRewrite-I',
    'untrained PRewrite-S',
    'ppo PRewrite-I',
    'ppo PRewrite-S',
  ]
  assert [(row['of'], row['over']) for row in results['compared']] == [
    ('ppo PRewrite-I', 'untrained PRewrite-I'),
    ('ppo PRewrite-S', 'untrained PRewrite-S'),
  ]
  before = leaves(inputs / 'model')
  after = leaves(workdir / 'ppo' / 'seed_0' / 'model')
  assert all(a.shape == b.shape for a, b in zip(before, after, strict=True))
  assert 'ppo seed 0 PRewrite-S, dev' in result.stdout
  assert (workdir / 'curves.png').stat().st_size > 0


def test_the_rewriter_is_given_no_input(whole):
  lines = (whole[0] / 'ppo' / 'seed_0' / 'trace.jsonl').read_text().splitlines()
  assert len(lines) == 1 + 2
  words = '|'.join(word for some in WORDS.values() for word in some)
  for line in lines:
    given = json.dumps(json.loads(line)['messages'])
    assert 'Spell backwards.' in given
    assert not re.search(rf'\b({words})\b', given)


# The same `Run` is killed by tests of mbpp_ppo and of two processes every time.
@pytest.mark.slow
def test_kill_and_resume_equals_the_uninterrupted_run(
  inputs, server, whole, tmp_path
):
  path = tmp_path / 'ppo' / 'seed_0' / 'metrics.jsonl'
  arguments = command(inputs, server, tmp_path)
  commands.kill_when(lambda: commands.has_rows(path, 2), *arguments)
  assert not (tmp_path / 'results.json').exists()
  result = commands.run_fresh(*arguments)
  assert result.returncode == 0, result.stderr[-3000:]
  assert rows(tmp_path) == rows(whole[0])
  model = pathlib.Path('ppo') / 'seed_0' / 'model'
  pairs = zip(leaves(tmp_path / model), leaves(whole[0] / model), strict=True)
  assert all(np.array_equal(a, b) for a, b in pairs)
  name = 'instructions.jsonl'
  assert (tmp_path / name).read_bytes() == (whole[0] / name).read_bytes()


@pytest.mark.slow
def test_a_training_that_no_longer_helps_is_stopped_for_good(
  inputs, server, tmp_path
):
  # Nothing is learned, so the first state stays the best.
  flags = '--config.train.optimizer.lr=0', '--config.patience=1'
  for _ in range(2):  # The second time there is nothing left to train.
    result = run(inputs, server, tmp_path, *flags)
    assert result.returncode == 0, result.stderr[-3000:]
    assert [row['step'] for row in rows(tmp_path)] == [0, 1]
  pairs = zip(
    leaves(inputs / 'model'),
    leaves(tmp_path / 'ppo' / 'seed_0' / 'model'),
    strict=True,
  )
  assert all(np.array_equal(a, b) for a, b in pairs)


def test_another_config_in_the_same_workdir_is_refused(inputs, server, whole):
  result = run(inputs, server, whole[0], '--config.train.optimizer.lr=0.5')
  assert result.returncode != 0
  assert 'optimizer.lr' in result.stderr and '0.5' in result.stderr


@pytest.mark.parametrize(
  ('flags', 'message'),
  [
    (
      ["--config.algorithms=('grpo',)", '--config.train.rollout.group=1'],
      "a group of 1 with the advantage 'grpo'",
    ),
    (
      ['--config.data.options.dev={}/empty.jsonl'],
      'empty.jsonl is empty: expected one',
    ),
    (
      ['--config.data.options.dev={}/poem.jsonl'],
      "poem.jsonl:1: unknown task 'poem'",
    ),
    (
      ['--config.train.packing.prompt_size=32'],
      'packing.prompt_size=32 is less',
    ),
    (
      ['--config.solvable_by=-1'],
      'solvable_by=-1: expected 0 for all, or more',
    ),
    (
      ['--config.solvable_by=1'],
      'none of 4 examples is solved by one of 1 answers',
    ),
    (
      ['--config.solvable_by=2'],
      'solvable_by=2: at ask.first_temperature=0 they are all the same',
    ),
    (
      ['--config.solvable_by=1', '--config.rewriting.reward=perplexity'],
      'the reward perplexity does not say whether an answer is right',
    ),
    (
      ['--config.rewriting.reward=perplexity'],
      'task cannot score a given text',
    ),
  ],
)
def test_bad_input_is_one_clear_message(
  inputs, server, tmp_path, flags, message
):
  (tmp_path / 'empty.jsonl').write_text('')
  write(tmp_path / 'poem.jsonl', ('ij',), 'poem')
  workdir = tmp_path / 'run'
  flags = [flag.format(tmp_path) for flag in flags]
  result = run(inputs, server, workdir, *flags)
  assert result.returncode != 0
  assert message in result.stderr, result.stderr[-800:]
  assert 'Traceback' not in result.stderr
  assert not (workdir / 'ppo').exists()
