"""A better text for any metric: here the statement of one task.

python -m docs.examples.my_text

A rewriter says the task in other words; a text is worth the share of programs,
one for each seed, that pass the tests of the task.
"""

import promptrl_jax as pr
from promptrl_jax.prompts.meta import MetaConfig
from promptrl_jax.prompts.templates import PLAIN, CoderPrompt
from promptrl_jax.strategies.texts.proposer import ProposerConfig
from promptrl_jax.tasks.task_set import DataConfig


def main():
  task = pr.load_tasks(DataConfig(name='minicode', test_limit=1))['test'][0]
  coder, rewriter = (
    pr.load_backend(pr.BackendConfig('jax', name))
    for name in ('minicode_coder', 'minicode_rewriter')
  )
  with pr.ExecutionPool(workers=2) as pool:

    def passes(text, seed):
      prompt = CoderPrompt(text, task.signature, task.tests[:1])
      messages = tuple(pr.Message(*m) for m in PLAIN.coder(prompt))
      request = pr.Request(messages, temperature=0.8, seed=seed, max_tokens=80)
      program = PLAIN.program(prompt, coder.complete([request])[0].text)
      return pool.run([pr.Program(program, task.tests)])[0].status == 'passed'

    result = pr.optimize(
      task.statement,
      passes,
      budget=40,
      strategy='best_of_n',
      model=rewriter,
      examples=range(8),
      proposer=ProposerConfig(max_tokens=64, meta=MetaConfig('minicode')),
    )
  print(result)


if __name__ == '__main__':
  main()
