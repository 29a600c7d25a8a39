"""How questions and instructions are written down and read back.

The rewriter reads the question or instruction in a meta prompt and nothing
else (PRewrite, Kong et al. 2024, arXiv 2401.08189, section 3).
"""

from __future__ import annotations

from collections.abc import Sequence

from promptrl_jax.envs.rewriting.code import sampling
from promptrl_jax.envs.rewriting.config import RewritingConfig
from promptrl_jax.envs.rewriting.result import ANSWER, NO_ROOM
from promptrl_jax.llm.ask import AskConfig
from promptrl_jax.llm.backend import Backend, Completion, Message, Request
from promptrl_jax.prompts import meta as meta_lib
from promptrl_jax.prompts import templates
from promptrl_jax.rewards import checking, functions, guards
from promptrl_jax.rewards.checking import Reply
from promptrl_jax.tasks import instructions
from promptrl_jax.types import Answers, Examples, Task

_LONG_ANSWER = 8  # Characters; shorter answers occur in a rewrite by chance.


class WordsForm:
  """Requests and replies of tasks that are checked by right answers."""

  rewrite_stop: tuple[str, ...] = ()

  def __init__(self, model: Backend, config: RewritingConfig, ask: AskConfig):
    self._model = model
    self._config = config
    self._ask = ask

  def draw(self, task: Task, seed: int) -> Task:
    """Returns the task with the examples that one batch is asked."""
    if isinstance(task.checker, Answers):
      return task
    return instructions.subsample(task, self._config.examples, seed)

  def prompt(
    self, task: Task, fits: templates.FitsFn = lambda _: True
  ) -> templates.Messages:
    """Returns the rewriter's messages: meta prompt and statement, no input.

    Raises:
      PromptTooLongError: the rewriter has no room for it.
    """
    messages = meta_lib.render(self._config.meta, task.statement)
    if not fits(messages):
      raise templates.PromptTooLongError(
        f'the rewriter has no room for {task.statement[:60]!r}'
      )
    return messages

  def statement(self, task: Task, rewrite: str) -> str:
    """Returns the statement of a rewrite; the old one if there is no text."""
    return meta_lib.read(rewrite) or task.statement

  def flag(
    self, task: Task, drawn: Task, rewrite: str, finished: bool
  ) -> tuple[str, str]:
    """Returns why the rewrite is flagged, or '', and the statement it makes.

    `task` has all its examples, `drawn` those that the model would be asked.
    """
    text = meta_lib.read(rewrite)
    if not text:
      return 'empty', ''
    if not finished:
      return 'overlong', ''
    if text != task.statement and guards.is_repetitive(
      text, self._config.guards
    ):
      return 'repetition', ''
    if self._tells_answer(task, text):
      return ANSWER, ''
    if not all(map(self._model.fits, self.requests(drawn, text))):
      return NO_ROOM, ''
    return '', text

  def requests(
    self, task: Task, statement: str, seed: int = 0
  ) -> tuple[Request, ...]:
    """Returns the request for each example, or the one of a question."""
    checker, questions = task.checker, [(task.task_id, statement)]
    if isinstance(checker, Examples):
      questions = [
        (
          f'{task.task_id}/{example.input}',
          instructions.prompt(checker, statement, example),
        )
        for example in checker.examples
      ]
    return tuple(
      Request((Message('user', text),), **sampling(self._ask, task, name, seed))
      for name, text in questions
    )

  def labels(self, task: Task) -> tuple[str, ...]:
    """Returns the first right answer of each request."""
    checker = functions.words_checker(task)
    return tuple(o[0] for o in checking.right_answers(checker))

  def reply(
    self, task: Task, statement: str, completions: Sequence[Completion]
  ) -> Reply:
    """Returns the answer, or the answers to all examples."""
    del statement
    texts = tuple(completion.text for completion in completions)
    return texts if isinstance(task.checker, Examples) else texts[0]

  def _tells_answer(self, task: Task, rewrite: str) -> bool:
    """Whether a rewrite holds a right answer that the statement does not tell.

    Labels may be named.
    """
    checker = functions.words_checker(task)
    text, before = rewrite.lower(), task.statement.lower()
    return any(
      answer in text and answer not in before
      for outputs in checking.right_answers(checker)
      for output in outputs
      if output not in checker.labels
      and len(answer := output.strip().lower()) >= _LONG_ANSWER
    )
