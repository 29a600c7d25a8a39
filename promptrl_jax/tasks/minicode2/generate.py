"""Makes the rows of the suite from its grammar, deterministic from a seed.

Splits are disjoint in templates, but for the half of `validation` and `test`
that asks for templates of `pretrain` with parameters that it never shows:

  pretrain     the frozen models learn from it; nothing else does
  policy       what chooses or writes prompts learns from it
  held         a third of the templates of `policy`, kept back
  validation, test   half known templates, half unseen ones of known families
  ood          half unseen families, half two filters at once
  wording      the problems of `test` in other words, with other names and tests
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import random
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from promptrl_jax.tasks.minicode.generate import assertion, literal, params_text
from promptrl_jax.tasks.minicode2 import wording
from promptrl_jax.tasks.minicode2.domains import ALL, DOMAINS
from promptrl_jax.tasks.minicode2.grammar import Domain, Params, Piece, Template

SEED = 0
SPLITS = ('pretrain', 'policy', 'held', 'validation', 'test', 'ood', 'wording')
TESTS_PER_PROBLEM = 6
_SIZES = {  # Problems of each split, half and half where it has two parts.
  'pretrain': 800,
  'policy': 1600,
  'held': 800,
  'validation': 300,
  'test': 600,
  'ood': 300,
}
_OOD_SHARE = 0.15  # of families
_LOOSE_SHARE = 0.25  # of problems
# One in four combinations of parameters is never shown to the frozen models.
_RESERVED = 4
_LONGEST_ASSERTION = 110
_DRAWS = 100  # of arguments
_SETS = 30  # of tests
_PLAIN_NAMES = (
  *('solve', 'solution', 'run_task', 'process', 'my_function', 'do_work'),
  *('answer', 'func', 'handle', 'calculate', 'get_result', 'helper', 'foo'),
)
_PLAIN_NAME_SHARE = 0.8
# Weights of (wording, whether the form of the result is left open).
_STYLES = {
  ('plain', False): 58,
  ('story', False): 13,
  ('rare', False): 13,
  ('plain', True): 12,
  ('story', True): 2,
  ('rare', True): 2,
}


@dataclasses.dataclass(frozen=True)
class Problem:
  """A template with its parameters fixed and the form of its result.

  Attributes:
    form: key of `wording.FORMS`, empty for the value itself.
  """

  template: Template
  params: Params
  form: str = ''

  def program(self, name: str) -> str:
    result = '$v'
    if self.form:
      result = wording.FORMS[self.template.kind][self.form]
    return self.template.program(self.params, name, result)

  @functools.cached_property
  def reference(self) -> Callable[..., Any]:
    namespace: dict[str, Any] = {}
    exec(self.program('reference'), namespace)
    return namespace['reference']


# --- Templates and their splits -----------------------------------------------


def is_reserved(template: Template, params: Params) -> bool:
  """Whether the frozen models never see these parameters of the template."""
  text = f'{template.name}/{params_text(params)}'
  return bool(params) and zlib.crc32(text.encode()) % _RESERVED == 0


@functools.cache
def templates(seed: int = SEED) -> dict[str, tuple[Template, ...]]:
  """Returns the templates of `pretrain`, `policy`, `held` and so on.

  Those of `validation` and `test` are the unseen ones. A loose template stands
  once for each of its readings.
  """
  rng = random.Random(f'{seed}/templates')
  splits: dict[str, list[Template]] = {name: [] for name in SPLITS}
  for domain in DOMAINS:
    families = list(domain.families())
    unseen = {
      id(f) for f in rng.sample(families, round(_OOD_SHARE * len(families)))
    }
    for family in families:
      make = functools.partial(_readings, domain, family)
      if id(family) in unseen:
        pair = rng.sample(domain.filters, 2)
        splits['ood'] += [t for f in pair for t in make(f)]
        continue
      for split, filters in _deal(domain.filters, rng).items():
        splits[split] += [t for f in filters for t in make(f)]
      splits['ood'] += make(*_two_filters(domain.filters, rng))
  return {name: tuple(made) for name, made in splits.items()}


def _readings(
  domain: Domain, family: tuple[Piece, Piece], *filters: Piece
) -> list[Template]:
  """A template once for each reading of its filters."""
  first = Template(domain, filters, *family)
  return [
    dataclasses.replace(first, reading=reading)
    for reading in range(first.readings)
  ]


def _deal(
  filters: Sequence[Piece], rng: random.Random
) -> dict[str, list[Piece]]:
  """Deals the filters of one family to the splits."""
  loose = [f for f in filters if f.is_loose]
  clear = [f for f in filters if not f.is_loose and f is not ALL]
  rng.shuffle(loose)
  rng.shuffle(clear)
  policy = 'held' if rng.random() < 1 / 3 else 'policy'
  dealt = {
    'validation': clear[:1],
    'test': clear[1:2],
    policy: clear[2:4],
    'pretrain': [ALL, *clear[4:]],
  }
  half = len(loose) // 2
  dealt['pretrain'] += loose[:half]
  for piece in loose[half:]:
    dealt[rng.choice((policy, policy, 'validation', 'test', 'test'))].append(
      piece
    )
  return dealt


def _two_filters(
  filters: Sequence[Piece], rng: random.Random
) -> tuple[Piece, Piece]:
  """Two conditions with parameters of different names."""
  conditions = [
    f
    for f in filters
    if f is not ALL and not f.is_loose and '$source' not in f.codes[0]
  ]
  while True:
    first, second = rng.sample(conditions, 2)
    if not first.params.keys() & second.params.keys():
      return first, second


# --- Problems -----------------------------------------------------------------


def draw_arguments(problem: Problem, rng: random.Random) -> tuple[Any, ...]:
  """Draws the argument of one call; about half of the elements are kept.

  Raises:
    ValueError: the program has no value, or too long a one, for many draws.
  """
  template, domain = problem.template, problem.template.domain
  accepts = template.accepts(problem.params)
  for _ in range(_DRAWS):
    elements = []
    for _ in range(rng.randint(*domain.sizes)):
      element = domain.draw(rng)
      for _ in range(12 if rng.random() < 0.5 else 0):
        if accepts(*(element if isinstance(element, tuple) else (element,))):
          break
        element = domain.draw(rng)
      elements.append(element)
    arguments = (domain.build(elements),)
    try:
      value = problem.reference(*arguments)
    except (ArithmeticError, LookupError, ValueError):
      continue  # of nothing that is kept there is no largest
    if (
      value in ([], '')
      or len(assertion('f', arguments, value)) > _LONGEST_ASSERTION
    ):
      continue
    return arguments
  raise ValueError(f'{template.name} {dict(problem.params)}: no argument found')


def draw_test(problem: Problem, name: str, rng: random.Random) -> str:
  """Draws one assertion."""
  arguments = draw_arguments(problem, rng)
  return assertion(name, arguments, problem.reference(*arguments))


def draw_tests(problem: Problem, name: str, rng: random.Random) -> list[str]:
  """Draws the assertions of a problem, of distinct arguments.

  The visible one, which comes first, is drawn as the others are. The hidden
  ones together tell the problem from the other readings of its words.
  """
  others = [
    dataclasses.replace(
      problem, template=dataclasses.replace(problem.template, reading=reading)
    )
    for reading in range(problem.template.readings)
    if reading != problem.template.reading
  ]
  for _ in range(_SETS):
    calls: dict[str, tuple[Any, ...]] = {}
    for _ in range(_DRAWS):
      arguments = draw_arguments(problem, rng)
      calls.setdefault(literal(arguments), arguments)
      if len(calls) == TESTS_PER_PROBLEM:
        break
    hidden = list(calls.values())[1:]
    values = {literal(problem.reference(*c)) for c in hidden}
    told = all(any(_differs(o, problem, c) for c in hidden) for o in others)
    if len(calls) == TESTS_PER_PROBLEM and len(values) > 1 and told:
      return [assertion(name, c, problem.reference(*c)) for c in calls.values()]
  raise ValueError(f'{problem.template.name}: too few distinct tests')


def _differs(other: Problem, problem: Problem, arguments) -> bool:
  try:
    value = other.reference(*arguments)
  except (ArithmeticError, LookupError, ValueError):
    return True
  return literal(value) != literal(problem.reference(*arguments))


def draw_name(template: Template, rng: random.Random) -> str:
  """Draws a function name; most of them tell nothing."""
  if rng.random() < _PLAIN_NAME_SHARE:
    return rng.choice(_PLAIN_NAMES)
  return f'{template.reduce.name}_{template.domain.name}'


def draw_params(
  template: Template, rng: random.Random, *, reserved: bool | None = None
) -> dict[str, Any] | None:
  """Draws parameters, reserved ones or not; None if there seem to be none."""
  for _ in range(_DRAWS):
    params = {k: rng.choice(v) for k, v in template.params.items()}
    if reserved is None or is_reserved(template, params) == reserved:
      return params
  return None


def draw_form(template: Template, rng: random.Random) -> str:
  return rng.choice(sorted(wording.FORMS[template.kind]))


def make_row(
  problem: Problem, style: str, split: str, rng: random.Random
) -> dict[str, Any]:
  """Returns one problem in one wording, with drawn name and assertions."""
  template, params = problem.template, problem.params
  name = draw_name(template, rng)
  label = 'loose' if template.is_loose else style
  if problem.form:
    label = 'form' if label == 'plain' else f'{label}+form'
  reading = [f'reading={template.reading}'] if template.is_loose else []
  form = [f'form={problem.form}'] if problem.form else []
  text = wording.render(template, params, style, rng)
  if split == 'wording':
    text = wording.reframe(text, rng)
  values = filter(None, [params_text(params), *reading, *form])
  return {
    'task_id': '/'.join(('minicode2', split, template.name, ','.join(values))),
    'text': text,
    'code': problem.program(name),
    'test_list': draw_tests(problem, name, rng),
    'test_setup_code': '',
    'challenge_test_list': [],
    'family': template.family,
    'template': template.name,
    'params': dict(params),
    'register': label,
    'canonical': template.statement(params),
    'split': split,
  }


def _style(template: Template, rng: random.Random) -> tuple[str, bool]:
  if template.is_loose:
    return 'plain', False
  return rng.choices(list(_STYLES), list(_STYLES.values()))[0]


def _rows(
  split: str,
  pool: Sequence[Template],
  count: int | None,
  rng: random.Random,
  reserved: bool | None = None,
) -> Iterator[tuple[Problem, str, dict[str, Any]]]:
  """Makes rows of distinct problems, of all templates before one comes again.

  A problem of which no tests can be drawn is left out: nothing is kept of any
  argument, or all of them have one value.
  """
  seen: set[str] = set()
  loose = [t for t in pool if t.is_loose]
  clear = _passes([t for t in pool if not t.is_loose], rng)
  vague = _passes(loose, rng) if loose else clear
  while count is None or len(seen) < count:
    template = next(vague if rng.random() < _LOOSE_SHARE else clear)
    params = draw_params(template, rng, reserved=reserved)
    if params is None:
      continue
    style, has_form = _style(template, rng)
    form = draw_form(template, rng) if has_form else ''
    problem = Problem(template, params, form)
    try:
      row = make_row(problem, style, split, rng)
    except ValueError:
      continue
    if row['task_id'] not in seen:
      seen.add(row['task_id'])
      yield problem, style, row


def _passes(pool: Sequence[Template], rng: random.Random) -> Iterator[Template]:
  """Yields templates without end, each once before one comes again."""
  while True:
    yield from rng.sample(pool, len(pool))


def further(seed: int = SEED) -> Iterator[dict[str, Any]]:
  """Yields rows of the templates of `policy` without end, in a fixed order."""
  pool = templates(seed)['policy']
  rng = random.Random(f'{seed}/further')
  for _, _, row in _rows('policy', pool, None, rng):
    yield row


def generate(seed: int = SEED) -> Iterable[dict[str, Any]]:
  """Yields every row of the suite in a fixed order."""
  by_split = templates(seed)
  known = by_split['pretrain']
  single = [t for t in by_split['ood'] if len(t.filters) == 1]
  double = [t for t in by_split['ood'] if len(t.filters) == 2]
  # Splits with the templates they draw from, and which parameters of them.
  parts = [
    ('pretrain', known, False),
    ('policy', by_split['policy'], None),
    ('held', by_split['held'], None),
    ('validation', known, True),
    ('validation', by_split['validation'], None),
    ('test', known, True),
    ('test', by_split['test'], None),
    ('ood', single, None),
    ('ood', double, None),
  ]
  shares = collections.Counter(split for split, _, _ in parts)
  for number, (split, pool, reserved) in enumerate(parts):
    rng = random.Random(f'{seed}/rows/{number}')
    count = _SIZES[split] // shares[split]
    for problem, style, row in _rows(split, pool, count, rng, reserved):
      yield row
      if split == 'test':
        yield make_row(problem, style, 'wording', rng)
