"""A comparison of strategies that ask in words, with a model behind HTTP."""

import collections

import pytest

from promptrl_jax.evaluation.output import read_jsonl
from promptrl_jax.evaluation.play import Entrant, LineUp, Plan
from promptrl_jax.llm.ask import AskConfig
from promptrl_jax.llm.attempt import CODER, REWRITER
from promptrl_jax.llm.backend import Message, Request
from promptrl_jax.strategies.base import named
from promptrl_jax.tasks.load import load_tasks
from promptrl_jax.tasks.task_set import DataConfig
from promptrl_jax.testing.fake_openai import FakeOpenAI
from promptrl_jax.testing.instructed import InstructedBackend, kind_of
from promptrl_jax.training import workdir
from tests.experiments import commands
from tests.experiments.mbpp_http_test import write_data
from tests.golden.strategies import in_turn, parents_of

# Rivals of which the table here has no need.
WITHOUT = (
  *('best_open_loop', 'single_list', 'hand_rule', 'random', 'best_of_b'),
  *('best_of_b_tuned', 'greedy_first', 'greedy_first_tuned'),
  *('lexical', 'semantic', 'repair'),
)
HINT = 'The sum is right, but its sign is not.'
LEARNT = 'The argument has to be part of what comes back.'


def reworded(kind):
  return lambda request, number: f'<task>Add to x, by {kind} {number}.</task>'


ANSWERS = {
  'tests': in_turn('assert add(5) == 6\nassert add(7) == 8'),
  'reflect': in_turn(HINT),
  'elaborate': reworded('elaborate'),
  'mutate': reworded('mutate'),
  'cross': lambda request, number: f'<task>{merged(request)}</task>',
  # None is right, and all are different.
  'program': lambda request, number: (
    f'```python\ndef add(x):\n  return -{number}\n```'
  ),
}


def merged(request):
  return ' '.join(parents_of(request))


class Instructed:
  """Answers what a server is asked in words.

  Attributes:
    asked: requests by kind.
  """

  def __init__(self):
    self.asked = collections.defaultdict(list)

  def __call__(self, body):
    request = Request(tuple(Message(**m) for m in body['messages']))
    kind = kind_of(request)
    self.asked[kind].append(request)
    return ANSWERS[kind](request, len(self.asked[kind]))

  def shown(self, kind):
    """The last messages of all requests of a kind."""
    return [request.messages[-1].content for request in self.asked[kind]]


@pytest.fixture
def model():
  return Instructed()


def run(job, folder, model, strategy, budget, *flags):
  write_data(folder / 'mbpp.jsonl')
  with FakeOpenAI(model) as server:
    return commands.run(
      f'experiments.{job}',
      f'--config=configs/{job}.py:mbpp',
      f'--workdir={folder / "run"}',
      f'--config.data.path={folder / "mbpp.jsonl"}',
      '--config.ask.template=chat',
      f'--config.eval.budgets=({budget},)',
      '--config.eval.resamples=100',
      f"--config.eval.strategies=('{strategy}',)",
      *commands.http_roles(server.url, retries=0, timeout_s=10.0),
      *flags,
    )


def compare(folder, model, strategy, budget, *flags):
  return run(
    *('compare', folder, model, strategy, budget),
    '--config.seeds=1',
    f'--config.subject={strategy}',
    f'--config.eval.without={WITHOUT}',
    *flags,
  )


def evaluate(folder, model, strategy, budget, *flags):
  """Plays published controllers, too, which the job cannot leave out."""
  return run(
    *('mbpp_ppo', folder, model, strategy, budget),
    *('--mode=eval', '--controllers=docs/results/mbpp', '--first=1'),
    '--config.examples=words',
    '--config.eval.oracle=False',
    f'--config.eval.without={(*WITHOUT, "fewshot_tuned", "best_fixed")}',
    *flags,
  )


@pytest.mark.slow
def test_epic_words_has_a_model_mutate_and_cross_statements(tmp_path, model):
  result = compare(tmp_path, model, 'epic_words', 24)
  assert result.returncode == 0, result.stderr[-3000:]
  bought = 'candidates that 24 calls per problem buy: direct 1, epic_words 12'
  assert bought in result.stdout
  rows = read_jsonl(tmp_path / 'run' / 'trace.jsonl')
  populations = [r['candidates'] for r in rows if r['action'] == 'generation']
  assert {one['operator'] for part in populations for one in part} == {
    *('original', 'elaborate', 'survive', 'mutate', 'cross')
  }
  # Programs are asked for in the words of children.
  programs = '\n'.join(model.shown('program'))
  assert len(model.asked['mutate']) >= 3 and 'by mutate' in programs
  assert any(merged(one) in programs for one in model.asked['cross'])


@pytest.fixture
def trace_of(pool, tmp_path):
  """Plays a strategy on a split; returns the path of the trace."""

  def play(strategy, split):
    write_data(tmp_path / 'mbpp.jsonl')
    data = DataConfig('mbpp', str(tmp_path / 'mbpp.jsonl'))
    backend = InstructedBackend(ANSWERS | {'reflect': in_turn(LEARNT)})
    line_up = LineUp(
      {REWRITER: backend, CODER: backend}, pool, AskConfig(template='chat')
    )
    tasks = load_tasks(data, [split])[split]
    plans = [Plan('visible1', budget, tasks, [0]) for budget in (2, 4)]
    path = tmp_path / f'{split}.jsonl'
    line_up.play({strategy: Entrant.of(named(strategy))}, plans, path)
    return path

  return play


@pytest.mark.parametrize(
  ('play', 'folder'),
  [
    (compare, ''),
    pytest.param(
      *(evaluate, 'eval/test_best_all_first_1'), marks=pytest.mark.slow
    ),
  ],
)
def test_reflections_on_training_problems_are_shown_and_were_paid_for(
  tmp_path, model, trace_of, play, folder
):
  flag = f'--config.eval.reflections={trace_of("reflexion", "train")}'
  result = play(tmp_path, model, 'reflexion', 4, flag)
  assert result.returncode == 0, result.stderr[-3000:]
  assert len(model.asked['reflect']) == 3
  after = [text for text in model.shown('program') if HINT in text]
  assert len(after) == 3 and all(LEARNT in text for text in after)
  table = workdir.results(tmp_path / 'run' / folder)['tables']['visible1']
  paid = {c['strategy']: c['optimisation_calls'] for c in table['cells']}
  # Tests, two programs and a reflection for each problem; the first program is
  # the same greedy call at both budgets.
  assert (paid['direct'], paid['reflexion']) == (0, 3 * 4)


def test_a_comparison_goes_on_with_the_same_reflections_alone(
  tmp_path, model, trace_of
):
  path = trace_of('reflexion', 'train')
  flag = f'--config.eval.reflections={path}'
  (tmp_path / 'run').mkdir()
  (tmp_path / 'run' / 'stop').touch()
  first = compare(tmp_path, model, 'reflexion', 4, flag)
  assert first.returncode == 0, first.stderr[-3000:]
  path.write_text(path.read_text().replace(LEARNT, 'Another hint.'))
  second = compare(tmp_path, model, 'reflexion', 4, flag)
  assert second.returncode == 1
  assert 'models.learned' in second.stderr.splitlines()[-1]


REFUSED = [
  (compare, 'reflexion', None, 'no trace at nowhere: expected the trace.jsonl'),
  (compare, 'reflexion', ('best_of_n', 'train'), 'no row has a reflection'),
  (compare, 'reflexion', ('reflexion', 'test'), 'on 3 problems that are'),
  (compare, 'reflexion', ('reflexion', 'validation'), 'played (mbpp/511, ...)'),
  (evaluate, 'reflexion', ('reflexion', 'test'), 'played (mbpp/11, ...)'),
  (compare, 'epic_words', ('reflexion', 'train'), 'some of immediate_refl'),
]


@pytest.mark.parametrize(('play', 'strategy', 'traced', 'message'), REFUSED)
def test_reflections_that_do_not_fit_are_refused_before_any_call(
  tmp_path, model, trace_of, play, strategy, traced, message
):
  path = trace_of(*traced) if traced else 'nowhere'
  flag = f'--config.eval.reflections={path}'
  result = play(tmp_path, model, strategy, 4, flag)
  assert result.returncode == 1
  assert message in result.stderr.splitlines()[-1]
  assert 'Traceback' not in result.stderr
  assert not model.asked and not (tmp_path / 'run').exists()
