"""A strategy of one's own: repair the last program, then start over.

python -m docs.examples.my_strategy
"""

from promptrl_jax.evaluation.evaluate import evaluate
from promptrl_jax.execution import ExecutionPool
from promptrl_jax.llm.ask import coder_prompt
from promptrl_jax.llm.attempt import Execute
from promptrl_jax.llm.load import BackendConfig, load_backend
from promptrl_jax.llm.preflight import CandidateCost
from promptrl_jax.prompts.feedback import feedback_text
from promptrl_jax.strategies import base
from promptrl_jax.tasks.minicode.suite import SUITE


def repair_once(attempt, tools):
  code, feedback = '', ''
  while attempt.budget_left:
    prompt = coder_prompt(attempt, code=code, feedback=feedback)
    code = yield from tools.write_program(attempt, prompt)
    result = yield Execute(code)
    if result.passed:
      break
    # Every second prompt shows the failing program and what went wrong.
    code, feedback = (
      ('', '') if feedback else (code, feedback_text(result.tests))
    )
  return code


base.register('repair_once', repair_once, CandidateCost())

if __name__ == '__main__':
  model = load_backend(BackendConfig(backend='jax', model='minicode_coder'))
  with ExecutionPool(workers=2) as pool:
    (cell,) = evaluate(
      {'repair_once': repair_once},
      SUITE.load('test')[:24],
      coder=model,
      pool=pool,
      budget=4,
    )
  print(f'{cell.strategy}: {cell.passed.mean():.3f} of 24 in 4 calls each')
