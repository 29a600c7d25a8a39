"""GRPO on two processes: killed in its third step, it ends as if it was not."""

import json

import pytest

from tests.parallel import processes

# The experiment as users start it. A process may be told to die when it has
# sampled and rewarded a batch and is about to learn from it.
SCRIPT = """
import hashlib, os, signal, sys
import numpy as np
from absl import app

sys.argv = sys.argv[:1]  # a config's default is read on import, overrides too
from experiments import mbpp_grpo
from promptrl_jax.parallel import exchange
from promptrl_jax.training.rewriter.learner import RewriterLearner
from promptrl_jax.training.run import Run

folder, dies_at, *settings = ARGS
update, steps = RewriterLearner.update, Run.steps


def update_or_die(learner, state, rollout, rewards):
  if int(state.step) == int(dies_at) and jax.process_index() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
  return update(learner, state, rollout, rewards)


def digest(state):
  found = hashlib.sha256()
  for leaf in jax.tree.leaves(exchange.to_host(state.train.params)):
    found.update(np.asarray(leaf).tobytes())
  return found.hexdigest()


def steps_and_print(run):
  begun = int(run.state.step), digest(run.state)
  yield from steps(run)
  print('result', *begun, int(run.state.step), digest(run.state), flush=True)


RewriterLearner.update, Run.steps = update_or_die, steps_and_print
flags = ['mbpp_grpo', '--config=configs/mbpp_grpo.py:smoke',
         f'--workdir={folder}', *settings]
if config:
  flags += [
    '--distributed=flags', f'--coordinator={config.coordinator}',
    f'--num_processes={config.processes}', f'--process_id={config.process}',
    '--heartbeat_s=10']
# A core, and so a device, for each.
cores = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, {cores[config.process % len(cores) if config else 0]})
sys.argv = flags
app.run(mbpp_grpo.main)
"""
SETTINGS = (
  '--config.data.train_limit=8',
  '--config.data.validation_limit=4',
  '--config.data.test_limit=4',
  '--config.train.iterations=4',
  '--config.train.rollout.prompts=4',
  '--config.train.rollout.group=4',
  '--config.train.rollout.resample_rounds=1',
  '--config.train.optimizer.warmup=0',
  '--config.validate_every=4',
  '--config.checkpoint_every=1',
  '--config.pool.workers=1',
)
pytestmark = pytest.mark.slow


def start(folder, count=2, dies_at=-1, settings=()):
  return processes.run(
    SCRIPT,
    count,
    str(folder),
    str(dies_at),
    *SETTINGS,
    *settings,
    timeout=900.0,
  )


def results(done):
  """Step and digest of the parameters at the start and at the end."""
  assert not any(d.returncode for d in done), processes.report(done)
  lines = [line for d in done for line in d.stdout.splitlines()]
  found = [line.split()[1:] for line in lines if line.startswith('result ')]
  assert len(found) == len(done) and all(f == found[0] for f in found)
  return found[0]


def rows(folder):
  """Metrics that do not depend on how fast the machine is."""
  text = (folder / 'grpo' / 'seed_0' / 'metrics.jsonl').read_text()
  return [
    {k: v for k, v in json.loads(line).items() if not k.startswith('time/')}
    for line in text.splitlines()
  ]


@pytest.fixture(scope='module')
def uninterrupted(tmp_path_factory):
  folder = tmp_path_factory.mktemp('uninterrupted')
  return results(start(folder)), folder


def test_a_run_that_dies_in_its_third_step_ends_like_one_that_does_not(
  uninterrupted, tmp_path
):
  expected, folder = uninterrupted
  assert expected[0] == '0' and expected[2] == '4'
  assert expected[1] != expected[3]
  # Sums over both processes.
  assert rows(folder)[0]['budget/rewrites'] >= 16

  died = start(tmp_path, dies_at=2)
  assert died[1].returncode == -9
  assert died[0].returncode not in (0, -9), processes.report(died)
  assert len(rows(tmp_path)) == 2
  found = results(start(tmp_path))
  # The last save may have been cut off: then the one before it counts.
  assert found[0] in ('1', '2') and found[2:] == expected[2:]
  assert rows(tmp_path) == rows(folder)
  for name in ('results.md', 'results.csv'):
    assert (tmp_path / name).exists() and (folder / name).exists()


def test_another_number_of_processes_goes_on_and_another_model_does_not(
  tmp_path,
):
  # Each process draws again in the place of its own groups: here, none does.
  once = ['--config.train.rollout.resample_rounds=0']
  results(start(tmp_path / 'whole', settings=once))
  folder = tmp_path / 'interrupted'
  died = start(folder, dies_at=2, settings=once)
  assert died[1].returncode == -9
  changed = [*once, '--config.rewriter.model=minicode_coder']
  for done in start(folder, settings=changed):
    assert done.returncode == 1 and 'another config' in done.stderr, done.stderr
  begun, _, ended, _ = results(start(folder, count=1, settings=once))
  assert begun in ('1', '2') and ended == '4'
  found = rows(folder)
  assert [row['step'] for row in found] == [0, 1, 2, 3]
  # One process draws what two draw, and learns from it what they learn; later
  # on, sums that were added in another order may turn a draw.
  expected, after = rows(tmp_path / 'whole')[int(begun)], found[int(begun)]
  same = ('rollout/steps', 'rollout/groups', 'rollout/length', 'reward/mean')
  same += ('budget/rewrites', 'budget/coder_calls', 'train/tokens')
  assert {k: after[k] for k in same} == pytest.approx(
    {k: expected[k] for k in same}, rel=1e-6
  )
  learned = ('train/loss', 'train/kl', 'train/grad_norm')
  assert {k: after[k] for k in learned} == pytest.approx(
    {k: expected[k] for k in learned}, rel=1e-3, abs=1e-5
  )


def test_processes_that_cannot_share_prompts_are_refused(tmp_path):
  done = start(tmp_path, settings=['--config.train.rollout.prompts=3'])
  for process in done:
    assert process.returncode == 1
    assert 'rollout.prompts=3 cannot be shared equally' in process.stderr
