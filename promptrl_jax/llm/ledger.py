"""Counts model calls, tokens, seconds and dollars, and keeps a run to its caps.

A cap is checked and the calls are counted in one step, before they are made:
with an upper bound of the tokens of each, which its completion then replaces by
what it used.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from promptrl_jax.files import write_atomically
from promptrl_jax.llm.backend import (
  Backend,
  BackendError,
  Completion,
  Request,
)

_MILLION = 1_000_000
_PER_MESSAGE = 4  # tokens that chat templates add, about


class BudgetExceeded(RuntimeError):
  """A reservation was refused; no call has been made."""


class CapExceeded(BudgetExceeded, BackendError):
  """A run may not spend more, which is no failure of what asked the model."""


@dataclasses.dataclass(frozen=True)
class Price:
  """Dollars per million tokens."""

  prompt: float = 0.0
  completion: float = 0.0

  def dollars(self, prompt_tokens: int, completion_tokens: int) -> float:
    paid = self.prompt * prompt_tokens + self.completion * completion_tokens
    return paid / _MILLION


@dataclasses.dataclass(frozen=True)
class SpendConfig:
  """What a run may spend on its models; 0: no limit.

  Answers of a cache cost nothing. A run that is interrupted and goes on has the
  caps of one run.

  Attributes:
    calls, tokens, dollars: of all models together.
    prices: (model, dollars per million prompt tokens, and per million
      completion tokens) of models on servers; those in this process are free.
    dry_run: the first call that would be paid ends the run with its size.
    least_candidates: with a cap on calls that is less than what one strategy
      may take at the largest budget, the candidates per problem that it must
      buy for every strategy; see `preflight.py`.
  """

  calls: int = 0
  tokens: int = 0
  dollars: float = 0.0
  prices: tuple[tuple[str, float, float], ...] = ()
  dry_run: bool = False
  least_candidates: int = 3

  def __post_init__(self):
    for field in ('calls', 'tokens', 'dollars', 'least_candidates'):
      if not getattr(self, field) >= 0:
        raise ValueError(
          f'spend.{field}={getattr(self, field)}: expected 0 or more'
        )
    for model, *dollars in self.prices:
      if not all(each >= 0 for each in dollars):
        raise ValueError(
          f'spend.prices: {model!r} costs {dollars}, expected 0 or more '
          'dollars per million prompt tokens and per million completion tokens'
        )

  @property
  def is_limited(self) -> bool:
    return bool(self.calls or self.tokens or self.dollars or self.dry_run)

  def price(self, model: str) -> Price | None:
    """Returns the price of a model, with or without the hash in its name.

    It is None where the run does not name it.

    Raises:
      ValueError: there is none, but a cap on dollars.
    """
    known = {name: Price(*dollars) for name, *dollars in self.prices}
    for name in (model, model.rpartition('@')[0]):
      if name in known:
        return known[name]
    if self.dollars:
      raise ValueError(
        f'spend.dollars={self.dollars} needs the price of {model!r}: give '
        f'--config.spend.prices="((\'{model}\', PROMPT, COMPLETION),)" in '
        'dollars per million tokens'
      )
    return None


@dataclasses.dataclass
class Usage:
  """Reserved calls, reported tokens, wall seconds and dollars of one role."""

  calls: int = 0
  prompt_tokens: int = 0
  completion_tokens: int = 0
  seconds: float = 0.0
  dollars: float = 0.0


@dataclasses.dataclass(frozen=True)
class Bound:
  """The most that calls can use."""

  tokens: int = 0
  dollars: float = 0.0

  @classmethod
  def sum(cls, bounds: Iterable[Bound]) -> Bound:
    listed = list(bounds)
    return cls(sum(b.tokens for b in listed), sum(b.dollars for b in listed))


class Ledger:
  """Usage per role (`coder`, `rewriter`, ...); for any number of threads."""

  def __init__(
    self,
    config: SpendConfig = SpendConfig(),
    path: str | os.PathLike[str] | None = None,
  ):
    """Opens a ledger.

    Args:
      config: the caps.
      path: file in which the usage is kept, and found again by a run that goes
        on; None: nowhere.

    Raises:
      ValueError: the file is not that of a ledger.
    """
    self.config = config
    self.roles: dict[str, Usage] = {}
    self._path = pathlib.Path(path) if path is not None else None
    self._open = Bound()  # of calls that are not recorded yet
    self._lock = threading.Lock()
    if self._path is not None and self._path.exists():
      self.roles = _read(self._path)

  @property
  def spent(self) -> Usage:
    """The usage of all roles."""
    with self._lock:
      return self._spent()

  def reserve(self, role: str, n: int = 1, bound: Bound = Bound()) -> None:
    """Counts `n` calls that are about to be made and use `bound` at most.

    Raises:
      CapExceeded: a cap would be exceeded; nothing is counted.
    """
    with self._lock:
      self._check(role, n, bound)
      self._usage(role).calls += n
      self._open = Bound.sum((self._open, bound))
      self._save()

  def record(
    self,
    role: str,
    completions: Iterable[Completion],
    seconds: float = 0.0,
    price: Price = Price(),
    bound: Bound = Bound(),
  ) -> None:
    """Adds what calls used that were reserved before, with this bound."""
    with self._lock:
      usage = self._usage(role)
      for done in completions:
        used = (done.prompt_tokens, done.completion_tokens)
        usage.prompt_tokens += used[0]
        usage.completion_tokens += used[1]
        usage.dollars += price.dollars(*used)
      usage.seconds += seconds
      self._close(bound)

  def release(self, role: str, n: int, bound: Bound = Bound()) -> None:
    """Takes back `n` reserved calls, with this bound, that had no answer."""
    with self._lock:
      self._usage(role).calls -= n
      self._close(bound)
      self._save()

  def meter(self, role: str, model: Backend, *, free: bool = False) -> Meter:
    """Returns what counts the calls of one model.

    Raises:
      ValueError: the model is not free and has no price, but a cap on dollars.
    """
    price = Price() if free else self.config.price(model.name)
    return Meter(self, role, price, model)

  def _usage(self, role: str) -> Usage:
    return self.roles.setdefault(role, Usage())

  def _spent(self) -> Usage:
    total = Usage()
    for usage in self.roles.values():
      for field, value in vars(usage).items():
        setattr(total, field, getattr(total, field) + value)
    return total

  def _check(self, role: str, n: int, bound: Bound) -> None:
    """Raises CapExceeded if a reservation is not to be had."""
    config, spent = self.config, self._spent()
    asked = f'{n} calls of the {role}, of at most {bound.tokens} tokens'
    if bound.dollars:
      asked += f' and ${bound.dollars:.4f}'
    if config.dry_run:
      raise CapExceeded(f'dry run: {asked}, would be made now; none was')
    tokens = spent.prompt_tokens + spent.completion_tokens + self._open.tokens
    dollars = spent.dollars + self._open.dollars
    for name, limit, used, more in (
      ('calls', config.calls, spent.calls, n),
      ('tokens', config.tokens, tokens, bound.tokens),
      ('dollars', config.dollars, dollars, bound.dollars),
    ):
      if limit and used + more > limit:
        raise CapExceeded(
          f'spend.{name}={limit}: {used:.6g} are spent or under way and '
          f'{more:.6g} more are asked for ({asked}), so none was made; with a '
          'higher cap the same command goes on, and pays for no answer in its '
          'cache again'
        )

  def _close(self, bound: Bound) -> None:
    self._open = Bound(
      self._open.tokens - bound.tokens, self._open.dollars - bound.dollars
    )

  def _save(self) -> None:
    if self._path is not None:
      rows = {role: vars(usage) for role, usage in self.roles.items()}
      write_atomically(self._path, f'{json.dumps(rows, indent=2)}\n'.encode())


class Meter:
  """Counts the calls of one model in a ledger.

  Attributes:
    price: of the model; None: unknown, and counted as nothing.
  """

  def __init__(
    self,
    ledger: Ledger,
    role: str,
    price: Price | None,
    model: Backend,
  ):
    self.price = price
    self._ledger = ledger
    self._role = role
    self._price = price or Price()
    self._model = model

  @property
  def is_limited(self) -> bool:
    """Whether there is a cap, which many requests at once may not fit under."""
    return self._ledger.config.is_limited

  @contextlib.contextmanager
  def paying(
    self, requests: Sequence[Request]
  ) -> Iterator[Callable[[int, Completion], None]]:
    """Reserves requests; yields a function that records one by its index.

    Those that were not recorded in the end are taken back.

    Raises:
      CapExceeded: the run may not spend this much; nothing is to be asked.
    """
    ledger, role = self._ledger, self._role
    bounds = dict(enumerate(map(self._bound, requests)))
    ledger.reserve(role, len(requests), Bound.sum(bounds.values()))
    started = time.perf_counter()

    def record(index: int, completion: Completion) -> None:
      ledger.record(role, [completion], 0.0, self._price, bounds.pop(index))

    try:
      yield record
    finally:
      ledger.record(role, [], time.perf_counter() - started)
      ledger.release(role, len(bounds), Bound.sum(bounds.values()))

  def _bound(self, request: Request) -> Bound:
    config = self._ledger.config
    if not (config.tokens or config.dollars or config.dry_run):
      return Bound()  # Counting the tokens of a prompt takes time.
    prompt = sum(
      self._model.count_tokens(m.content) + _PER_MESSAGE
      for m in request.messages
    )
    dollars = self._price.dollars(prompt, request.max_tokens)
    return Bound(prompt + request.max_tokens, dollars)


def _read(path: pathlib.Path) -> dict[str, Usage]:
  try:
    rows = json.loads(path.read_text(encoding='utf-8'))
    return {role: Usage(**row) for role, row in rows.items()}
  except (ValueError, TypeError, AttributeError) as error:
    raise ValueError(
      f'{path} is not the ledger of a run ({error}): move it away, which '
      'forgets what was spent'
    ) from error
