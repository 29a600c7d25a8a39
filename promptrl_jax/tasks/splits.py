"""Which tests a solver sees, and which one score it.

| protocol      | a solver sees                      | hidden            |
|---------------|------------------------------------|-------------------|
| `blind`       | statement and signature            | all tests         |
| `visible1`    | also the first assertion           | all others        |
| `visible_all` | all assertions but the last        | the last          |
| `oracle`      | the scored tests, as a stop rule   | the same tests    |

MBPP and minicode have no second set of inputs, so `visible_all` keeps the last
assertion back: visible and hidden tests are disjoint everywhere but in
`oracle`, which serves parity with published numbers and nothing else.
"""

from __future__ import annotations

from promptrl_jax.types import Problem, Task

PROTOCOLS = ('blind', 'visible1', 'visible_all', 'oracle')


def visible_tests(task: Task, protocol: str) -> tuple[str, ...]:
  """The tests that a solver may read and run."""
  counts = {
    'blind': 0,
    'visible1': 1,
    'visible_all': len(task.tests) - 1,
    'oracle': len(task.tests),
  }
  if protocol not in counts:
    raise ValueError(f'protocol {protocol!r}: expected one of {PROTOCOLS}')
  if not task.tests:
    raise ValueError(f'task {task.task_id} has no tests')
  if protocol == 'visible1' and len(task.tests) < 2:
    raise ValueError(
      f'task {task.task_id} has one test: with "visible1" none would be '
      'hidden; use "blind" or "oracle"'
    )
  return task.tests[: counts[protocol]]


def hidden_tests(task: Task, protocol: str) -> tuple[str, ...]:
  """The tests that score a submitted program."""
  visible = visible_tests(task, protocol)
  return task.tests if protocol == 'oracle' else task.tests[len(visible) :]


def reveal(task: Task, protocol: str) -> Problem:
  """What a solver gets: an object with no place for a hidden test."""
  return Problem(
    task_id=task.task_id,
    statement=task.statement,
    entry_point=task.entry_point,
    signature=task.signature,
    visible_tests=visible_tests(task, protocol),
    setup=task.setup,
  )


def reveal_for_training(task: Task, protocol: str) -> Problem:
  """As `reveal`, and all its other tests may be run for reward.

  Raises:
    ValueError: the task is not of the training split.
  """
  if task.split != 'train':
    raise ValueError(
      f'task {task.task_id} is of split {task.split!r}: only training tasks '
      'may be rewarded by their hidden tests'
    )
  problem = reveal(task, protocol)
  hidden = tuple(t for t in task.tests if t not in problem.visible_tests)
  return Problem(**{**vars(problem), 'reward_tests': hidden})
