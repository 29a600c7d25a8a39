"""A replayed run is the run, and what was not recorded is an error."""

from __future__ import annotations

import json
import sqlite3

import pytest

from promptrl_jax.evaluation.play import Entrant, LineUp, Plan
from promptrl_jax.llm.ask import AskConfig, coder_prompt
from promptrl_jax.llm.attempt import CODER, REWRITER, Execute
from promptrl_jax.llm.backend import BackendError, Message, Request
from promptrl_jax.llm.cache import CachedBackend
from promptrl_jax.llm.load import BackendConfig, load_backend
from promptrl_jax.prompts.templates import RewritePrompt
from promptrl_jax.strategies.base import TextStrategy
from promptrl_jax.testing import tiny
from promptrl_jax.testing.scripted import ScriptedBackend

TASKS = tiny.tasks(4, 'test')
ASK = AskConfig(sample_temperature=0.7)


def rewrite_and_ask_twice(attempt, tools):
  problem = attempt.problem
  prompt = RewritePrompt(problem.statement, problem.entry_point)
  statement = yield from tools.rewrite(attempt, prompt)
  prompt = coder_prompt(attempt, statement)
  code = yield from tools.write_program(attempt, prompt)
  if not (yield Execute(code)).passed:
    code = yield from tools.write_program(attempt, prompt)
  return code


def play(coder, rewriter, pool, trace_path):
  """Plays a strategy; returns its cells and the rows of its trace."""
  backends = {REWRITER: CachedBackend(rewriter), CODER: CachedBackend(coder)}
  line_up = LineUp(backends, pool, ASK)
  entrants = {'twice': Entrant.of(TextStrategy(rewrite_and_ask_twice))}
  plan = Plan('visible1', 4, TASKS, (0, 1))
  cells = line_up.play(entrants, [plan], trace_path)
  rows = [json.loads(line) for line in trace_path.read_text().splitlines()]
  return cells['visible1'], rows


def recorded(folder, pool):
  """A run with models whose samples depend on the seed."""
  programs = ('\n  return x', '\n  return x + 1', '\n  return None')
  coder = ScriptedBackend(lambda request: programs[request.seed % 3])
  rewriter = ScriptedBackend(lambda r: f'Some words, {len(str(r.messages))}.')
  return play(coder, rewriter, pool, folder / 'trace.jsonl')


def replayed(path, role='', **options):
  options = {'role': role, **options}
  return load_backend(BackendConfig('replay', str(path), options=options))


def test_a_replayed_trace_is_the_run_again(pool, tmp_path):
  cells, rows = recorded(tmp_path, pool)
  assert {row['action'] for row in rows} == {'execute', 'ask'}
  coder = replayed(tmp_path / 'trace.jsonl', 'coder')
  rewriter = replayed(tmp_path / 'trace.jsonl', 'rewriter')
  again, rows_again = play(coder, rewriter, pool, tmp_path / 'again.jsonl')
  assert rows_again == rows
  for old, new in zip(cells, again, strict=True):
    for column in ('passed', 'soft', 'calls', 'completion_tokens'):
      assert (getattr(old, column) == getattr(new, column)).all(), column


def test_a_replayed_cache_gives_what_was_bought_and_nothing_else(tmp_path):
  path = tmp_path / 'cache.sqlite'
  model = ScriptedBackend(lambda r: f're: {r.messages[0].content} {r.seed}')
  asked = [ask('a', temperature=1.0, seed=s, scope='test') for s in range(3)]
  bought = CachedBackend(model, path, identity='x').complete(asked)
  backend = replayed(path)
  assert backend.name == 'replay of scripted'
  assert backend.complete(asked) == bought
  with pytest.raises(BackendError, match=r"no answer .*'scope': 'train'"):
    backend.complete([ask('a', temperature=1.0, scope='train')])
  # The replay may itself stand behind that cache, and be replayed again.
  CachedBackend(backend, path, identity='replay').complete(asked)
  assert replayed(path).complete(asked) == bought


def ask(text, **settings):
  return Request((Message('user', text),), **settings)


def test_a_request_that_was_not_recorded_is_named(pool, tmp_path):
  recorded(tmp_path, pool)
  backend = replayed(tmp_path / 'trace.jsonl', 'coder')
  with pytest.raises(BackendError) as caught:
    backend.complete([ask('What is the capital of Peru?', max_tokens=9)])
  assert "'max_tokens': 9" in str(caught.value)
  assert "ends in 'What is the capital of Peru?'" in str(caught.value)


def test_greedy_requests_are_found_whatever_their_seed(tmp_path):
  path = tmp_path / 'trace.jsonl'
  path.write_text(json.dumps(row(seed=5)) + '\n')
  backend = replayed(path)
  assert backend.complete([ask('a', seed=8)])[0].text == 'A'
  with pytest.raises(BackendError, match='has no answer'):
    backend.complete([ask('a', seed=8, temperature=0.1)])


def row(text='A', role='coder', **settings):
  """A row of a trace with one request."""
  sent = {'role': role, 'messages': [{'role': 'user', 'content': 'a'}]}
  sent |= {'temperature': 0.0, 'top_p': 1.0, 'max_tokens': 128, 'stop': []}
  answer = {'text': text, 'prompt_tokens': 1, 'completion_tokens': 1}
  answer['finish_reason'] = 'stop'
  return {'sent': [sent | settings], 'answers': [answer]}


@pytest.mark.parametrize(
  ('rows', 'options', 'message'),
  [
    ([row(), row('B')], {}, r'trace.jsonl:2: .* has two answers'),
    ([row()], {'role': 'critic'}, "no request to the role 'critic'"),
    ([], {}, 'holds no request'),
    ([{'sent': row()['sent']}], {}, 'from before completions were recorded'),
    ([{'step': 1}], {}, r"trace.jsonl:1: cannot be replayed \('sent'\)"),
    ([row()], {'rolle': 'coder'}, 'options.rolle: no such setting'),
  ],
)
def test_records_that_cannot_be_replayed_are_refused(
  tmp_path, rows, options, message
):
  path = tmp_path / 'trace.jsonl'
  path.write_text(''.join(json.dumps(r) + '\n' for r in rows))
  with pytest.raises(ValueError, match=message):
    replayed(path, **options)


def test_two_models_in_one_trace_are_told_apart_by_their_role(tmp_path):
  path = tmp_path / 'trace.jsonl'
  rows = [row(), row('B', role='rewriter')]
  path.write_text(''.join(json.dumps(r) + '\n' for r in rows))
  with pytest.raises(ValueError, match='options.role'):
    replayed(path)
  texts = [
    replayed(path, role).complete([ask('a')])[0].text
    for role in ('coder', 'rewriter')
  ]
  assert texts == ['A', 'B']


def test_caches_that_do_not_say_which_model_is_meant_are_refused(tmp_path):
  path = tmp_path / 'cache.sqlite'
  models = {}
  for name in ('one', 'two'):
    models[name] = ScriptedBackend(lambda r, name=name: name)
    models[name].name = name
    CachedBackend(models[name], path, identity=f'of {name}').complete(
      [ask('a')]
    )
  with pytest.raises(ValueError, match="name 'one', identity 'of one'"):
    replayed(path)
  assert replayed(path, name='two').complete([ask('a')])[0].text == 'two'
  CachedBackend(models['two'], path, identity='other').complete([ask('b')])
  with pytest.raises(ValueError, match='has 2 models'):
    replayed(path, name='two')
  backend = replayed(path, name='two', identity='other')
  assert backend.complete([ask('b')])[0].text == 'two'

  with pytest.raises(FileNotFoundError, match='no record to replay'):
    replayed(tmp_path / 'nothing.sqlite')
  (tmp_path / 'text').write_text('no database, but long enough' * 20)
  with pytest.raises(ValueError, match='no cache of completions'):
    replayed(tmp_path / 'text')
  with sqlite3.connect(tmp_path / 'old') as database:
    database.execute('PRAGMA user_version = 1')
  with pytest.raises(ValueError, match='format 1, expected 2'):
    replayed(tmp_path / 'old')
