"""Cells as tasks of a Slurm job array, with the real submitit."""

import contextlib
import os
import signal
import sys

import pytest

from launch import slurm, tools
from launch.cells import Cell, State, recorded_job
from launch.slurm import Run, SlurmLauncher
from tests.launch.processes import DONE, make, wait, wait_for

# A Slurm of one machine: `sbatch` starts the tasks of an array, `srun` becomes
# its command, `squeue` lists the tasks that run, `scontrol requeue` starts one
# again, and `scancel` kills it.
SLURM = """#!{python}
import os, pathlib, re, signal, subprocess, sys
folder, tool = pathlib.Path({folder!r}), os.path.basename(sys.argv[0])

def start(script, task):
  env = dict(os.environ, SLURM_JOB_ID='7', SLURM_ARRAY_JOB_ID='7',
             SLURM_ARRAY_TASK_ID=task, SLURM_NTASKS='1', SLURM_PROCID='0',
             SLURM_NODEID='0', SLURM_LOCALID='0', SLURM_JOB_NUM_NODES='1')
  batch = subprocess.Popen(['bash', script], env=env, start_new_session=True,
                           stdout=subprocess.DEVNULL,
                           stderr=open(folder / 'errors', 'ab'))
  (folder / f'7_{{task}}').write_text(f'{{batch.pid}} {{script}}')

def runs(pid):
  try:
    return open(f'/proc/{{pid}}/stat').read().split()[2] != 'Z'
  except OSError:
    return False

if tool == 'sbatch':
  text = open(sys.argv[-1]).read()
  (folder / 'script').write_text(text)
  for task in range(int(re.search(r'--array=0-(\\d+)', text)[1]) + 1):
    start(sys.argv[-1], str(task))
  print('Submitted batch job 7')
elif tool == 'srun':
  (folder / f'step_{{os.environ["SLURM_ARRAY_TASK_ID"]}}').write_text(
    str(os.getpid()))
  command = sys.argv[sys.argv.index('--error') + 2:]
  os.execvp(command[0], command)
elif tool == 'squeue':
  for path in folder.glob('7_*'):
    if runs(int(path.read_text().split()[0])):
      print(path.name, 'RUNNING')
elif tool == 'scancel':
  for job in sys.argv[1:]:
    os.killpg(int((folder / job).read_text().split()[0]), signal.SIGKILL)
elif tool == 'scontrol':
  job = sys.argv[2]
  start((folder / job).read_text().split()[1], job.partition('_')[2])
"""


@pytest.fixture
def cluster(tmp_path, monkeypatch):
  folder = tmp_path / 'cluster'
  folder.mkdir()
  script = SLURM.format(python=sys.executable, folder=str(folder))
  for name in ('sbatch', 'srun', 'squeue', 'scancel', 'scontrol'):
    (tmp_path / name).write_text(script, encoding='utf-8')
    (tmp_path / name).chmod(0o755)
  monkeypatch.setenv('PATH', f'{tmp_path}:{os.environ["PATH"]}')
  yield folder
  for path in folder.glob('7_*'):
    with contextlib.suppress(ProcessLookupError):
      os.killpg(int(path.read_text().split()[0]), signal.SIGKILL)


# Runs for long at first; if it is interrupted, it is quick the next time.
RESUMED = f"""
if [ -e "$0/saved" ]; then {DONE}; exit; fi
trap 'touch "$0/saved"; exit 1' INT
echo $$ > "$0/pid"
sleep 600 & wait
"""


def test_an_array_runs_resumes_and_fails(cluster, tmp_path):
  pytest.importorskip('submitit', reason='the extra slurm is not installed')
  launcher = SlurmLauncher(tmp_path, 2, {'slurm_partition': 'cpu'})
  cells = [
    make(tmp_path, DONE, 'a'),
    make(tmp_path, 'echo "error: no data"; exit 3', 'b'),
    make(tmp_path, RESUMED, 'c'),
    make(tmp_path, 'touch "$0/ready"; sleep 600', 'd'),
  ]
  assert {s.kind for s in launcher.states(cells).values()} == {'missing'}
  launcher.submit(cells)
  assert recorded_job(cells[2]) == '7_2'
  states = wait(launcher, cells[:2], within=60.0)
  assert states['a'] == State('done')
  assert states['b'] == State('failed', 'error: no data')
  script = (cluster / 'script').read_text()
  for line in ('--array=0-3%2', '--partition=cpu', '--requeue', '--time=1440'):
    assert f'#SBATCH {line}\n' in script

  # The task is preempted: Slurm signals each of its processes.
  wait_for(cells[2].workdir / 'pid')
  for path in (cells[2].workdir / 'pid', cluster / 'step_2'):
    os.kill(int(path.read_text()), signal.SIGUSR2)
  wait_for(cells[2].workdir / 'saved')
  wait_for(cells[2].results, within=60.0)
  assert wait(launcher, cells[2:3]) == {'c': State('done')}

  wait_for(cells[3].workdir / 'ready')
  assert launcher.states(cells)['d'] == State('running')
  launcher.cancel(cells)
  assert wait(launcher, cells)['d'].kind == 'failed'
  assert launcher.states(cells)['a'] == State('done')


def test_an_unknown_parameter_is_refused(cluster, tmp_path):
  pytest.importorskip('submitit', reason='the extra slurm is not installed')
  launcher = SlurmLauncher(tmp_path, options={'slurm_partitoin': 'gpu'})
  with pytest.raises(ValueError, match='slurm_partitoin'):
    launcher.submit([make(tmp_path, DONE)])


def test_without_submitit_the_extra_is_named(cluster, tmp_path, monkeypatch):
  monkeypatch.setitem(sys.modules, 'submitit', None)
  with pytest.raises(ImportError, match=r'promptrl_jax\[slurm\]'):
    SlurmLauncher(tmp_path).submit([make(tmp_path, DONE)])


def test_without_slurm_there_is_one_clear_line(tmp_path, monkeypatch):
  monkeypatch.setenv('PATH', str(tmp_path))
  with pytest.raises(tools.EngineError, match='needs the command sbatch'):
    SlurmLauncher(tmp_path).submit([make(tmp_path, DONE)])


def test_a_task_runs_its_command_and_a_failure_is_one(tmp_path):
  log = tmp_path / 'log'
  Run(('echo', 'hello'), str(log))()
  with pytest.raises(RuntimeError, match='ended with status 3'):
    Run(('sh', '-c', 'echo twice; exit 3'), str(log))()
  assert log.read_text() == 'hello\ntwice\n'


def test_what_would_be_submitted_is_printed_as_it_is(tmp_path):
  cell = Cell('base', tmp_path, ('python', '-m', 'x', '--config.a=(1, 2)'))
  launcher = SlurmLauncher(tmp_path, 4, slurm.parse(['slurm_qos=low']))
  assert (
    launcher.describe([cell])
    == """\
# submitit parameters of an array of 1
{
  "name": "promptrl",
  "nodes": 1,
  "tasks_per_node": 1,
  "timeout_min": 1440,
  "slurm_signal_delay_s": 120,
  "slurm_additional_parameters": {
    "requeue": true
  },
  "slurm_array_parallelism": 4,
  "slurm_qos": "low"
}
# one command for each task
python -m x '--config.a=(1, 2)'
"""
  )


def test_parameters_are_numbers_where_they_look_like_one():
  assert slurm.parse(['timeout_min=60', 'slurm_time=1-00', 'a=']) == {
    'timeout_min': 60,
    'slurm_time': '1-00',
    'a': '',
  }
  for text in ('partition', '=1'):
    with pytest.raises(ValueError, match=f'--slurm={text}: expected NAME'):
      slurm.parse([text])
