"""The page of a finished run, from the files in its workdir."""

import json

import pytest

from configs.mbpp_ppo import Config
from promptrl_jax.evaluation import cells
from promptrl_jax.tasks.load import describe, load_tasks
from promptrl_jax.tasks.task_set import DataConfig
from promptrl_jax.tools import html_report
from promptrl_jax.training import workdir as workdir_lib
from tests.evaluation.html_run import CELLS, LEARNING, OPERATORS, make_run


@pytest.fixture
def workdir(tmp_path):
  run = make_run(tmp_path)
  content = {
    **{'header': run.header, 'tables': run.summaries},
    'operators': OPERATORS,
  }
  (tmp_path / 'learning.json').write_text(json.dumps(LEARNING))
  (tmp_path / 'results.json').write_text(json.dumps(content))
  cells.write_csv(tmp_path / 'results.csv', CELLS)
  return tmp_path


def data_of(path):
  page = path.read_text(encoding='utf-8')
  start = '<script type="application/json" id="report-data">'
  return json.loads(page.partition(start)[2].partition('</script>')[0])


def test_it_reads_what_a_run_leaves(workdir):
  path = html_report.run(workdir)
  assert path == workdir / 'report.html'
  data = data_of(path)
  assert data['trace']['games'][0]['outcomes'] == 'smmumm'
  assert list(data['protocols']['visible1']['groups']) == [
    *('first failure of direct', 'family')
  ]
  assert (data['operators'], data['learning']) == (OPERATORS, LEARNING)
  assert data['references']['rows'] == []  # Of another protocol.


def test_it_does_with_the_results_alone(workdir, tmp_path):
  (workdir / 'results.csv').unlink()
  (workdir / 'trace.jsonl').unlink()
  (workdir / 'learning.json').unlink()
  data = data_of(html_report.run(workdir, tmp_path / 'other.html'))
  assert data['trace'] is None and data['learning'] == []
  assert data['protocols']['visible1']['cells']


def test_registers_are_those_of_the_data_of_the_run(tmp_path):
  data = DataConfig('minicode')
  workdir_lib.prepare(tmp_path, 'mbpp_ppo', Config(data=data))
  found = html_report._registers(tmp_path, describe(data))
  assert set(found.values()) == {'canonical', 'paraphrased', 'terse', 'noisy'}
  task = load_tasks(data, ('test',))['test'][0]
  assert found[task.task_id] == task.register
  assert html_report._registers(tmp_path, 'minicode 0123') == {}


def test_a_folder_without_results_and_another_kind_of_run_are_named(tmp_path):
  with pytest.raises(FileNotFoundError, match='is .* a finished run'):
    html_report.run(tmp_path)
  (tmp_path / 'results.json').write_text('{"header": {}, "cells": []}')
  with pytest.raises(ValueError, match=r"holds \['cells', 'header'\]"):
    html_report.run(tmp_path)
