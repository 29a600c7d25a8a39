"""Runs cells as JobSets of a Kubernetes cluster, which a Kueue queue admits.

The manifest of a cell is that of `k8s/jobset.yaml` with one process: image,
resources, volumes and restarts are written there. What a cell prints stays with
the cluster (`kubectl logs`).
"""

from __future__ import annotations

import copy
import hashlib
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from launch import cells as cells_lib
from launch import tools
from launch.cells import Cell, State

TEMPLATE = pathlib.Path(__file__).with_name('k8s') / 'jobset.yaml'
# https://kueue.sigs.k8s.io/docs/tasks/run/jobsets
_QUEUE = 'kueue.x-k8s.io/queue-name'
_KIND = 'jobsets.jobset.x-k8s.io'
_OWNER = 'jobset.sigs.k8s.io/jobset-name'
_WORKDIR = 'promptrl/workdir'


class JobSetLauncher:
  """A JobSet for each cell; see `cells.Launcher`."""

  attached = False

  def __init__(self, template: pathlib.Path = TEMPLATE, queue: str = ''):
    """Reads the template.

    Args:
      template: manifest with a JobSet of one container.
      queue: name of the Kueue queue; empty where the cluster has no Kueue.

    Raises:
      ValueError: the template has no such JobSet.
    """
    self._template = _read(template)
    self._queue = queue

  def submit(self, cells: Sequence[Cell]) -> None:
    self._delete(cells)  # What failed cannot start again under its name.
    _kubectl('apply', '--filename=-', text=self.describe(cells))

  def states(self, cells: Sequence[Cell]) -> dict[str, State]:
    text = _kubectl('get', _KIND, '--output=json')
    status = {
      item['metadata']['name']: item.get('status', {})
      for item in json.loads(text)['items']
    }
    return {cell.name: _state(cell, self.name(cell), status) for cell in cells}

  def cancel(self, cells: Sequence[Cell]) -> None:
    states = self.states(cells)
    self._delete([cell for cell in cells if states[cell.name].is_active])

  def describe(self, cells: Sequence[Cell]) -> str:
    manifests = [self.manifest(cell) for cell in cells]
    return yaml.safe_dump_all(manifests, sort_keys=False)

  def name(self, cell: Cell) -> str:
    """Returns the name of the JobSet, the same for the same workdir.

    Names of pods are made of it, which have at most 63 characters.
    """
    digest = hashlib.sha256(str(cell.workdir).encode()).hexdigest()[:10]
    return f'{self._template["metadata"]["name"][:30]}-{digest}'

  def manifest(self, cell: Cell) -> dict[str, Any]:
    """Returns the template with the command of a cell, as one process."""
    jobset = copy.deepcopy(self._template)
    metadata = jobset['metadata']
    metadata['name'] = self.name(cell)
    metadata.setdefault('annotations', {})[_WORKDIR] = str(cell.workdir)
    if self._queue:
      metadata.setdefault('labels', {})[_QUEUE] = self._queue
    job = jobset['spec']['replicatedJobs'][0]['template']['spec']
    job['parallelism'] = job['completions'] = 1
    pod = job['template']['spec']
    pod.pop('subdomain', None)  # No other process looks up its name.
    container = pod['containers'][0]
    container.pop('ports', None)
    # The kubelet would replace $(NAME) by a variable.
    words = [word.replace('$(', '$$(') for word in cell.command]
    container['command'], container['args'] = words[:3], words[3:]
    container.setdefault('env', []).extend(
      {'name': key, 'value': value}
      for key, value in cells_lib.ENVIRONMENT.items()
    )
    return jobset

  def _delete(self, cells: Sequence[Cell]) -> None:
    names = [self.name(cell) for cell in cells]
    if names:
      _kubectl('delete', _KIND, '--ignore-not-found', *names)


def _read(template: pathlib.Path) -> dict[str, Any]:
  with template.open(encoding='utf-8') as file:
    manifests = [m for m in yaml.safe_load_all(file) if m]
  jobsets = [m for m in manifests if m.get('kind') == 'JobSet']
  if len(jobsets) != 1 or len(jobsets[0]['spec']['replicatedJobs']) != 1:
    raise ValueError(
      f'{template} has {len(jobsets)} JobSets: expected one, with one '
      'replicated job'
    )
  return jobsets[0]


def _state(
  cell: Cell, name: str, status: Mapping[str, Mapping[str, Any]]
) -> State:
  if name not in status:
    return cells_lib.state_from_files(cell)
  conditions = {
    condition['type']: condition.get('message', '')
    for condition in status[name].get('conditions', ())
    if condition['status'] == 'True'
  }
  if 'Completed' in conditions:
    return State('done')
  if 'Failed' in conditions:
    return State('failed', _last_line(name) or conditions['Failed'])
  jobs = status[name].get('replicatedJobsStatus', ())
  runs = any(job.get('active', 0) for job in jobs)
  return State('running' if runs else 'pending')


def _last_line(name: str) -> str:
  """Returns what the last pod of a JobSet printed last, if it is there."""
  try:
    text = _kubectl('logs', f'--selector={_OWNER}={name}', '--tail=1')
  except tools.EngineError:
    return ''
  return text.strip()


def _kubectl(*arguments: str, text: str | None = None) -> str:
  """Runs kubectl on the cluster and the namespace of its context."""
  tools.require('jobset', 'kubectl')
  return tools.run('kubectl', *arguments, text=text)
