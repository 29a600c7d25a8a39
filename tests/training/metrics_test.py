"""Metric files."""

from __future__ import annotations

import json
import logging
import time

import pytest
from tensorboard.backend.event_processing.event_accumulator import (
  EventAccumulator,
)

from promptrl_jax.training.metrics import MetricWriter


def rows(directory):
  lines = (directory / 'metrics.jsonl').read_text().splitlines()
  return [json.loads(line) for line in lines]


def write(directory, steps, resume_step=0):
  with MetricWriter(directory, resume_step=resume_step) as writer:
    for step in steps:
      writer.write_scalars(step, {'train/loss': step / 4})


def events(directory):
  accumulator = EventAccumulator(str(directory))
  accumulator.Reload()
  return accumulator


def test_a_row_holds_its_step_and_metrics(tmp_path):
  write(tmp_path / 'new', [0, 1])
  assert rows(tmp_path / 'new') == [
    {'step': 0, 'train/loss': 0.0},
    {'step': 1, 'train/loss': 0.25},
  ]


def test_tensorboard_reads_the_same_numbers(tmp_path):
  write(tmp_path, [0, 1, 2])
  scalars = events(tmp_path).Scalars('train/loss')
  assert [(x.step, x.value) for x in scalars] == [(0, 0.0), (1, 0.25), (2, 0.5)]


def test_written_rows_are_readable_while_the_run_goes_on(tmp_path):
  with MetricWriter(tmp_path) as writer:
    writer.write_scalars(0, {'eval/pass_rate': 0.5})
    assert rows(tmp_path) == [{'step': 0, 'eval/pass_rate': 0.5}]


def test_a_resumed_run_leaves_the_file_of_an_uninterrupted_one(tmp_path):
  write(tmp_path / 'whole', range(6))
  write(tmp_path / 'cut', range(5))
  with (tmp_path / 'cut' / 'metrics.jsonl').open('a') as file:
    file.write('{"step": 5, "tra')  # killed in the middle of a row
  # TensorBoard reads files in the order of their names: a time in seconds, and
  # then the number of a writer in this process, of which 10 is before 9.
  time.sleep(1)
  write(tmp_path / 'cut', range(3, 6), resume_step=3)
  whole = (tmp_path / 'whole' / 'metrics.jsonl').read_bytes()
  assert (tmp_path / 'cut' / 'metrics.jsonl').read_bytes() == whole
  scalars = events(tmp_path / 'cut').Scalars('train/loss')
  assert [x.step for x in scalars] == list(range(6))


def test_a_new_run_never_mixes_with_an_older_one(tmp_path):
  write(tmp_path, [0])
  write(tmp_path, [0])
  assert len(rows(tmp_path)) == 1


def test_a_file_that_is_no_metrics_file_is_left_alone(tmp_path):
  path = tmp_path / 'metrics.jsonl'
  path.write_text('hello\n')
  with pytest.raises(ValueError, match=r'metrics\.jsonl:1'):
    MetricWriter(tmp_path, resume_step=2)
  assert path.read_text() == 'hello\n'


def test_what_json_cannot_hold_becomes_null_with_one_warning(tmp_path, caplog):
  with (
    MetricWriter(tmp_path) as writer,
    caplog.at_level(logging.WARNING),
  ):
    writer.write_scalars(0, {'train/loss': float('nan'), 'train/kl': 1.0})
    writer.write_scalars(1, {'train/loss': float('inf')})
  assert rows(tmp_path) == [
    {'step': 0, 'train/loss': None, 'train/kl': 1.0},
    {'step': 1, 'train/loss': None},
  ]
  assert [r.getMessage() for r in caplog.records] == [
    'train/loss is nan at step 0'
  ]


@pytest.mark.parametrize('name', ['loss', 'training/loss', 'train/', 'train'])
def test_names_outside_the_rooms_are_refused(tmp_path, name):
  with (
    MetricWriter(tmp_path) as writer,
    pytest.raises(ValueError, match='train, rollout'),
  ):
    writer.write_scalars(0, {'train/loss': 1.0, name: 1.0})
  assert rows(tmp_path) == []


def test_a_name_may_say_first_whose_it_is(tmp_path):
  with MetricWriter(tmp_path) as writer:
    writer.write_scalars(0, {'rewriter/train/kl': 0.5})
    for name in ('rewriter/kl', 'train', 'rewriter/train/', 'coder/train/kl'):
      with pytest.raises(ValueError, match=name):
        writer.write_scalars(0, {name: 1.0})
  assert rows(tmp_path) == [{'step': 0, 'rewriter/train/kl': 0.5}]
