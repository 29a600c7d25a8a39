"""The mbpp preset against a local OpenAI-compatible stub."""

import http.server
import json
import re
import threading

import pytest

from tests.experiments import commands

INSTRUCTION = 'Write Python that adds odd numbers, too.'


class Stub(http.server.BaseHTTPRequestHandler):
  """Answers coder requests with a right program for even tasks only.

  It writes the others, too, under the instruction that its reflections find.
  """

  def do_POST(self):
    size = int(self.headers['Content-Length'])
    body = json.loads(self.rfile.read(size))
    text = body['messages'][-1]['content']
    found = re.search(r'add (\d+) to', text)
    if 'Begin with' in text:
      amount = int(found.group(1)) if found else 0
      is_told = body['messages'][0]['content'] == INSTRUCTION
      shift = amount if is_told or amount % 2 == 0 else amount + 1
      if self.server.forgets_imports:
        shift = f'math.trunc({shift})'
      reply = f'```python\ndef add(x):\n  return x + {shift}\n```'
    elif 'is steered by the text' in text:
      reply = f'<text>\n{INSTRUCTION}\n</text>'
    else:
      reply = 'no rewrite today'
    payload = json.dumps(
      {
        'choices': [{'message': {'content': reply}, 'finish_reason': 'stop'}],
        'usage': {'prompt_tokens': 11, 'completion_tokens': 7},
      }
    ).encode()
    if self.server.broken:
      self.send_response(500)
      self.end_headers()
      return
    self.send_response(200)
    self.send_header('Content-Type', 'application/json')
    self.send_header('Content-Length', str(len(payload)))
    self.end_headers()
    self.wfile.write(payload)

  def log_message(self, *unused):
    pass


@pytest.fixture
def server():
  server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Stub)
  server.broken = False
  server.forgets_imports = False
  thread = threading.Thread(target=server.serve_forever, args=(0.01,))
  thread.start()
  yield server
  server.shutdown()
  thread.join()
  server.server_close()


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
  url = f'http://127.0.0.1:{server.server_port}/v1'
  roles = [
    f'--config.{role}.{field}={value}'
    for role in ('coder', 'rewriter')
    for field, value in (
      ('backend', 'http'),
      ('http.base_url', url),
      ('model', 'stub'),
      ('http.max_retries', 1),
      ('http.timeout_s', 5.0),
    )
  ]
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
    *roles,
    *flags,
  )


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


@pytest.mark.slow
def test_the_import_header_is_an_option_that_the_report_names(tmp_path, server):
  server.forgets_imports = True
  result = run(tmp_path, server, '--config.pool.import_header')
  assert result.returncode == 0, result.stderr[-3000:]
  table = json.loads((tmp_path / 'run' / 'results.json').read_text())
  assert '- import header: on' in (tmp_path / 'run' / 'results.md').read_text()
  cells = {c['strategy']: c for c in table['tables']['visible1']['cells']}
  assert cells['direct']['pass']['mean'] == pytest.approx(2 / 3)


def test_a_dead_endpoint_is_an_error_and_not_a_zero(tmp_path, server):
  server.broken = True
  result = run(tmp_path, server)
  assert result.returncode != 0
  assert '500' in result.stderr
  assert 'Traceback' not in result.stderr
  assert not (tmp_path / 'run' / 'results.json').exists()
