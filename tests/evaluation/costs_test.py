"""Seconds and dollars of cells, from prices and events to the report."""

import csv

import pytest

from promptrl_jax.evaluation import costs, events, report, tables
from promptrl_jax.evaluation.costs import Cost
from promptrl_jax.llm.cache import CachedBackend
from promptrl_jax.llm.ledger import Ledger, Price, SpendConfig
from promptrl_jax.testing.scripted import ScriptedBackend


def row(seed, *calls):
  """A row of a trace: (role, tokens in, tokens out) of each call."""
  return {
    'seed': seed,
    'sent': [{'role': role} for role, _, _ in calls],
    'answers': [
      {'prompt_tokens': into, 'completion_tokens': out}
      for _, into, out in calls
    ],
  }


def model(ledger, role, **options):
  backend = ScriptedBackend(lambda request: 'x')
  return CachedBackend(backend, meter=ledger.meter(role, backend, **options))


TRACE = [row(0, ('coder', 100, 10), ('rewriter', 50, 5)), row(1), row(1)]


def test_dollars_are_those_of_the_role_and_seed_that_was_asked():
  priced = Ledger(SpendConfig(prices=(('scripted', 2.0, 4.0),)))
  free, paid = model(priced, 'rewriter', free=True), model(priced, 'coder')
  models = {'coder': paid, 'rewriter': free}
  # 100 prompt tokens at 2 dollars a million and 10 of an answer at 4.
  assert costs.dollars(TRACE, lambda seed: models) == pytest.approx(240e-6)
  twice = [*TRACE, row(1, ('coder', 100, 10))]
  of_seed = {0: models, 1: models | {'coder': free}}
  assert costs.dollars(twice, of_seed.__getitem__) == pytest.approx(240e-6)
  unknown = model(Ledger(SpendConfig()), 'coder')
  assert costs.dollars(TRACE, lambda seed: models | {'coder': unknown}) is None
  bare = {'coder': unknown.backend, 'rewriter': free}
  assert costs.dollars(TRACE, lambda seed: bare) is None
  assert costs.dollars([row(0)], lambda seed: bare) == 0.0


def test_events_say_what_the_report_and_the_file_show(tmp_path, make_cell):
  cells = [make_cell('direct', seeds=1), make_cell('ppo'), make_cell('old')]
  stream = events.Stream(events.EventLog(events.path(tmp_path)))
  stream.add_cell(cells[0], seconds=9.0, dollars=0.3)
  stream.add_cell(cells[0], seconds=3.0, dollars=0.0)  # the last one counts
  stream.add_cell(cells[1], seconds=None, dollars=0.9)
  stream.close()
  found = costs.of_events(events.read(events.path(tmp_path)))
  assert found == {
    ('visible1', 'direct', 4): Cost(3.0, 0.0),
    ('visible1', 'ppo', 4): Cost(None, 0.9),
  }
  summary = report.summarise(cells, subject=None, resamples=50, costs=found)
  # Means over 30 problems of one seed, and of three.
  assert [(c['seconds'], c['dollars']) for c in summary['cells']] == [
    (pytest.approx(0.1), 0.0),
    (None, pytest.approx(0.01)),
    (None, None),
  ]
  lines = tables.cost_table(summary).splitlines()[6:]
  assert [line.split(' | ')[-3:-1] for line in lines if line] == [
    ['0.100', '0.000000'],
    ['unknown', '0.010000'],
    ['unknown', 'unknown'],
  ]
  path = costs.write_csv(tmp_path / 'scores.csv', {'visible1': summary})
  with path.open(newline='') as file:
    rows = list(csv.DictReader(file))
  assert [r['strategy'] for r in rows] == ['direct', 'ppo', 'old']
  assert float(rows[1]['pass']) == summary['cells'][1]['pass']['mean']
  assert float(rows[1]['soft_low']) == summary['cells'][1]['soft']['low']
  assert rows[1]['seconds'] == '' and float(rows[1]['dollars']) == 0.9 / 90


def test_a_price_that_the_run_does_not_name_is_unknown():
  assert SpendConfig().price('somebody') is None
  assert model(Ledger(), 'coder').price is None
  assert model(Ledger(), 'coder', free=True).price == Price()
