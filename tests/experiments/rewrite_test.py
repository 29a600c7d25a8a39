"""PRewrite from the command line: embedded models, and models behind HTTP."""

import json
import re

import pytest

from promptrl_jax.testing.fake_openai import FakeOpenAI
from promptrl_jax.testing.fake_server import Reply
from tests.experiments import commands

SMOKE = '--config=configs/rewrite.py:smoke'


def run(workdir, *flags, start=commands.run):
  return start(
    'experiments.rewrite',
    f'--workdir={workdir}',
    *flags,
    '--config.eval.resamples=200',
  )


def lines(path):
  return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_the_smoke_walk_rewrites_chooses_and_measures(tmp_path):
  result = run(tmp_path / 'a', SMOKE)
  assert result.returncode == 0, result.stderr[-3000:]
  table = json.loads((tmp_path / 'a' / 'results.json').read_text())['table']
  assert table['PRewrite-S']['dev'] >= table['initial']['dev']
  assert (
    table['PRewrite-S']['test']['low'] <= table['PRewrite-S']['test']['mean']
  )
  chosen = lines(tmp_path / 'a' / 'instructions.jsonl')
  assert len(chosen) == 12
  for row in chosen:
    assert row['PRewrite-S']['dev'] >= row['initial']['dev']
  trace = lines(tmp_path / 'a' / 'trace.jsonl')
  assert len(trace) == 12 * (1 + 4)
  # With its cache, once more: nothing is asked.
  cached = run(tmp_path / 'a', SMOKE)
  assert 'task model   0 answers' in cached.stdout


@pytest.mark.slow
def test_another_process_writes_the_same_bytes(tmp_path):
  for folder, start in (('a', commands.run), ('b', commands.run_fresh)):
    result = run(tmp_path / folder, SMOKE, start=start)
    assert result.returncode == 0, result.stderr[-3000:]
  for name in ('instructions.jsonl', 'trace.jsonl'):
    written = [(tmp_path / folder / name).read_bytes() for folder in 'ab']
    assert written[0] == written[1]


def answer(body):
  """A rewriter that appends its seed, and a model that obeys the third."""
  content = body['messages'][-1]['content']
  if body['model'] == 'rewriter':
    seed = body['seed'] if body['temperature'] else 'greedy'
    return f'"{content.split("Instruction: ")[1]} Try {seed}."'
  instruction, given = content.split('\nWord: ')
  return given[::-1] if instruction.endswith('Try 3.') else given


@pytest.fixture
def server():
  with FakeOpenAI(answer) as server:
    yield server


def run_http(tmp_path, server, *flags, task='qa'):
  for name, words in (
    ('dev', ('secret', 'abc', 'de')),
    ('test', ('hidden', 'fg')),
  ):
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
    text = ''.join(json.dumps(row) + '\n' for row in rows)
    (tmp_path / f'{name}.jsonl').write_text(text)
  models = [
    f'--config.{role}.{field}={value}'
    for role, model in (('rewriter', 'rewriter'), ('task_model', 'task'))
    for field, value in (
      ('http.base_url', server.url),
      ('model', model),
      ('http.max_retries', 0),
      ('http.timeout_s', 5.0),
    )
  ]
  return run(
    tmp_path / 'run',
    '--config=configs/rewrite.py:jsonl',
    f'--config.data.options.dev={tmp_path / "dev.jsonl"}',
    f'--config.data.options.test={tmp_path / "test.jsonl"}',
    *models,
    *flags,
  )


def test_it_rewrites_one_instruction_with_models_behind_http(tmp_path, server):
  result = run_http(tmp_path, server)
  assert result.returncode == 0, result.stderr[-3000:]
  assert 'PRewrite-S, dev 1.000:\nSpell backwards. Try 3.' in result.stdout
  assert 'PRewrite-I, dev 0.000:\nSpell backwards. Try greedy.' in result.stdout
  table = json.loads((tmp_path / 'run' / 'results.json').read_text())['table']
  assert table['PRewrite-S']['test']['mean'] == 1.0
  assert table['PRewrite-S']['gain']['mean'] == 1.0
  answers = [b for b in server.bodies if b['model'] == 'task']
  assert {b['temperature'] for b in answers} == {0.0}
  # 12 candidates: initial, greedy and ten samples; two and the best on test.
  assert len(answers) == 12 * 3 + 3 * 2

  asked = len(server.bodies)
  assert run_http(tmp_path, server).returncode == 0
  assert len(server.bodies) == asked


def test_given_instructions_alone_are_measured_and_nothing_is_rewritten(
  tmp_path, server
):
  result = run_http(
    tmp_path,
    server,
    '--config.strategies=()',
    "--config.eval.given=('Try 3.', '')",
  )
  assert result.returncode == 0, result.stderr[-3000:]
  table = json.loads((tmp_path / 'run' / 'results.json').read_text())['table']
  assert list(table) == ['initial', "given 'Try 3.'", "given ''"]
  assert table["given 'Try 3.'"]['dev'] == 1.0
  assert table["given 'Try 3.'"]['gain']['mean'] == 1.0
  assert table["given ''"]['test']['mean'] == 0.0
  assert {body['model'] for body in server.bodies} == {'task'}


def test_the_rewriter_is_given_no_input(tmp_path, server):
  assert run_http(tmp_path, server).returncode == 0
  given = [b['messages'] for b in server.bodies if b['model'] == 'rewriter']
  given += [row['messages'] for row in lines(tmp_path / 'run' / 'trace.jsonl')]
  assert len(given) == 2 * 11
  for messages in given:
    assert not re.search('secret|abc|hidden', json.dumps(messages))


@pytest.mark.parametrize(
  ('flag', 'message'),
  [
    ('--config.rewriting.reward=perplexity', 'task cannot score a given text'),
    ('--config.rewriting.reward=bleu', "reward 'bleu': expected one of"),
    ('--config.rewriting.reward=accuracy', 'accuracy needs labels'),
    (
      '--config.rewriting.meta.family=fancy',
      "family 'fancy': expected generic_a",
    ),
    ('--config.rewrite.samples=0', 'samples=0'),
    ("--config.strategies=('X',)", "strategies=('X',): expected some of I, S"),
    ('--config.strategies=()', 'strategies=(): expected some of I, S'),
    ("--config.eval.given=('a', 'a')", "given=('a', 'a'): expected each text"),
    ('--config.eval.answers=0', 'eval.answers=0: expected 1 or more'),
    ('--config.eval.answers=2', 'they are all the same'),
    ('--config.eval.first_answer=-1', 'first_answer=-1: expected 0 or more'),
    ('--config.data.options.dev=', 'data.options.dev is empty'),
    ('--config.task_model.model=', 'no model is named'),
  ],
)
def test_bad_settings_are_refused_in_one_line(tmp_path, server, flag, message):
  result = run_http(tmp_path, server, flag)
  assert result.returncode != 0
  assert message in result.stderr
  assert 'Traceback' not in result.stderr
  assert not (tmp_path / 'run' / 'results.json').exists()


def test_a_dev_file_with_an_unknown_task_is_refused(tmp_path, server):
  result = run_http(tmp_path, server, task='poem')
  assert result.returncode != 0
  assert "dev.jsonl:1: unknown task 'poem': expected qa" in result.stderr
  assert 'Traceback' not in result.stderr
  assert server.bodies == []


def test_a_dead_endpoint_is_an_error_and_not_a_zero(tmp_path, server):
  server.answer_fn = lambda body: Reply(500)
  result = run_http(tmp_path, server)
  assert result.returncode != 0
  assert '500' in result.stderr
  assert 'Traceback' not in result.stderr
  assert not (tmp_path / 'run' / 'results.json').exists()


def test_rewrites_beyond_the_context_are_dropped_and_counted(tmp_path, server):
  # Room for the instruction and ` Try 3.`, and not for ` Try greedy.`
  words = len('Spell backwards. Try 3.\nWord: hidden')
  limit = -(-words // 3) + 4 + 8
  result = run_http(
    tmp_path,
    server,
    f'--config.task_model.http.max_context={limit}',
    '--config.ask.max_tokens=8',
  )
  assert result.returncode == 0, result.stderr[-3000:]
  found = json.loads((tmp_path / 'run' / 'results.json').read_text())
  assert found['calls']['rewrites_too_long'] == 1
  (row,) = lines(tmp_path / 'run' / 'instructions.jsonl')
  assert row['PRewrite-I']['instruction'] == 'Spell backwards.'
  assert row['PRewrite-S']['instruction'] == 'Spell backwards. Try 3.'


def test_an_initial_instruction_without_room_is_refused(tmp_path, server):
  result = run_http(tmp_path, server, '--config.task_model.http.max_context=9')
  assert result.returncode != 0
  assert "has no room for instruction 'Spell backwards.'" in result.stderr
