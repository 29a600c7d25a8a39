"""The examples of the documentation run as documented."""

import os
import pathlib
import re
import subprocess
import sys

import httpx
import pytest

from promptrl_jax.testing.fake_openai import FakeOpenAI
from tests.experiments import commands

ROOT = pathlib.Path(__file__).parents[2]


def run(name, *arguments):
  result = commands.run(f'docs.examples.{name}', *arguments)
  assert result.returncode == 0, result.stderr[-3000:]
  return result.stdout.splitlines()


@pytest.mark.parametrize(
  'path',
  sorted((ROOT / 'docs' / 'examples').glob('*.py')),
  ids=lambda p: p.stem,
)
def test_an_example_has_at_most_forty_lines(path):
  text = path.read_text(encoding='utf-8')
  code = [line for line in text.splitlines() if line.strip()]
  assert len(code) <= 40


@pytest.mark.slow
def test_a_task_set_of_questions_is_rewarded_with_the_embedded_model():
  lines = run('my_task_set')
  assert [line.split(':')[0] for line in lines] == ['trivia/0', 'trivia/1']
  assert all(0 <= float(line.split(': ')[1]) <= 1 for line in lines)


def test_a_reward_of_ones_own_rewards_embedded_rewrites():
  lines = run('my_reward')
  assert len(lines) == 4
  assert all(re.match(r'[01]\.\d\d \w+', line) for line in lines)


@pytest.mark.slow
def test_experiments_import_the_plug_in_that_a_config_names():
  script = """
from configs import mbpp_grpo
from experiments import session
from promptrl_jax.tasks import load
c = mbpp_grpo.get_config('smoke').lock()
c.plugins, c.data.name = ('docs.examples.my_task_set',), 'trivia'
c.data.path = 'docs/examples/trivia.jsonl'
c.data.train_limit = c.data.validation_limit = c.data.test_limit = 0
config = session.begin(mbpp_grpo.Config, c)
parts = load.load_tasks(config.data)
print({split: len(tasks) for split, tasks in parts.items()})
print(load.describe(config.data).split()[0])
"""
  result = subprocess.run(
    [sys.executable, '-c', script], cwd=ROOT, capture_output=True, text=True
  )
  assert result.returncode == 0, result.stderr[-3000:]
  assert result.stdout.splitlines() == [
    "{'train': 2, 'validation': 1, 'test': 1}",
    'trivia',
  ]


@pytest.mark.slow
def test_an_operator_of_ones_own_is_played():
  lines = run('my_operator')
  assert [line.split(':')[0] for line in lines] == ['keep', 'drop_asides']


@pytest.mark.slow
def test_a_strategy_of_ones_own_is_played():
  (line,) = run('my_strategy')
  assert re.match(r'repair_once: [01]\.\d{3} of 24', line)


@pytest.mark.slow
def test_a_rewriter_is_trained_with_a_reward_of_ones_own(tmp_path):
  lines = run('my_rewriter', 'minicode_rewriter', tmp_path)
  assert [line.split(':')[0] for line in lines[:-1]] == ['update 1', 'update 2']
  assert (tmp_path / 'model' / 'model.safetensors').is_file()


@pytest.mark.slow
def test_a_text_is_optimized_with_embedded_models():
  text, _, scores = run('my_text')
  assert text.startswith('Write a')
  pattern = (
    r'search examples ([01]\.\d+) -> ([01]\.\d+), held out [01]\.\d+ -> '
  )
  before, after = map(float, re.match(pattern, scores).groups())
  assert before <= after


def run_script(folder, text):
  """Runs a program as a file of its own; returns what it prints."""
  script = folder / 'script.py'
  script.write_text(text)
  result = subprocess.run(
    [sys.executable, str(script)],
    cwd=ROOT,
    env=os.environ | {'PYTHONPATH': str(ROOT)},
    capture_output=True,
    text=True,
    timeout=300,
  )
  assert result.returncode == 0, result.stderr[-3000:]
  return result.stdout


def test_the_program_of_the_readme_runs(tmp_path):
  page = (ROOT / 'README.md').read_text(encoding='utf-8')
  (program,) = re.findall(r'```python\n(.*?)```', page, flags=re.DOTALL)
  printed = run_script(tmp_path, program)
  assert re.match(r'\d+% solved in \d\.\d calls', printed)


def feedback_programs(folder):
  """The programs of the page on feedback, with their stores in a folder."""
  page = (ROOT / 'docs' / 'feedback.md').read_text(encoding='utf-8')
  programs = re.findall(r'```python\n(.*?)```', page, flags=re.DOTALL)
  return [re.sub(r'(\w+\.sqlite)', rf'{folder}/\1', text) for text in programs]


def test_the_ten_lines_of_the_page_on_feedback_run(tmp_path):
  program, _ = feedback_programs(tmp_path)
  assert len([line for line in program.splitlines() if line.strip()]) <= 10
  assert run_script(tmp_path, program) == '0.75\n'
  assert (tmp_path / 'feedback.sqlite').is_file()


def test_a_person_answers_the_program_of_the_page_on_feedback(tmp_path):
  pytest.importorskip('uvicorn', reason='the extra serve is not installed')
  _, program = feedback_programs(tmp_path)
  script = subprocess.Popen(
    [sys.executable, '-c', program],
    cwd=ROOT,
    env=os.environ | {'PYTHONPATH': str(ROOT)},
    stdout=subprocess.PIPE,
    text=True,
  )
  assert script.stdout
  url = httpx.URL(script.stdout.readline().strip())
  with httpx.Client(base_url=url.copy_with(query=None)) as browser:
    assert browser.get(url).status_code == 303
    asked = browser.get('/api/questions', params={'wait_s': 20, 'seen': ''})
    while not asked.json()['questions']:
      asked = browser.get('/api/questions', params={'wait_s': 1})
    first, second = asked.json()['questions'][0]['responses']
    if first['text'] != 'Scattering.':
      first, second = second, first
    event = {'id': 'e', 'kind': 'preference', 'value': 'a', 'at': 1.0}
    event |= {'response_id': first['id'], 'other_id': second['id']}
    reply = browser.post('/api/events', json={'events': [event]})
    assert reply.json() == {'stored': ['e'], 'known': []}
  printed, _ = script.communicate(timeout=60)
  assert (script.returncode, printed) == (0, '1.0\n')


def spell(body):
  """Answers as a model that spells words backwards once it is told to."""
  asked = [message['content'] for message in body['messages']]
  reply = asked[-1]
  if 'is steered by the text' in reply:
    assert 'Feedback:\nanswered ' in reply
    return '<text>\nSpell it backwards.\n</text>'
  return reply[::-1] if 'backwards' in asked[0] else reply


def test_the_ten_lines_of_the_page_on_optimizing_run(tmp_path):
  page = (ROOT / 'docs' / 'optimize.md').read_text(encoding='utf-8')
  ten_lines, export = re.findall(r'```python\n(.*?)```', page, flags=re.DOTALL)
  assert len([line for line in ten_lines.splitlines() if line.strip()]) <= 10
  program = f'{ten_lines}\n{export}'
  program = program.replace("'prompts'", f"'{tmp_path / 'prompts'}'")
  with FakeOpenAI(spell) as server:
    program = program.replace('http://127.0.0.1:11434/v1', server.url)
    printed = run_script(tmp_path, program)
  assert printed.startswith('Spell it backwards.\n')
  assert '0.000 -> 1.000, held out 0.000 -> 1.000; 1 candidates' in printed
  (exported,) = (tmp_path / 'prompts').iterdir()
  assert 'Spell it backwards.' in exported.read_text()


def test_the_programs_of_the_page_on_evolution_run(tmp_path):
  page = (ROOT / 'docs' / 'evolution.md').read_text(encoding='utf-8')
  programs = re.findall(r'```python\n(.*?)```', page, flags=re.DOTALL)
  assert run_script(tmp_path, '\n'.join(programs)).splitlines() == [
    '2 You are a tutor. Be brief. Be brief.',
    '0: You are a tutor.',
    '└─ 1: You are a tutor. Be brief.',
    '   └─ 2: You are a tutor. Be brief. Be brief.',
    'You are a tutor. Give an example. 0.5 False False 1',
    '2.0',
    *('You are a tutor.', '', 'Use bullets.', '', 'Be kind.'),
  ]


def test_the_lines_of_the_page_on_the_loop_run(tmp_path):
  page = (ROOT / 'docs' / 'hybrid.md').read_text(encoding='utf-8')
  (program,) = re.findall(r'```python\n(.*?)```', page, flags=re.DOTALL)
  rating, satisfaction = run_script(tmp_path, program).split()
  assert 1 <= int(rating) <= 5 and 0.5 < float(satisfaction) < 0.95


@pytest.mark.slow
def test_the_five_samples_of_the_page_on_rlprompt_run(tmp_path):
  page = (ROOT / 'docs' / 'rlprompt.md').read_text(encoding='utf-8')
  programs = re.findall(r'```python\n(.*?)```', page, flags=re.DOTALL)
  assert len(programs) == 5
  program = '\n'.join(programs)
  path = tmp_path / 'ratings.sqlite'
  program = program.replace('ratings.sqlite', str(path))
  lines = run_script(tmp_path, program).splitlines()
  assert lines[:2] == [
    '1 Summarize this text in one sentence.',
    'Write a haiku about rain. 0.5',
  ]
  assert re.match(r'http://127\.0\.0\.1:\d+/\?token=\S+$', lines[2])
  assert lines[3] == '0.75' and path.is_file()
  (answer,) = [line for line in lines if line.endswith(' stop')]
  assert answer.startswith('It describes how')
  assert 'init main refinement 4' in lines


@pytest.mark.slow
def test_the_ten_lines_of_the_page_on_gpro_run(tmp_path):
  page = (ROOT / 'docs' / 'gpro.md').read_text(encoding='utf-8')
  (program,) = re.findall(r'```python\n(.*?)```', page, flags=re.DOTALL)
  lines = [line for line in program.splitlines() if line.strip()]
  assert len([line for line in lines if 'import' not in line]) <= 10
  step, liked = run_script(tmp_path, program).split()
  assert int(step) == 20 and float(liked) > 0.7


def test_the_recipes_of_the_page_on_extending_run(tmp_path):
  page = (ROOT / 'docs' / 'extend.md').read_text(encoding='utf-8')
  recipes = re.findall(r'```python\n(.*?)```', page, flags=re.DOTALL)
  assert len(recipes) == 6
  check = """
from promptrl_jax.llm import load as llm_load
from promptrl_jax.operators import OPERATORS
from promptrl_jax.rewards.registry import REWARDS
from promptrl_jax.rl.policy_losses import POLICY_LOSSES
from promptrl_jax.strategies.base import STRATEGIES
from promptrl_jax.tasks.load import TASK_SETS, load_tasks
from promptrl_jax.tasks.task_set import DataConfig

assert 'shorten' in OPERATORS and 'ask_twice' in STRATEGIES
assert 'brief' in REWARDS and 'unclipped' in POLICY_LOSSES
backend = llm_load.load_backend(llm_load.BackendConfig('echo', ''))
assert backend.name == 'echo'
(task,) = load_tasks(DataConfig(name='capitals'), only=('train',))['train']
print(task.statement)
"""
  printed = run_script(tmp_path, '\n'.join([*recipes, check]))
  assert printed == 'Capital of Peru?\n'
