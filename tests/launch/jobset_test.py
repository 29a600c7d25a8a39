"""Cells as JobSets: manifests, and what kubectl is asked and answers."""

import json
import pathlib
import sys

import pytest
import yaml

from launch import jobset, tools
from launch.cells import Cell, State
from launch.jobset import TEMPLATE, JobSetLauncher

CELL = Cell(
  'base',
  pathlib.Path('/workdir/sweep/base'),
  (
    'python',
    '-m',
    'experiments.joint',
    '--workdir=/workdir/sweep/base',
    '$(A)',
  ),
)
OTHER = Cell(
  'other', pathlib.Path('/workdir/sweep/other'), ('python', '-m', 'x')
)
# Answers as the API server does, from the files of a folder, and notes what it
# was asked.
KUBECTL = """#!{python}
import json, pathlib, sys, yaml
folder = pathlib.Path({folder!r})
verb, *rest = sys.argv[1:]
with open(folder / 'asked', 'a') as file:
  file.write(json.dumps(sys.argv[1:]) + '\\n')
if verb == 'apply':
  for item in yaml.safe_load_all(sys.stdin):
    (folder / (item['metadata']['name'] + '.json')).write_text(json.dumps(item))
elif verb == 'get':
  items = [json.loads(path.read_text()) for path in folder.glob('*.json')]
  print(json.dumps({{'items': items}}))
elif verb == 'delete':
  for name in rest[2:]:
    (folder / (name + '.json')).unlink(missing_ok=True)
elif verb == 'logs':
  print('ValueError: no data')
"""


@pytest.fixture
def cluster(tmp_path, monkeypatch):
  folder = tmp_path / 'cluster'
  folder.mkdir()
  kubectl = tmp_path / 'kubectl'
  kubectl.write_text(
    KUBECTL.format(python=sys.executable, folder=str(folder)), encoding='utf-8'
  )
  kubectl.chmod(0o755)
  monkeypatch.setenv('PATH', f'{tmp_path}:/usr/bin:/bin')
  return folder


def set_status(cluster, name, status):
  path = cluster / f'{name}.json'
  content = json.loads(path.read_text()) | {'status': status}
  path.write_text(json.dumps(content))


def condition(kind, message=''):
  return {
    'conditions': [
      {'type': 'Suspended', 'status': 'False'},
      {'type': kind, 'status': 'True', 'message': message},
    ]
  }


def test_a_manifest_is_the_template_with_the_command_of_a_cell():
  launcher = JobSetLauncher(queue='research')
  first, second = yaml.safe_load_all(launcher.describe([CELL, OTHER]))
  _, template = yaml.safe_load_all(TEMPLATE.read_text())
  assert first['kind'] == 'JobSet'
  assert first['metadata']['labels'] == {
    'kueue.x-k8s.io/queue-name': 'research'
  }
  assert first['metadata']['name'] != second['metadata']['name']
  # Names of pods have a suffix of the job, and at most 63 characters.
  assert len(first['metadata']['name']) < 45
  (job,) = first['spec']['replicatedJobs']
  assert job['template']['spec']['completions'] == 1
  assert job['template']['spec']['parallelism'] == 1
  pod = job['template']['spec']['template']['spec']
  (container,) = pod['containers']
  # What the kubelet does.
  words = [*container['command'], *container['args']]
  assert [word.replace('$$(', '$(') for word in words] == [*CELL.command]
  assert '$$(A)' in words
  assert container['env'] == [{'name': 'PYTHONUNBUFFERED', 'value': '1'}]
  (old,) = template['spec']['replicatedJobs']
  old_pod = old['template']['spec']['template']['spec']
  for key in ('image', 'resources', 'volumeMounts'):
    assert container[key] == old_pod['containers'][0][key]
  assert pod['volumes'] == old_pod['volumes']
  assert first['spec']['failurePolicy'] == template['spec']['failurePolicy']


def test_without_a_queue_there_is_no_label():
  (manifest,) = yaml.safe_load_all(JobSetLauncher().describe([CELL]))
  assert 'labels' not in manifest['metadata']


def test_a_template_without_a_jobset_is_refused(tmp_path):
  path = tmp_path / 'pod.yaml'
  path.write_text('kind: Pod\n')
  with pytest.raises(ValueError, match='has 0 JobSets: expected one'):
    JobSetLauncher(path)


def test_states_are_those_of_the_cluster(cluster):
  launcher = JobSetLauncher()
  assert launcher.states([CELL, OTHER]) == {
    'base': State('missing'),
    'other': State('missing'),
  }
  launcher.submit([CELL, OTHER])
  name = launcher.name(CELL)

  def state():
    return launcher.states([CELL, OTHER])['base']

  assert state() == State('pending')
  set_status(cluster, name, condition('Suspended'))
  assert state() == State('pending')
  set_status(cluster, name, {'replicatedJobsStatus': [{'active': 1}]})
  assert state() == State('running')
  set_status(cluster, name, condition('Completed'))
  assert state() == State('done')
  set_status(cluster, name, condition('Failed', 'too many restarts'))
  assert state() == State('failed', 'ValueError: no data')


def test_what_failed_is_deleted_before_it_is_submitted_again(cluster):
  launcher = JobSetLauncher()
  launcher.submit([CELL])
  set_status(cluster, launcher.name(CELL), condition('Failed'))
  launcher.submit([CELL])
  assert launcher.states([CELL])['base'] == State('pending')
  verbs = [json.loads(x)[0] for x in (cluster / 'asked').open()]
  assert verbs[:4] == ['delete', 'apply', 'delete', 'apply']


def test_only_what_is_active_is_cancelled(cluster):
  launcher = JobSetLauncher()
  launcher.submit([CELL, OTHER])
  set_status(cluster, launcher.name(CELL), condition('Completed'))
  launcher.cancel([CELL, OTHER])
  assert launcher.states([CELL, OTHER]) == {
    'base': State('done'),
    'other': State('missing'),
  }


def test_without_kubectl_there_is_one_clear_line(monkeypatch, tmp_path):
  monkeypatch.setenv('PATH', str(tmp_path))
  with pytest.raises(tools.EngineError, match='needs the command kubectl'):
    JobSetLauncher().submit([CELL])


def test_an_error_of_kubectl_has_its_last_line(monkeypatch, tmp_path):
  kubectl = tmp_path / 'kubectl'
  kubectl.write_text(
    '#!/bin/sh\necho noise >&2; echo "no server" >&2; exit 1\n'
  )
  kubectl.chmod(0o755)
  monkeypatch.setenv('PATH', f'{tmp_path}:/usr/bin:/bin')
  with pytest.raises(tools.EngineError, match='json failed: no server$'):
    JobSetLauncher().states([CELL])
  assert jobset._last_line('name') == ''
