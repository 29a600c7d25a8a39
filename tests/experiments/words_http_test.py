"""A comparison of strategies that ask in words, with a model behind HTTP."""

import collections

import pytest

from promptrl_jax.evaluation.output import read_jsonl
from promptrl_jax.llm.backend import Message, Request
from promptrl_jax.testing.fake_openai import FakeOpenAI
from promptrl_jax.testing.instructed import kind_of
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
