"""How an instruction for programming tasks is written down and read back."""

from __future__ import annotations

from collections.abc import Sequence

from promptrl_jax.envs.rewriting.code import sampling
from promptrl_jax.envs.rewriting.config import RewritingConfig
from promptrl_jax.envs.rewriting.words import WordsForm
from promptrl_jax.llm.ask import AskConfig
from promptrl_jax.llm.backend import Backend, Completion, Message, Request
from promptrl_jax.prompts import templates
from promptrl_jax.rewards.checking import Reply
from promptrl_jax.tasks import splits
from promptrl_jax.types import ProgramExamples, Task


class ProgramsForm(WordsForm):
  """Rewrites as those of any instruction; requests and replies as for code."""

  def __init__(
    self, model: Backend, config: RewritingConfig, ask: AskConfig, protocol: str
  ):
    super().__init__(model, config, ask)
    self._protocol = protocol
    self._template = templates.TEMPLATES[ask.template]

  def requests(
    self, task: Task, statement: str, seed: int = 0
  ) -> tuple[Request, ...]:
    """Returns the request for a program of each task."""
    assert isinstance(task.checker, ProgramExamples)
    return tuple(
      Request(
        tuple(Message(*pair) for pair in self._template.coder(prompt)),
        **sampling(self._ask, task, f'{task.task_id}/{example.task_id}', seed),
      )
      for example, prompt in zip(
        task.checker.examples, self._prompts(task, statement), strict=True
      )
    )

  def reply(
    self, task: Task, statement: str, completions: Sequence[Completion]
  ) -> Reply:
    """Returns the program in each completion, '' where there is none."""
    prompts = self._prompts(task, statement)
    return tuple(
      self._template.program(prompt, completion.text)
      for prompt, completion in zip(prompts, completions, strict=True)
    )

  def _tells_answer(self, task: Task, rewrite: str) -> bool:
    # An instruction that holds for hundreds of tasks cannot hold a program.
    del task, rewrite
    return False

  def _prompts(self, task: Task, statement: str) -> list[templates.CoderPrompt]:
    assert isinstance(task.checker, ProgramExamples)
    return [
      templates.CoderPrompt(
        example.statement,
        example.signature,
        splits.visible_tests(example, self._protocol),
        instruction=statement,
      )
      for example in task.checker.examples
    ]
