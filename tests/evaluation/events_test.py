"""The stream of events of a comparison, and what follows it."""

import json

import pytest
from tensorboard.backend.event_processing.event_accumulator import (
  EventAccumulator,
)

from promptrl_jax.evaluation import events


@pytest.fixture
def played(make_cell):
  """Cells of two strategies at two budgets, in the order of a run."""
  return [
    make_cell(name, budget, rate)
    for budget in (1, 4)
    for name, rate in (('direct', 0.2), ('ppo', 0.7))
  ]


def scalars(folder, tag):
  accumulator = EventAccumulator(str(folder))
  accumulator.Reload()
  return {x.step: x.value for x in accumulator.Scalars(tag)}


def assert_curves(workdir, cells):
  """TensorBoard and the rows beside it show these cells, each once."""
  for name in {cell.strategy for cell in cells}:
    folder = workdir / 'curves/visible1' / name
    mine = {c.budget: c for c in cells if c.strategy == name}
    for tag, field in (
      ('eval/pass_at_1', 'passed'),
      *((f'eval/{cost}', cost) for cost in events.COSTS),
    ):
      expected = {b: getattr(c, field).mean() for b, c in mine.items()}
      assert scalars(folder, tag) == pytest.approx(expected)
    lines = (folder / 'metrics.jsonl').read_text().splitlines()
    assert [json.loads(line)['step'] for line in lines] == sorted(mine)


def test_file_bar_and_curves_follow_one_stream(tmp_path, played, capsys):
  with events.open_stream(tmp_path) as stream:
    stream.add('start', cells=len(played))
    for number, cell in enumerate(played, start=1):
      stream.add_cell(cell, seconds=1.5, dollars=0.25)
      assert_curves(tmp_path, played[:number])  # As cells end.
    stream.add('done', cells=len(played))
  seen = events.read(events.path(tmp_path))
  assert [e['event'] for e in seen] == ['start', *['cell'] * 4, 'done']
  assert {e['seconds'] for e in seen[1:-1]} == {1.5}
  bar = capsys.readouterr().err.split('\r')[-1]
  best = played[3].passed.mean()
  assert '4/4' in bar and f'B=4 best ppo {best:.1%}' in bar


def test_a_run_that_goes_on_shows_what_was_played_before(
  tmp_path, played, capsys
):
  with events.open_stream(tmp_path) as stream:
    stream.add('start', cells=4)
    for cell in (*played[:2], played[3]):  # One of a smaller B comes later.
      stream.add_cell(cell, seconds=None, dollars=None)
    stream.add('stopped', cells=3)
  (tmp_path / 'curves').rename(tmp_path / 'lost')
  with events.open_stream(tmp_path) as stream:
    assert_curves(tmp_path, (*played[:2], played[3]))
    stream.add('start', cells=4)
    assert ('visible1', 'direct', 4) not in stream.cells
    stream.add_cell(played[2], seconds=None, dollars=None)
    stream.add_cell(
      played[2], seconds=None, dollars=None
    )  # Once is enough for the bar.
    assert ('visible1', 'direct', 4) in stream.cells
  assert_curves(tmp_path, played)
  bar = capsys.readouterr().err.split('\r')[-1]
  assert '4/4' in bar and 'B=4 best ppo' in bar


def test_events_of_earlier_versions_have_no_tokens(tmp_path):
  events.path(tmp_path).write_text(
    '{"event": "cell", "strategy": "direct", "budget": 2, '
    '"protocol": "visible1", "calls": 1.0, "seconds": 2.0, "pass": 0.5}\n'
  )
  with events.open_stream(tmp_path) as stream:
    assert stream.cells == {('visible1', 'direct', 2)}
  folder = tmp_path / 'curves/visible1/direct'
  assert scalars(folder, 'eval/calls') == {2: 1.0}


def test_events_of_a_killed_process_are_whole_lines(tmp_path):
  path = tmp_path / 'events.jsonl'
  stream = events.Stream(events.EventLog(path))
  stream.add('start', cells=1)
  stream.close()
  with path.open('a') as file:
    file.write('{"event": "ce')
  assert [event['event'] for event in events.read(path)] == ['start']
  stream = events.Stream(events.EventLog(path))
  stream.add('done', cells=1)
  with pytest.raises(ValueError, match="event 'end': expected one of"):
    stream.add('end')
  stream.close()
  kinds = [json.loads(line)['event'] for line in path.read_text().splitlines()]
  assert kinds == ['start', 'done']
