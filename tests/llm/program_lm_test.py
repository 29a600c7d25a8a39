import pytest

from promptrl_jax.execution import CallResult
from promptrl_jax.llm.backend import BackendError, Message, Request
from promptrl_jax.llm.program_lm import ProgramLM
from promptrl_jax.prompts.templates import TEMPLATES
from promptrl_jax.testing.scripted import ScriptedBackend


def ask(arguments, head='Double it.\n###\ndef solve(x):', **fields):
  return Request((Message('user', f'{head}\nInput: {arguments}'),), **fields)


def answers(pool, body, *requests):
  coder = ScriptedBackend(lambda _: body)
  texts = [c.text for c in ProgramLM(coder, pool).complete(requests)]
  return texts, coder


def test_the_answer_is_what_the_program_gives_for_the_input(pool):
  texts, coder = answers(pool, '\n  return 2 * x', *map(ask, ('3', '"ab"')))
  assert texts == ['6', "'abab'"]
  # One program for both, written without sight of either input.
  assert coder.prompts == ['Double it.\n###\ndef solve(x):']


def test_other_settings_ask_for_another_program(pool):
  _, coder = answers(
    pool, '\n  return x', ask('1', seed=1, temperature=0.5), ask('1')
  )
  assert [r.seed for r in coder.batches[0]] == [1, 0]


@pytest.mark.parametrize(
  ('body', 'text'),
  [
    ('\n  return None', 'None'),
    ('\n  return x == 3', 'True'),
    ('\n  return 1 / 0', ''),
    ('\n  return (', ''),
    ('\n  while True: pass', ''),
    ('\n  return solve', ''),
    ('\n  return "a returned b, expected c"', "'a returned b, expected c'"),
    ('\n  return list(range(x * 100))', str(list(range(300)))),
    ('\n  print("8")\n  return 7', '7'),
  ],
)
def test_values_are_shown_and_failures_answer_nothing(pool, body, text):
  assert answers(pool, body, ask('3'))[0] == [text]


def test_arguments_may_be_several_and_of_any_literal(pool):
  head = 'Join.\n###\ndef solve(a, b):'
  texts, _ = answers(
    pool, '\n  return len(a) + b[1]', ask('[1, 2], {1: 40}', head)
  )
  assert texts == ['42']


def test_a_coder_is_asked_in_its_own_format(pool):
  coder = ScriptedBackend(lambda _: '\n  return 2 * x\ndef other():\n  pass')
  request = ask('3', 'Double it.\nassert solve(1) == 2\n###\ndef solve(x):')
  (answer,) = ProgramLM(coder, pool, TEMPLATES['code']).complete([request])
  assert answer.text == '6'
  assert coder.prompts == [
    '# Double it.\n# assert solve(1) == 2\ndef solve(x):'
  ]
  assert '\ndef ' in coder.batches[0][0].stop


def test_prompts_of_another_form_are_refused(pool):
  for request in (ask('3', 'no signature'), Request((Message('user', 'x'),))):
    with pytest.raises(ValueError, match='ends in the lines "###", "def f'):
      answers(pool, '', request)
  with pytest.raises(ValueError, match='no list of Python literals'):
    answers(pool, '', ask('3) or open("x"'))


def test_a_failure_of_the_pool_is_no_answer(pool):
  class Broken:
    def evaluate(self, calls):
      return [CallResult('infra_error', (), message='lost') for _ in calls]

  with pytest.raises(BackendError, match='a program was not run: lost'):
    answers(Broken(), '\n  return x', ask('3'))


def test_a_signature_alone_is_no_builtin(pool):
  head = 'Add up.\n###\ndef sum(x):'
  # The program takes its own function away: the builtin must not step in.
  texts, _ = answers(pool, '\n  return 0\ndel sum', ask('[1, 2]', head))
  assert texts == ['']
