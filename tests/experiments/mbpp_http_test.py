"""The mbpp preset against a local OpenAI-compatible stub."""

import json
import re

import pytest

from promptrl_jax.testing.fake_openai import FakeOpenAI
from promptrl_jax.testing.fake_server import Reply
from tests.experiments import commands

INSTRUCTION = 'Write Python that adds odd numbers, too.'


def right_if_even(body, program='return x + {}'):
  """Answers coder requests with a right program for even tasks only.

  It writes the others, too, under the instruction that its reflections find.
  """
  text = body['messages'][-1]['content']
  if 'is steered by the text' in text:
    return f'<text>\n{INSTRUCTION}\n</text>'
  if 'Begin with' not in text:
    return 'no rewrite today'
  found = re.search(r'add (\d+) to', text)
  amount = int(found.group(1)) if found else 0
  is_told = body['messages'][0]['content'] == INSTRUCTION
  shift = amount if is_told or amount % 2 == 0 else amount + 1
  return f'```python\ndef add(x):\n  {program.format(shift)}\n```'


def without_import(body):
  return right_if_even(body, 'return x + math.trunc({})')


@pytest.fixture
def server():
  with FakeOpenAI(right_if_even) as server:
    yield server


def write_data(path):
  """Three tasks of each split, in MBPP's form."""
  with open(path, 'w', encoding='utf-8') as file:
    for first in (601, 511, 11):
      for k in range(3):
        row = {
          'task_id': first + k,
          'text': f'Write a function to add {k} to a number {first}.',
          'code': f'def add(x):\n  return x + {k}',
          'test_list': [f'assert add({x}) == {x + k}' for x in (1, 2, first)],
          'test_setup_code': '',
        }
        file.write(json.dumps(row) + '\n')


def run(tmp_path, server, *flags):
  write_data(tmp_path / 'mbpp.jsonl')
  return commands.run(
    'experiments.mbpp_ppo',
    '--config=configs/mbpp_ppo.py:mbpp',
    f'--workdir={tmp_path / "run"}',
    f'--config.data.path={tmp_path / "mbpp.jsonl"}',
    '--config.ask.template=chat',
    '--config.controller.iterations=1',
    '--config.controller.episodes=4',
    '--config.eval.budgets=(2,)',
    '--config.eval.oracle=False',
    *commands.http_roles(server.url, retries=1, timeout_s=5.0),
    *flags,
  )


@pytest.mark.slow
def test_it_walks_mbpp_with_a_model_behind_http(tmp_path, server):
  result = run(tmp_path, server, '--config.eval.instruction_search.calls=40')
  assert result.returncode == 0, result.stderr[-3000:]
  table = json.loads((tmp_path / 'run' / 'results.json').read_text())
  assert table['header']['data_hash'].startswith('mbpp ')
  assert table['header']['import header'] == 'off'
  cells = {c['strategy']: c for c in table['tables']['visible1']['cells']}
  assert cells['direct']['pass']['mean'] == pytest.approx(2 / 3)
  found = json.loads((tmp_path / 'run' / 'instruction.json').read_text())
  assert found['text'] == INSTRUCTION and found['candidates'] == 2
  assert cells['gepa']['pass']['mean'] == 1.0
  assert cells['gepa']['optimisation_calls'] == found['calls'] == 13
  assert repr(INSTRUCTION) in table['header']['instruction of gepa']
  assert 'best_validation=1.000' in result.stderr  # of the bar


@pytest.mark.slow
def test_the_import_header_is_an_option_that_the_report_names(tmp_path, server):
  server.answer_fn = without_import
  result = run(tmp_path, server, '--config.pool.import_header')
  assert result.returncode == 0, result.stderr[-3000:]
  table = json.loads((tmp_path / 'run' / 'results.json').read_text())
  assert '- import header: on' in (tmp_path / 'run' / 'results.md').read_text()
  cells = {c['strategy']: c for c in table['tables']['visible1']['cells']}
  assert cells['direct']['pass']['mean'] == pytest.approx(2 / 3)


def test_a_dead_endpoint_is_an_error_and_not_a_zero(tmp_path, server):
  server.answer_fn = lambda body: Reply(500)
  result = run(tmp_path, server)
  assert result.returncode != 0
  assert '500' in result.stderr
  assert 'Traceback' not in result.stderr
  assert not (tmp_path / 'run' / 'results.json').exists()


def asked(server):
  """The different requests that a server had: one that is slow comes twice."""
  return {json.dumps(body, sort_keys=True) for body in server.bodies}


@pytest.mark.slow
def test_a_cap_on_calls_ends_the_run_and_a_higher_one_goes_on(tmp_path, server):
  cache = f'--config.cache={tmp_path / "cache.sqlite"}'
  flags = (cache, '--config.eval.bandits=False')
  result = run(tmp_path, server, *flags, '--config.spend.calls=50')
  assert result.returncode != 0
  assert 'spend.calls=50: ' in result.stderr
  assert 'Traceback' not in result.stderr
  assert 'candidates that 2 calls per problem buy: direct 1' in result.stdout
  assert 0 < len(asked(server)) <= 50
  assert not (tmp_path / 'run' / 'results.json').exists()

  result = run(tmp_path, server, *flags, '--config.spend.calls=5000')
  assert result.returncode == 0, result.stderr[-3000:]
  ledger = json.loads((tmp_path / 'run' / 'ledger.json').read_text())
  spent = sum(usage['calls'] for usage in ledger.values())
  # No answer was paid for twice, and both runs are in one ledger.
  assert len(asked(server)) == spent


@pytest.mark.parametrize(
  ('flags', 'message'),
  [
    (('--config.spend.dollars=1.0',), "needs the price of 'stub'"),
    (('--config.spend.calls=3',), 'fewer than 3 candidates: '),
    (('--config.spend.dry_run',), 'dry run: '),
  ],
)
def test_a_run_that_cannot_or_may_not_pay_asks_nothing(
  tmp_path, server, flags, message
):
  result = run(tmp_path, server, *flags)
  assert result.returncode != 0
  assert message in result.stderr
  assert 'Traceback' not in result.stderr
  assert not server.bodies
