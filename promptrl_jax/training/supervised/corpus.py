"""Text pairs that the embedded models learn from; minicode's train split only.

A draw is a problem of the train split with a fresh name, wording and first
assertion. The coder sees mostly canonical statements: as with any model that
was tuned on one way of asking, other wordings are harder for it, which is what
makes prompts worth editing. The rewriter sees every register.
"""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from promptrl_jax.execution import ExecutionPool, Program
from promptrl_jax.prompts import feedback as feedback_lib
from promptrl_jax.prompts import templates
from promptrl_jax.tasks.minicode import generate, registers
from promptrl_jax.tasks.minicode.family import Family, Params, fill

Pair = tuple[str, str]  # prompt, completion


@dataclasses.dataclass(frozen=True)
class CorpusConfig:
  """Shares of the draws.

  Attributes:
    registers: weight of each register of the statement.
    repair: share of coder draws that show a wrong program and its feedback.
    feedback: share of rewriter draws that carry feedback on a wrong program.
    wrong_detail: share of the rewriter's draws with feedback whose statement
      is that of a sibling problem, so that only the feedback tells.
    attempts: wrong programs per problem that are drawn and run in advance.
  """

  registers: Mapping[str, float]
  repair: float = 0.0
  feedback: float = 0.0
  wrong_detail: float = 0.0
  attempts: int = 6


@dataclasses.dataclass(frozen=True)
class Attempt:
  """A wrong program, the assertion that it failed, and the feedback."""

  name: str
  assertion: str
  program: str
  feedback: str
  sibling: Params | None


@dataclasses.dataclass(frozen=True)
class _Item:
  """A problem of the train split."""

  family: Family
  params: Params
  attempts: tuple[Attempt, ...] = ()


def train_problems(rows: Sequence[Mapping[str, Any]]) -> list[_Item]:
  """The problems of the train split, from rows of the suite."""
  return [
    _Item(generate.FAMILIES[row['family']], row['params'])
    for row in rows
    if row['split'] == 'train'
  ]


def _first_assertion(item: _Item, name: str, rng: random.Random) -> str:
  family, params = item.family, item.params
  args = generate.telling_arguments(family, params, name, rng)
  value = generate.reference(family, params)(*args)
  return generate.assertion(name, args, value)


def _drop_mark(code: str, rng: random.Random) -> str:
  """Drops one bracket, colon or quote of the body: usually a syntax error."""
  start = code.index('\n')
  places = [i for i in range(start, len(code)) if code[i] in "()[]:'{}"]
  if not places:
    return code
  place = rng.choice(places)
  return code[:place] + code[place + 1 :]


def _misname(code: str, rng: random.Random) -> str:
  """Renames one use of a name in the body: usually a name error."""
  names = re.compile(r'\b[a-z_]\w*\b').finditer(code, code.index('\n') + 1)
  uses = [m for m in names if m.group() not in _KEYWORDS]
  if not uses:
    return code
  use = rng.choice(uses)
  other = rng.choice(_NAMES)
  return code[: use.start()] + other + code[use.end() :]


_KEYWORDS = {
  *('def', 'return', 'for', 'in', 'if', 'else', 'elif', 'while', 'and', 'or'),
  *('not', 'is', 'lambda', 'import', 'from', 'as', 'None', 'True', 'False'),
  *('break', 'continue'),
}
_NAMES = ('nums', 'text', 'items', 'data', 'res', 'x', 'words', 'n')
_SWAPS = (
  (' + ', ' - '),
  (' - ', ' + '),
  (' * ', ' + '),
  (' > ', ' < '),
  (' < ', ' > '),
  (' >= ', ' > '),
  (' <= ', ' < '),
  (' == ', ' != '),
  (' // ', ' / '),
  (' % ', ' // '),
  ('max(', 'min('),
  ('min(', 'max('),
  (' and ', ' or '),
  ('sorted(', 'list('),
  ('sum(', 'len('),
  (' not in ', ' in '),
  ('append(', 'add('),
  ('range(', 'range(1, '),
  ('total = 0', 'total = 1'),
)


def _misuse(code: str, rng: random.Random) -> str:
  """Swaps one operator or function, or changes one number."""
  start = code.index('\n')
  head, body = code[:start], code[start:]
  swaps = [s for s in _SWAPS if s[0] in body]
  numbers = list(re.finditer(r'\b\d+\b', body))
  if numbers and (not swaps or rng.random() < 0.4):
    m = rng.choice(numbers)
    changed = str(max(0, int(m.group()) + rng.choice((-2, -1, 1, 2, 3))))
    return head + body[: m.start()] + changed + body[m.end() :]
  return head + body.replace(*rng.choice(swaps), 1) if swaps else code


def _wrong_program(
  item: _Item, name: str, rng: random.Random
) -> tuple[str, Params | None]:
  """A program that is probably wrong, and the sibling it solves, if any."""
  right = fill(item.family.code, item.params, f=name)
  siblings = [p for p in item.family.grid() if p != item.params]
  if siblings and rng.random() < 0.55:
    sibling = rng.choice(siblings)
    return fill(item.family.code, sibling, f=name), sibling
  damage: Callable[..., str] = rng.choice(
    (_drop_mark, _misname, _misuse, _misuse)
  )
  return damage(right, rng), None


def with_attempts(
  items: Sequence[_Item], per_item: int, pool: ExecutionPool, rng: random.Random
) -> list[_Item]:
  """Makes wrong programs of every problem, runs them, keeps those that fail."""
  drafts: list[tuple[int, str, str, str, Params | None]] = []
  for index, item in enumerate(items):
    for _ in range(per_item):
      name = generate.draw_name(item.family, item.params, rng)
      program, sibling = _wrong_program(item, name, rng)
      test = _first_assertion(item, name, rng)
      drafts.append((index, name, test, program, sibling))
  results = pool.run([Program(code=d[3], tests=(d[2],)) for d in drafts])
  attempts: list[list[Attempt]] = [[] for _ in items]
  for (index, name, test, program, sibling), result in zip(
    drafts, results, strict=True
  ):
    if result.score != 0.0:
      continue  # right by chance, or not judged
    said = feedback_lib.feedback_text(result.tests)
    attempts[index].append(Attempt(name, test, program, said, sibling))
  return [
    dataclasses.replace(item, attempts=tuple(wrong))
    for item, wrong in zip(items, attempts, strict=True)
  ]


def _draw_register(config: CorpusConfig, rng: random.Random) -> str:
  names = list(config.registers)
  return rng.choices(names, [config.registers[n] for n in names])[0]


def coder_pair(item: _Item, config: CorpusConfig, rng: random.Random) -> Pair:
  """A coder prompt and the program, from the signature's end on."""
  family, params = item.family, item.params
  register = _draw_register(config, rng)
  attempt = None
  if item.attempts and rng.random() < config.repair:
    attempt = rng.choice(item.attempts)
  if attempt is None:
    name = generate.draw_name(family, params, rng)
    test = _first_assertion(item, name, rng)
  else:
    name, test = attempt.name, attempt.assertion
  program = fill(family.code, params, f=name).rstrip()
  signature = program.split('\n', 1)[0]
  prompt = templates.CoderPrompt(
    statement=registers.render(family, params, register, rng),
    signature=signature,
    tests=(test,),
    attempt=attempt.program if attempt else '',
    feedback=attempt.feedback if attempt else '',
  )
  ((_, text),) = templates.PLAIN.coder(prompt)
  return text, program[len(signature) :]


def rewriter_pair(
  item: _Item, config: CorpusConfig, rng: random.Random
) -> Pair:
  """A rewriter prompt and the canonical statement."""
  family, params = item.family, item.params
  shown, feedback = params, ''
  name = generate.draw_name(family, params, rng)
  if item.attempts and rng.random() < config.feedback:
    attempt = rng.choice(item.attempts)
    name, feedback = attempt.name, attempt.feedback
    if attempt.sibling and rng.random() < config.wrong_detail:
      shown = attempt.sibling
  register = 'canonical' if shown != params else _draw_register(config, rng)
  prompt = templates.RewritePrompt(
    registers.render(family, shown, register, rng), name, feedback
  )
  ((_, text),) = templates.PLAIN.rewriter(prompt)
  return text, ' ' + fill(family.canonical, params)


PAIR_FNS = {'coder': coder_pair, 'rewriter': rewriter_pair}
