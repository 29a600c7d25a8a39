"""A run: order of things, patience, early end, interrupt, resume."""

import dataclasses
import json

import flax.struct
import jax.numpy as jnp
import pytest

from promptrl_jax import settings
from promptrl_jax.training import checkpoint, workdir
from promptrl_jax.training import run as run_lib
from promptrl_jax.training.run import Run, RunConfig, Totals


@flax.struct.dataclass
class State:
  step: jnp.ndarray
  value: jnp.ndarray


def iterate(state):
  new = State(state.step + 1, state.value * 2)
  return new, {
    'rollout/steps': 10.0,
    'budget/calls': 7.0,
    'train/loss': float(new.value),
  }


CONFIG = RunConfig(iterations=6, validate_every=3, checkpoint_every=2)
START = State(jnp.int32(0), jnp.float32(1))
by_step = lambda state: float(state.step)


def train(folder, config=CONFIG, score_fn=by_step, iterate_fn=iterate):
  """Runs to the end; returns the run."""
  with Run(folder, START, config, name='test') as run:
    run.validate(score_fn)
    for _ in run.steps():
      run.log(*iterate_fn(run.state))
      run.validate(score_fn)
  return run


def read(folder):
  lines = (folder / 'metrics.jsonl').read_text().splitlines()
  return [json.loads(line) for line in lines]


def test_each_iteration_has_its_number_and_its_row(tmp_path):
  seen = []
  with Run(tmp_path, START, CONFIG, name='test') as run:
    for step in run.steps():
      seen.append(step)
      run.log(*iterate(run.state))
  assert seen == [row['step'] for row in read(tmp_path)] == list(range(6))


def test_validations_are_where_they_should_be(tmp_path):
  train(tmp_path)
  validated = [r['step'] for r in read(tmp_path) if 'eval/validation_pass' in r]
  assert validated == [2, 5]


def test_totals_add_up_and_are_checkpointed(tmp_path):
  totals = train(tmp_path).totals
  assert totals == Totals(best=6.0, stale=0, env_steps=60, calls=42)
  assert run_lib.restore(tmp_path, START, 'last')[1] == totals


def test_the_best_score_may_be_negative(tmp_path):
  run = train(tmp_path, score_fn=lambda state: -float(state.step))
  assert run.totals.best == -3.0 and run.totals.stale == 1
  state, totals = run_lib.restore(tmp_path, START)
  assert int(state.step) == 3 and totals.best == -3.0


def test_an_iteration_that_is_not_logged_is_refused(tmp_path):
  with (
    pytest.raises(RuntimeError, match='iteration 0 was not logged'),
    Run(tmp_path, START, CONFIG, name='test') as run,
  ):
    for _ in run.steps():
      pass


@pytest.mark.parametrize('how', ['stop', 'break'])
def test_an_early_end_is_clean_and_leaves_a_checkpoint(tmp_path, how):
  with Run(tmp_path, START, CONFIG, name='test') as run:
    for step in run.steps():
      run.log(*iterate(run.state))
      if step == 4 and how == 'stop':
        run.stop()
      run.validate(by_step)
      if step == 4 and how == 'break':
        break
  assert int(run.state.step) == 5
  assert len(read(tmp_path)) == 5
  state, totals = run_lib.restore(tmp_path, START, 'last')
  assert int(state.step) == 5
  # A run that is stopped validates its last state.
  assert totals.best == (5.0 if how == 'stop' else 3.0)


def test_an_interrupt_leaves_the_last_finished_iteration(tmp_path):
  def interrupted(state):
    if int(state.step) == 5:
      raise KeyboardInterrupt
    return iterate(state)

  with pytest.raises(KeyboardInterrupt):
    train(tmp_path, iterate_fn=interrupted)
  assert int(run_lib.restore(tmp_path, START, 'last')[0].step) == 5
  assert float(train(tmp_path).state.value) == 64.0
  whole = tmp_path / 'whole'
  train(whole)
  assert read(tmp_path) == read(whole)


def test_an_interrupted_validation_is_repeated(tmp_path):
  def interrupted(state):
    raise KeyboardInterrupt

  with pytest.raises(KeyboardInterrupt):
    train(tmp_path, score_fn=interrupted)
  # A row without its score would differ from that of a run that went on.
  assert int(run_lib.restore(tmp_path, START, 'last')[0].step) == 2
  train(tmp_path)
  train(tmp_path / 'whole')
  assert read(tmp_path) == read(tmp_path / 'whole')


def test_a_state_that_is_half_consumed_is_not_saved(tmp_path):
  def interrupted(state):
    if int(state.step) == 5:
      state.value.delete()  # as a donated update of one part does
      raise KeyboardInterrupt
    return iterate(state)

  with pytest.raises(KeyboardInterrupt):
    train(tmp_path, iterate_fn=interrupted)
  assert int(run_lib.restore(tmp_path, START, 'last')[0].step) == 4


def test_patience_ends_a_run_and_the_start_may_be_the_best(tmp_path):
  config = RunConfig(9, validate_every=1, checkpoint_every=1, patience=3)
  scores = [1.0, 0.5, 0.75, 0.25, 9.0]
  score_fn = lambda state: scores[int(state.step)]
  run = train(tmp_path, config, score_fn)
  assert int(run.state.step) == 3
  state, totals = run_lib.restore(tmp_path, START)
  assert int(state.step) == 0 and totals.best == 1.0
  # Nothing is left to do when such a run is started again.
  assert int(train(tmp_path, config, score_fn).state.step) == 3
  assert len(read(tmp_path)) == 3


def test_settings_are_a_frozen_dataclass():
  with pytest.raises(dataclasses.FrozenInstanceError):
    CONFIG.iterations = 7


def test_checkpoints_of_another_format_are_refused(tmp_path, monkeypatch):
  with monkeypatch.context() as patch:
    patch.setattr(checkpoint, 'FORMAT', 1)
    train(tmp_path)
  with pytest.raises(ValueError, match=r'format 1, expected 3: .* another dir'):
    train(tmp_path)


def test_a_working_directory_of_another_format_is_refused(tmp_path):
  config = RunConfig(1, 1, 1)
  workdir.prepare(tmp_path, 'job', config, {'coder': 'c@1'})
  workdir.prepare(tmp_path, 'job', config, {'coder': 'c@1'})
  path = tmp_path / 'config.json'
  saved = json.loads(path.read_text())
  assert saved == {
    'format': 3,
    'job': 'job',
    'models': {'coder': 'c@1'},
    'config': settings.to_mapping(config),
  }
  with pytest.raises(ValueError, match="models.coder: 'c@1' there, 'c@2' here"):
    workdir.prepare(tmp_path, 'job', config, {'coder': 'c@2'})
  # A setting that is newer than the run has its default there.
  name, default = 'patience', config.patience
  del saved['config'][name]
  path.write_text(json.dumps(saved))
  changed = dataclasses.replace(config, patience=default + 1)
  with pytest.raises(
    ValueError, match=f'{name}: {default} there, {default + 1}'
  ):
    workdir.prepare(tmp_path, 'job', changed, {'coder': 'c@1'})
  workdir.prepare(tmp_path, 'job', config, {'coder': 'c@1'})
  assert json.loads(path.read_text())['config'][name] == default
  path.write_text(json.dumps({'seed': 0}))  # as version 1 wrote it
  for call in (
    lambda: workdir.prepare(tmp_path, 'job', config),
    lambda: workdir.load_config(tmp_path),
  ):
    (tmp_path / 'results.json').write_text('{}')
    with pytest.raises(ValueError, match='format 1, expected 3: another'):
      call()


def test_two_runs_do_not_train_in_one_folder(tmp_path):
  with Run(tmp_path, START, CONFIG, name='test') as run:
    with pytest.raises(ValueError, match='in use by another process: wait'):
      train(tmp_path)
    for _ in run.steps():
      run.log(*iterate(run.state))
  assert len(read(tmp_path)) == 6
  train(tmp_path)  # The folder is free again.
