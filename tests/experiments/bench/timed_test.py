"""The watch of the benches: what counts, and what is left to the model."""

import types

import pytest

from experiments.bench import timed
from promptrl_jax.llm.backend import Incremental


class Model:
  """Takes a second for a call, and for each answer by itself."""

  def __init__(self):
    self.now = 0.0

  def perf_counter(self):
    return self.now

  def complete(self, rows):
    self.now += 1
    return rows

  def complete_each(self, rows):
    for row in rows:
      self.now += 1
      yield row


@pytest.fixture
def model(monkeypatch):
  model = Model()
  monkeypatch.setattr(timed, 'time', model)
  return model


def test_calls_and_answers_count_but_not_what_is_done_with_them(model):
  watched = timed.Timed(model, 'complete', 'complete_each')
  assert watched.complete([1, 2]) == [1, 2]
  assert watched.seconds == 1
  for _ in watched.complete_each([3, 4]):
    model.now += 10
  assert watched.seconds == 3
  assert watched.asked == [1, 2, 3, 4]


def test_a_model_without_single_answers_stays_one():
  whole = types.SimpleNamespace(name='whole', complete=list)
  watched = timed.Timed(whole, 'complete', 'complete_each')
  assert watched.name == 'whole'
  assert not isinstance(watched, Incremental)
