"""The benchmark prints a JSON line per part, and training compiles once."""

import json

import pytest

from tests.experiments import commands


def run(*flags):
  return commands.run('experiments.bench', *flags)


def lines(*flags):
  done = run(*flags)
  assert done.returncode == 0, done.stderr[-2000:]
  return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_parts_are_json_lines():
  # A difference of two medians: one run of each may be the other way round.
  (decode,) = lines('--parts=decode', '--batch=4')
  assert decode['part'] == 'decode'
  assert decode['tokens_per_s'] > 0 and 0 < decode['share_of_floor'] < 2


@pytest.mark.slow
def test_an_unknown_part_is_told():
  done = run('--parts=decoding')
  assert done.returncode != 0
  assert '--parts=decoding: expected decode, episodes' in done.stderr


@pytest.mark.slow
def test_nothing_is_compiled_after_warm_up():
  (episodes,) = lines('--parts=episodes')
  assert episodes['episodes_per_s'] > 0 and episodes['programs_compiled'] > 0
  assert episodes['compiled_after_warm_up'] == 0


@pytest.mark.slow
@pytest.mark.timed
def test_a_second_start_is_short(monkeypatch):
  # Flags with which tests compile in no time leave nothing to save.
  monkeypatch.delenv('XLA_FLAGS', raising=False)
  done = commands.run_fresh('experiments.bench', '--parts=start')
  assert done.returncode == 0, done.stderr[-2000:]
  start = json.loads(done.stdout)
  assert start['first_compile_s'] < 10
  assert start['second_compile_s'] < start['first_compile_s'] / 2
