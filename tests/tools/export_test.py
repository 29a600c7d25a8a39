"""The best prompts of finished runs, as files."""

import dataclasses
import json
import re

import numpy as np
import pytest

from promptrl_jax import settings
from promptrl_jax.envs.rewriting.config import RewritingConfig
from promptrl_jax.envs.rewriting.env import RewritingEnv
from promptrl_jax.evaluation import instruction_report
from promptrl_jax.evaluation.instruction_report import Scores
from promptrl_jax.evaluation.play import Entrant, LineUp, Plan
from promptrl_jax.llm.ask import AskConfig, coder_prompt
from promptrl_jax.llm.attempt import Execute
from promptrl_jax.llm.backend import Message, Request
from promptrl_jax.prompts import export as formats
from promptrl_jax.strategies import base
from promptrl_jax.tasks import instructions
from promptrl_jax.testing import tiny
from promptrl_jax.testing.scripted import ScriptedBackend
from promptrl_jax.tools import export
from promptrl_jax.types import Example
from tests.experiments import commands

TASKS = tiny.tasks(3, 'test')
ASK = AskConfig(template='chat', instruction='Write Python.')


def repair(attempt, tools):
  """Two programs, the second of which is told of the first."""
  code, feedback = '', ''
  for _ in range(2):
    prompt = coder_prompt(attempt, code=code, feedback=feedback)
    code = yield from tools.write_program(attempt, prompt)
    result = yield Execute(code)
    feedback = 'It fails.'
    if result.passed:
      break
  return code


def coder(request):
  """Solves task 0 at once, task 1 when told that it fails, task 2 never."""
  asked = request.messages[-1].content
  number = int(re.findall(r'to add (\d+) to', asked)[0])
  is_right = number == 0 or (number == 1 and 'It fails.' in asked)
  value = number if is_right else 999
  return f'```python\ndef add(x):\n  return x + {value}\n```'


@pytest.fixture
def played(tmp_path, pool):
  """The folder of a run, and the model that it asked."""
  model = ScriptedBackend(coder)
  line_up = LineUp({'rewriter': model, 'coder': model}, pool, ASK)
  line_up.play(
    {'repair': Entrant.of(base.TextStrategy(repair))},
    [Plan('visible1', 2, TASKS, [0])],
    tmp_path / 'trace.jsonl',
  )
  return tmp_path, model


def messages_of(request):
  return tuple((m.role, m.content) for m in request.messages)


def test_the_best_prompt_of_each_problem_is_what_was_sent(played):
  folder, model = played
  prompts = export.find(folder, 'repair', 2)
  assert list(prompts) == [task.task_id for task in TASKS]
  first, second = (
    [messages_of(request) for request in batch] for batch in model.batches
  )
  # The one that passes; of those that never do, the last one.
  assert list(prompts.values()) == [first[0], *second]
  again = ScriptedBackend(coder)
  for text in formats.to_openai(prompts).values():
    read = [Message(**message) for message in json.loads(text.encode())]
    again.complete([Request(tuple(read))])
  sent = [messages_of(batch[0]) for batch in again.batches]
  assert json.dumps(sent).encode() == json.dumps([first[0], *second]).encode()


def test_a_strategy_that_chooses_says_whose_prompt_it_is():
  def step(code, content, passed=True):
    sent = [
      {'role': 'coder', 'messages': [{'role': 'user', 'content': content}]}
    ]
    return {'code': code, 'sent': sent, 'visible_passed': passed}

  steps = [step('a', 'first'), step('b', 'second'), step('b', 'third')]
  assert export.best_messages(steps) == (('user', 'first'),)
  selected = {'code': None, 'sent': [], 'visible_passed': False}
  selected['submission'] = 'b'
  assert export.best_messages([*steps, selected]) == (('user', 'second'),)
  # A member of a portfolio chose among its own; another one may have ended it.
  member = selected | {'member': 'codet'}
  assert export.best_messages([*steps, member]) == (('user', 'first'),)
  none = selected | {'submission': ''}
  assert export.best_messages([*steps, none]) == (('user', 'first'),)


def test_the_command_writes_files(played):
  folder, model = played
  result = commands.run(
    'promptrl_jax.tools.export',
    *(folder, '--strategy=repair', '--budget=2', '--format=text'),
  )
  assert result.returncode == 0, result.stderr[-3000:]
  assert '6 files of 3 prompts' in result.stdout
  path = folder / 'export' / 'tiny_test_0.1_user.txt'
  sent = model.batches[0][0].messages[1].content
  assert path.read_bytes() == sent.encode()


@pytest.mark.parametrize(
  ('flags', 'reason'),
  [
    (('--strategy=ppo',), "this run has ['repair'] at [2]"),
    (('--strategy=gepa',), 'no instruction was searched'),
  ],
)
def test_what_a_run_does_not_have_is_named(played, flags, reason):
  result = commands.run('promptrl_jax.tools.export', played[0], *flags)
  assert result.returncode == 1
  assert reason in result.stderr and 'Traceback' not in result.stderr


def test_a_folder_without_a_run_is_refused(tmp_path):
  with pytest.raises(FileNotFoundError, match='finished run of rewrite'):
    export.find(tmp_path)


def in_words():
  return instructions.make_task(
    'Spell it.',
    'qa',
    '{instruction}\nInput: {input}',
    [Example('one {x}', ('eno',))],
  )


@pytest.mark.parametrize(
  'task', [in_words(), instructions.for_programs('Write it.', TASKS[:1])]
)
def test_an_instruction_is_exported_in_the_request_that_carries_it(
  task, tmp_path
):
  texts = {'initial': task.statement, 'PRewrite-S': 'Better: {input}.'}
  scores = {'initial': 0.5, 'PRewrite-S': 0.75}
  rows = instruction_report.rows(
    [task],
    {name: [text] for name, text in texts.items()},
    {name: Scores([np.array([dev])]) for name, dev in scores.items()},
  )
  lines = ''.join(json.dumps(row) + '\n' for row in rows)
  (tmp_path / 'instructions.jsonl').write_text(lines)
  results = {'config': {'ask': settings.to_mapping(ASK)}}
  (tmp_path / 'results.json').write_text(json.dumps(results))
  env = RewritingEnv(
    ScriptedBackend(coder), None, RewritingConfig(reward='score'), ASK
  )
  for strategy, text in (('', texts['PRewrite-S']), ('initial', 'It')):
    text = texts.get(strategy, text)
    ((_, found),) = export.find(tmp_path, strategy).items()
    (sent,) = env.requests(task, text)
    example = instructions.applied_to(task)[0]
    values = {'input': 'one {x}'}
    if not isinstance(example, Example):
      values = {
        'statement': example.statement,
        'signature': example.signature,
        'test': example.tests[0],
      }
    assert formats.fill(found, values) == messages_of(sent)
  with pytest.raises(ValueError, match='one of initial, PRewrite-S'):
    export.find(tmp_path, 'ppo')


def test_a_searched_instruction_is_exported(tmp_path):
  (tmp_path / 'instruction.json').write_text(json.dumps({'text': 'Think.'}))
  config = {'ask': dataclasses.asdict(ASK)}
  (tmp_path / 'config.json').write_text(
    json.dumps(
      {'format': export.workdir_lib.FORMAT, 'job': '', 'config': config}
    )
  )
  (messages,) = export.find(tmp_path, 'gepa').values()
  assert messages[0] == ('system', 'Think.')
