"""A global instruction is searched on programs that really run."""

import dataclasses
import re

import pytest

from promptrl_jax.evaluation import diversity, instruction_search
from promptrl_jax.evaluation.instruction_search import InstructionSearchConfig
from promptrl_jax.evaluation.play import LineUp
from promptrl_jax.execution.memo import MemoPool
from promptrl_jax.llm.ask import AskConfig
from promptrl_jax.llm.backend import BackendError
from promptrl_jax.llm.cache import CachedBackend
from promptrl_jax.strategies.texts.gepa import GepaConfig
from promptrl_jax.testing import tiny
from promptrl_jax.testing.scripted import ScriptedBackend

TRAIN, VALIDATION = tiny.tasks(6, 'train'), tiny.tasks(10, 'validation')[6:]
TEST = tiny.tasks(3, 'test')
ASK = AskConfig(template='chat', instruction='Write Python.')
CONFIG = InstructionSearchConfig(
  calls=60, gepa=GepaConfig(minibatch=2, perfect=1.0)
)
GOOD = 'Write Python. Add the number that the task names.'


def coder(request):
  """Solves a task only if it is told how."""
  system, user = (message.content for message in request.messages)
  (number,) = re.findall(r'to add (\d+) to', user)
  (signature,) = re.findall(r'Begin with: (.*)', user)
  value = number if 'Add the number' in system else '12345'
  return f'```python\n{signature}\n  return x + {value}\n```'


def writer(request):
  return f'<text>\n{GOOD}\n</text>'


def search(pool, writer=writer, coder=coder, config=CONFIG, **options):
  models = {
    'rewriter': CachedBackend(ScriptedBackend(writer)),
    'coder': CachedBackend(ScriptedBackend(coder)),
  }
  line_up = LineUp(models, pool, ASK)
  found = instruction_search.find(
    line_up,
    *(options.pop('train', TRAIN), VALIDATION, options.pop('ask', ASK), config),
    protocol='visible1',
    **options,
  )
  return found, line_up


def test_the_instruction_that_solves_more_is_found_and_played(pool):
  found, line_up = search(pool)
  assert (found.text, found.start) == (GOOD, ASK.instruction)
  assert (found.start_score, found.score) == (0.0, 1.0)
  # Four for the start; two of its minibatch, a reflection, two, four.
  assert found.calls == 4 + 2 + 1 + 2 + 4
  assert [step['kind'] for step in found.history] == ['start', 'reflect']
  (counted,) = diversity.of_search('gepa', 'visible1', found.history)
  assert (counted['operator'], counted['proposed']) == ('reflect', 1)
  assert (counted['distinct'], counted['improved']) == (1, 1)
  entrant = found.entrant(ASK)
  assert entrant.optimisation_calls == found.calls
  run = line_up.run(entrant, TEST, protocol='visible1', budget=4, seed=0)
  assert run.passed.all() and run.calls.tolist() == [1, 1, 1]
  sent = run.trace[0]['sent'][0]['messages']
  assert sent[0]['content'] == GOOD
  assert '13 calls' in found.facts()['instruction of gepa']


def test_who_watches_sees_calls_and_the_best_score_and_may_end_it(pool):
  seen = []
  search(pool, watch=lambda *now: seen.append(now))
  # The start, a minibatch of it, that of the candidate, all of the candidate.
  assert seen == [(4, 0.0), (6, 0.0), (9, 0.0), (13, 0.0)]

  def end(calls, best):
    raise InterruptedError

  with pytest.raises(InterruptedError):
    search(pool, watch=end)


def test_a_reflection_reads_training_problems_and_no_hidden_test(pool):
  prompts = []

  def reads(request):
    prompts.append(request.messages[-1].content)
    return f'<text>\nTry {len(prompts)}\n</text>'

  search(pool, writer=reads)
  assert len(prompts) > 2
  for prompt in prompts:
    shown = {int(k) for k in re.findall(r'to add (\d+) to', prompt)}
    assert shown and shown < set(range(len(TRAIN)))
    assert 'return x + 12345' in prompt and 'FAILED' in prompt
    for task in (*TRAIN, *VALIDATION):
      for hidden in task.tests[1:]:
        assert hidden not in prompt


def test_a_program_that_passes_what_is_shown_alone_is_told_so(pool):
  def memoriser(request):
    """Passes the visible test and no other."""
    user = request.messages[-1].content
    (signature,) = re.findall(r'Begin with: (.*)', user)
    (value,) = re.findall(r'assert .*== (\S+)', user)
    return f'```python\n{signature}\n  return {value}\n```'

  prompts = []

  def reads(request):
    prompts.append(request.messages[-1].content)
    return f'<text>\nTry {len(prompts)}\n</text>'

  found, _ = search(pool, writer=reads, coder=memoriser)
  assert found.score == 0.0
  assert 'passes the test that is shown, but not the others' in prompts[0]


def test_an_interrupted_search_goes_on(pool, tmp_path):
  whole, _ = search(pool)
  path = tmp_path / 'journal.json'

  def down(request):
    raise BackendError('down')

  with pytest.raises(BackendError):
    search(pool, writer=down, journal=path)

  def asked(request):
    raise AssertionError('this was paid for')

  def new_text_alone(request):
    assert request.messages[0].content == GOOD
    return coder(request)

  again, _ = search(pool, coder=new_text_alone, journal=path)
  assert again == whole
  same, _ = search(pool, writer=asked, coder=asked, journal=path)
  assert same == whole


def test_a_chat_model_starts_from_what_its_template_says(pool):
  ask = dataclasses.replace(ASK, instruction='')
  found, _ = search(pool, ask=ask)
  assert found.start.startswith('You are an expert Python programmer')


def test_a_model_that_writes_nothing_usable_leaves_the_start(pool):
  found, _ = search(pool, writer=lambda request: '')
  assert found.text == found.start and found.score == found.start_score
  assert 'not usable, the last one is empty' in found.ended
  assert found.ended in found.facts()['instruction of gepa']


def test_replies_that_the_model_cannot_give_are_refused_before_any_call(pool):
  line_up = LineUp(
    {
      'rewriter': CachedBackend(ScriptedBackend(writer, prompt_limit=-1)),
      'coder': CachedBackend(ScriptedBackend(coder)),
    },
    pool,
    ASK,
  )
  with pytest.raises(ValueError, match='max_tokens=512: .* expected at most'):
    instruction_search.find(
      line_up, TRAIN, VALIDATION, ASK, CONFIG, protocol='visible1'
    )


@pytest.mark.parametrize(
  ('options', 'reason'),
  [
    ({'ask': AskConfig()}, 'template=plain'),
    ({'train': TEST}, '3 of 3 tasks to show are not of the split train'),
    ({'train': ()}, 'at least one'),
    (
      {'config': InstructionSearchConfig(calls=30)},
      'buys 2 candidates of gepa',
    ),
  ],
)
def test_what_cannot_be_searched_is_refused(pool, options, reason):
  with pytest.raises(ValueError, match=reason):
    search(pool, **options)


def test_settings_without_sense_are_refused():
  with pytest.raises(ValueError, match='calls=-1'):
    InstructionSearchConfig(calls=-1)


def test_every_knob_changes_the_history(pool):
  knobs = {
    'calls': 45,
    'problems': 2,
    'temperature': 0.2,
    'max_tokens': 99,
    'gepa': GepaConfig(minibatch=3, perfect=1.0),
  }
  fields = {field.name for field in dataclasses.fields(CONFIG)}
  assert knobs.keys() == fields
  memo = MemoPool(pool)

  def history(config):
    """A search in which no text is perfect, and what it asked the writer."""
    asked = []

    def tries(request):
      asked.append(request)
      return f'<text>\nTry {len(asked)}\n</text>'

    found, _ = search(memo, writer=tries, config=config)
    return found.history, asked

  usual = history(CONFIG)
  for name, value in knobs.items():
    other = dataclasses.replace(CONFIG, **{name: value})
    assert history(other) != usual, name
