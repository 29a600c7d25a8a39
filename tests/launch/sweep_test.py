"""The command: what it prints, submits, leaves alone and reports."""

import pathlib
import shlex
import subprocess
import sys

import pytest
import yaml

from configs import joint
from launch import sweep
from launch.cells import State
from launch.local import LocalLauncher
from tests.launch.processes import DONE, make

ROOT = pathlib.Path(__file__).parents[2]


def call(workdir, *arguments, config='configs/joint.py:smoke', path=None):
  return subprocess.run(
    [
      *(sys.executable, '-m', 'launch.sweep', f'--config={config}'),
      *(f'--workdir={workdir}', *arguments),
    ],
    capture_output=True,
    text=True,
    check=False,
    cwd=ROOT,
    env={'PATH': path or '/usr/bin:/bin', 'JAX_PLATFORMS': 'cpu'},
    timeout=120,
  )


def expected(workdir, python):
  """The commands of the sweep of `joint`, written out."""
  command = [
    python,
    '-m',
    'experiments.joint',
    '--config=configs/joint.py:smoke',
  ]
  folders = ['base', *(f'arms.both=-{a},-{b}' for a, b in turns())]
  flags = [[], *([f'--config.arms.both=({a}, {b})'] for a, b in turns())]
  return [
    [*command, f'--workdir={workdir}/{folder}', '--config.seed=3', *more]
    for folder, more in zip(folders, flags, strict=True)
  ]


def turns():
  return [row['arms.both'] for row in joint.get_hyper()]


def test_a_dry_run_prints_the_commands_and_leaves_nothing(tmp_path):
  done = call(tmp_path / 'W', '--dry_run', '--', '--config.seed=3')
  assert done.returncode == 0, done.stderr
  commands = expected(tmp_path / 'W', sys.executable)
  assert done.stdout == ''.join(f'{shlex.join(x)}\n' for x in commands)
  assert not (tmp_path / 'W').exists()


def test_a_dry_run_prints_manifests_where_there_is_no_kubectl(tmp_path):
  done = call(
    '/workdir/W',
    *('--dry_run', '--engine=jobset', '--queue=q', '--', '--config.seed=3'),
    path=str(tmp_path),
  )
  assert done.returncode == 0, done.stderr
  assert 'what runs already is not known: --engine=jobset' in done.stderr
  manifests = list(yaml.safe_load_all(done.stdout))
  for manifest, command in zip(
    manifests, expected('/workdir/W', 'python'), strict=True
  ):
    assert manifest['metadata']['labels']['kueue.x-k8s.io/queue-name'] == 'q'
    (job,) = manifest['spec']['replicatedJobs']
    pod = job['template']['spec']['template']['spec']
    (container,) = pod['containers']
    assert [*container['command'], *container['args']] == command


def test_a_dry_run_names_the_parameters_of_submitit(tmp_path):
  done = call(tmp_path, '--dry_run', '--engine=slurm', '--slurm=mem_gb=8')
  assert done.returncode == 0, done.stderr
  assert '"mem_gb": 8' in done.stdout
  assert done.stdout.count('-m experiments.joint') == 1 + len(turns())


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (['--engine=slurm', '--slurm=partition'], 'expected NAME=VALUE'),
    (['--mode=cancel'], 'local cells are ended with Ctrl-C'),
    (['--engine=jobset', '--jobset=nothing.yaml'], 'nothing.yaml'),
  ],
)
def test_bad_calls_get_one_line(tmp_path, arguments, message):
  done = call(tmp_path / 'W', *arguments)
  assert done.returncode == 1
  (line,) = done.stderr.strip().splitlines()
  assert line.startswith('error: ') and message in line
  assert not (tmp_path / 'W').exists()


def test_a_report_may_be_made_before_all_is_done(tmp_path):
  done = call(tmp_path, '--mode=report')
  assert done.returncode == 0, done.stderr
  text = (tmp_path / 'sweep.md').read_text()
  assert text in done.stdout and '| none | missing |' in text
  assert '| arms.both=(1, 2) | missing |' in text


def test_the_same_command_goes_on(tmp_path, capsys):
  # It fails until there is a file, and counts how often it is run.
  script = f'echo >> "$0/runs"; test -e "$0/../data" || exit 1; {DONE}'
  cells = [
    make(tmp_path, f'echo >> "$0/runs"; {DONE}', 'good'),
    make(tmp_path, f'{script}; echo late >&2', 'bad'),
  ]

  def run():
    launcher = LocalLauncher()
    sweep.run(launcher, cells)
    launcher.close()
    return launcher.states(cells)

  def runs(cell):
    return len((cell.workdir / 'runs').read_text())

  assert {n: s.kind for n, s in run().items()} == {
    'good': 'done',
    'bad': 'failed',
  }
  assert '2 of 2 cells are submitted\n' in capsys.readouterr().out
  (tmp_path / 'data').touch()
  assert run() == {'good': State('done'), 'bad': State('done')}
  assert [runs(cell) for cell in cells] == [1, 2]
  out = capsys.readouterr().out
  assert out.startswith('good: done\nbad: failed: ')
  assert '1 of 2 cells are submitted\n' in out and 'bad: done\n' in out
  run()
  assert [runs(cell) for cell in cells] == [1, 2]


def test_a_cluster_is_not_waited_for(tmp_path):
  class Cluster:
    attached = False
    submitted = ()

    def states(self, cells):
      kinds = ('done', 'failed', 'missing', 'pending', 'running')
      return {c.name: State(k) for c, k in zip(cells, kinds, strict=True)}

    def submit(self, cells):
      self.submitted = [cell.name for cell in cells]

  cluster = Cluster()
  sweep.run(cluster, [make(tmp_path, 'true', name) for name in 'abcde'])
  assert cluster.submitted == ['b', 'c']
