"""The table of a sweep and what TensorBoard's hparams plug-in reads of it."""

import csv
import json
import pathlib
import shutil

import numpy as np
import pytest
from tensorboard.backend.event_processing import (
  data_provider,
  plugin_event_multiplexer,
)
from tensorboard.context import RequestContext
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.hparams import api_pb2, backend_context
from tensorboard.plugins.hparams import get_experiment as experiment_lib
from tensorboard.plugins.hparams import list_session_groups as sessions_lib

from launch import report
from launch.cells import Cell, State
from launch.report import Metric
from promptrl_jax.evaluation.cells import Cell as CellOfReport
from promptrl_jax.evaluation.cells import write_csv
from promptrl_jax.training import workdir

PUBLISHED = pathlib.Path(__file__).parents[2] / 'docs' / 'results'


@pytest.fixture
def sweep(tmp_path):
  """Cells with published results, one that failed and one that is missing."""
  cells = []
  for name, source, observation in (
    ('base', 'minicode2', 'rich'),
    ('legacy', 'minicode2/ood', 'legacy'),
    ('failed', '', 'a|b'),
  ):
    folder = tmp_path / name
    folder.mkdir()
    if source:
      shutil.copy(PUBLISHED / source / 'results.json', folder)
    deviations = {} if name == 'base' else {'editing.observation': observation}
    settings = {'editing.observation': observation, 'ppo.lr': 0.5, 'a': (1, 2)}
    cells.append(Cell(name, folder, ('true',), deviations, settings))
  states = {
    'base': State('done'),
    'legacy': State('done'),
    'failed': State('failed', 'error: a | b'),
  }
  return tmp_path, cells, states


def test_the_headline_is_what_the_subject_reached():
  metrics = report.headline(workdir.results(PUBLISHED / 'minicode2'))
  assert list(metrics) == [f'visible1 B={b}' for b in (1, 2, 4, 8, 16)]
  # The numbers of the README.
  assert [f'{100 * m.mean:.1f}' for m in metrics.values()] == [
    *('51.0', '65.0', '71.2', '75.3', '78.2')
  ]
  assert all(m.low < m.mean < m.high for m in metrics.values())


def test_jobs_with_other_results_have_a_headline_too():
  metrics = report.headline(workdir.results(PUBLISHED / 'mbpp/rewriter'))
  assert list(metrics) == ['visible1 B=2']
  metrics = report.headline(workdir.results(PUBLISHED / 'mbpp/instruction'))
  assert 'test initial' in metrics
  assert report.headline({'table': {'initial': {'dev': 0.25}}}) == {
    'dev initial': Metric(0.25)
  }


def test_a_row_has_its_deviations_its_state_and_its_results(sweep):
  folder, cells, states = sweep
  text = report.write(folder, 'configs/x.py', cells, states)
  assert (folder / 'sweep.md').read_text() == text
  title, _, head, _, *rows = text.splitlines()
  assert title.startswith('configs/x.py: what each cell reached, in %')
  assert head.startswith('| deviations | state | visible1 B=1 |')
  assert rows[0].startswith('| none | done | 51.0 [')
  assert rows[1].startswith('| editing.observation=legacy | done | ')
  # What is no end of a column is escaped, and there are no results.
  start = '| editing.observation=a\\|b | failed: error: a \\| b |'
  assert rows[2].startswith(start) and set(rows[2][len(start) :]) <= set(' |')
  assert len(rows) == 3


def test_the_same_numbers_are_in_a_file_for_programs(sweep):
  folder, cells, states = sweep
  report.write(folder, 'configs/x.py', cells, states)
  with (folder / 'sweep.csv').open() as file:
    rows = {row['cell']: row for row in csv.DictReader(file)}
  metric = report.headline(workdir.results(folder / 'base'))['visible1 B=8']
  base = rows['base']
  assert float(base['visible1 B=8']) == metric.mean
  assert float(base['visible1 B=8 low']) == metric.low
  assert float(base['visible1 B=8 high']) == metric.high
  assert base['editing.observation'] == 'rich' and base['a'] == '(1, 2)'
  assert rows['failed']['state'] == 'failed'
  assert rows['failed']['detail'] == 'error: a | b'
  assert rows['failed']['visible1 B=8'] == ''


def write_played(folder, passed, tasks):
  """A run that played `ppo` and `direct` at B=4, one seed."""
  zeros = np.zeros((1, len(tasks)), int)
  played = [
    CellOfReport(
      name, 4, 'visible1', tasks, *[x, x.astype(float)], *[zeros] * 4
    )
    for name, x in (('direct', zeros > 0), ('ppo', np.array([passed]) > 0))
  ]
  folder.mkdir()
  write_csv(folder / 'results.csv', played)
  share = float(np.mean(passed))
  mean = {'mean': share, 'low': share, 'high': share}
  cells = [{'strategy': 'ppo', 'budget': 4, 'pass': mean}]
  table = {'subject': 'ppo', 'cells': cells}
  text = json.dumps({'tables': {'visible1': table}})
  (folder / 'results.json').write_text(text)


def test_cells_are_compared_with_the_first_one_problem_by_problem(tmp_path):
  tasks = tuple(f'task/{i}' for i in range(40))
  half = [1] * 20 + [0] * 20
  write_played(tmp_path / 'base', half, tasks)
  write_played(tmp_path / 'worse', [0] * 20 + half[20:], tasks)
  write_played(tmp_path / 'even', half[::-1], tasks)
  write_played(tmp_path / 'elsewhere', half[:30], tasks[:30])
  cells = [
    Cell(name, tmp_path / name, ('true',), {'x': name}, {'x': name})
    for name in ('base', 'worse', 'even', 'elsewhere', 'failed')
  ]
  states = {cell.name: State('done') for cell in cells}
  differences = report.compare(cells)
  assert set(differences) == {'worse', 'even', 'elsewhere'}
  worse, even = (
    differences[name]['visible1 B=4'] for name in ('worse', 'even')
  )
  assert (worse.mean, even.mean) == (-0.5, 0.0)
  assert (
    -0.7 < worse.low < -0.5 < worse.high < -0.3 and even.low < 0 < even.high
  )
  # Few of the random sign patterns of 20 problems are as extreme.
  assert worse.p < 0.001 and even.p == 1.0
  assert not differences['elsewhere']  # It has other problems.
  text = report.write(tmp_path, 'configs/x.py', cells, states)
  assert (
    ' | visible1 B=4 minus base |' in text
    and 'adjusted for all of them (Holm)' in text
  )
  assert '| -50.0 [-6' in text and '| +0.0 [-' in text
  with (tmp_path / 'sweep.csv').open() as file:
    rows = {row['cell']: row for row in csv.DictReader(file)}
  assert float(rows['worse']['visible1 B=4 minus base p']) == worse.p
  assert rows['elsewhere']['visible1 B=4 minus base'] == ''


def read_hparams(folder):
  """What the plug-in shows: settings, metrics, and the runs with both."""
  events = plugin_event_multiplexer.EventMultiplexer()
  events.AddRunsFromDirectory(str(folder))
  events.Reload()
  provider = data_provider.MultiplexerDataProvider(events, str(folder))
  context = backend_context.Context(TBContext(data_provider=provider))
  who = RequestContext()
  request = api_pb2.GetExperimentRequest(include_metrics=True)
  experiment = experiment_lib.Handler(who, context, '', request).run()
  request = api_pb2.ListSessionGroupsRequest(
    allowed_statuses=api_pb2.Status.values(),
    slice_size=100,
    col_params=[
      *(api_pb2.ColParams(hparam=x.name) for x in experiment.hparam_infos),
      *(api_pb2.ColParams(metric=x.name) for x in experiment.metric_infos),
    ],
    include_metrics=True,
  )
  groups = sessions_lib.Handler(who, context, '', request).run()
  return experiment, groups.session_groups


def test_tensorboard_shows_settings_differences_results(sweep):
  folder, cells, states = sweep
  for _ in range(2):  # The second report replaces the first one.
    report.write(folder, 'configs/x.py', cells, states)
  experiment, groups = read_hparams(folder / 'hparams')
  assert {info.name for info in experiment.hparam_infos} == {
    *('editing.observation', 'ppo.lr', 'a')
  }
  by_name = {group.name: group for group in groups}
  assert set(by_name) == {'base', 'legacy'}
  base = by_name['base']
  assert base.hparams['editing.observation'].string_value == 'rich'
  assert base.hparams['ppo.lr'].number_value == 0.5
  assert base.hparams['a'].string_value == '(1, 2)'
  values = {m.name.tag: m.value for m in base.metric_values}
  metrics = report.headline(workdir.results(folder / 'base'))
  assert values == pytest.approx({k: m.mean for k, m in metrics.items()})
  assert not (folder / '.hparams.tmp').exists()
