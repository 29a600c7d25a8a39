"""The files for Slurm and Kubernetes agree with the flags."""

import os
import pathlib
import subprocess
import sys

import yaml
from absl import flags

from promptrl_jax.tools import distributed_flags

LAUNCH = pathlib.Path(__file__).parents[2] / 'launch'


def read_jobset():
  text = (LAUNCH / 'k8s' / 'jobset.yaml').read_text()
  service, jobset = yaml.safe_load_all(text)
  (job,) = jobset['spec']['replicatedJobs']
  return service, jobset, job, job['template']['spec']


def test_the_flags_of_the_jobset_name_a_pod_that_there_will_be():
  service, jobset, job, spec = read_jobset()
  values = flags.FlagValues()
  distributed_flags.define(values)
  pod = spec['template']['spec']
  (container,) = pod['containers']
  # What the kubelet does.
  arguments = [
    argument.replace('$(JOB_COMPLETION_INDEX)', '3')
    for argument in container['args']
  ]
  values(['program', *arguments], known_only=True)
  parsed = distributed_flags.config(values)
  assert parsed.processes == spec['completions'] == spec['parallelism']
  assert parsed.process == 3 and spec['completionMode'] == 'Indexed'
  host, port = parsed.coordinator.split(':')
  # <JobSet>-<job>-<replica>-<pod>.<service>
  name = f'{jobset["metadata"]["name"]}-{job["name"]}-0-0'
  assert host == f'{name}.{service["metadata"]["name"]}'
  assert pod['subdomain'] == service['metadata']['name']
  assert container['ports'] == [{'containerPort': int(port)}]


def test_the_service_finds_the_pods_before_they_are_ready():
  service, jobset, _, _ = read_jobset()
  label = 'jobset.sigs.k8s.io/jobset-name'
  assert service['spec']['selector'] == {label: jobset['metadata']['name']}
  assert service['spec']['clusterIP'] == 'None'
  assert service['spec']['publishNotReadyAddresses'] is True


def test_a_dead_process_starts_all_again():
  _, jobset, job, spec = read_jobset()
  assert jobset['spec']['failurePolicy']['maxRestarts'] > 0
  assert job['replicas'] == 1 and spec['backoffLimit'] == 0
  assert spec['template']['spec']['restartPolicy'] == 'Never'


def test_every_volume_that_is_mounted_is_there():
  *_, spec = read_jobset()
  pod = spec['template']['spec']
  mounted = {m['name'] for m in pod['containers'][0]['volumeMounts']}
  assert mounted == {volume['name'] for volume in pod['volumes']}


def submit(tmp_path, *arguments):
  """Runs the batch script with an `srun` that starts two tasks."""
  srun = tmp_path / 'srun'
  srun.write_text(
    '#!/usr/bin/env bash\n'
    'while [[ $1 == --* ]]; do shift; done\n'
    'for i in 0 1; do\n'
    '  export SLURM_JOB_ID=9 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2\n'
    '  SLURM_PROCID=$i SLURM_STEP_NODELIST="n[1-2]" "$@" || exit\n'
    'done\n'
  )
  srun.chmod(0o755)
  return subprocess.run(
    ['bash', str(LAUNCH / 'slurm.sbatch'), *arguments],
    cwd=LAUNCH.parent,
    env={
      **os.environ,
      'PATH': f'{tmp_path}:{os.environ["PATH"]}',
      'https_proxy': 'http://nowhere:1',
    },
    capture_output=True,
    text=True,
    check=False,
  )


TASK = """
import os, sys
from absl import flags
from promptrl_jax.tools import distributed_flags
distributed_flags.define()
flags.FLAGS(sys.argv)
print(distributed_flags.config(), os.environ.get('https_proxy'))
"""


def test_the_batch_script_starts_tasks_that_know_who_they_are(tmp_path):
  done = submit(tmp_path, sys.executable, '-c', TASK)
  assert done.returncode == 0, done.stderr
  lines = done.stdout.splitlines()
  for process, line in enumerate(lines):
    expected = f"coordinator='n1:20063', processes=2, process={process}"
    assert expected in line and line.endswith(' None')
  assert len(lines) == 2


def test_the_batch_script_without_a_command_is_refused(tmp_path):
  done = submit(tmp_path)
  assert done.returncode == 2 and 'usage: sbatch' in done.stderr
