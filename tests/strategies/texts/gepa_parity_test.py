"""GEPA decides as the package of its authors does, decision by decision."""

from __future__ import annotations

import json

import pytest

import promptrl_jax as pr
from promptrl_jax.strategies.texts import gepa
from promptrl_jax.strategies.texts.requests import Ended
from promptrl_jax.testing.scripted import ScriptedBackend
from tests.golden import gepa as recorder

RECORDED = json.loads(recorder.PATH.read_text(encoding='utf-8'))


@pytest.mark.parametrize('seed', RECORDED)
def test_each_decision_is_that_of_the_package(seed, monkeypatch):
  """What the package drew at random is drawn here; all else is decided."""
  rows = [dict(row) for row in RECORDED[seed]]
  drawn, weights, numbers = iter(rows), [], iter(range(1, 1000))

  class Draws:
    """Draws the parents of the recording."""

    def choice(self, candidates, size, p):
      row = next(drawn, None)
      if row is None:
        raise Ended('the recording is over')
      weights.append([candidates, p])
      return [row['parent']]

  monkeypatch.setattr(gepa, '_draws', lambda seed, number, purpose: Draws())
  monkeypatch.setattr(
    gepa,
    'minibatch',
    lambda examples, size, number, seed: rows[number]['minibatch'],
  )
  result = pr.optimize(
    recorder.text_of(0),
    lambda text, example: (recorder.score_of(text, example), ''),
    10_000,
    model=ScriptedBackend(
      lambda request: f'<text>\n{recorder.text_of(next(numbers))}\n</text>'
    ),
    examples=range(recorder.EXAMPLES),
    held_out=0.0,
    minibatch=recorder.MINIBATCH,
    merges=0,
    perfect=1.0,
  )
  assert result.ended == 'the recording is over'
  for row, (candidates, shares) in zip(rows, weights, strict=True):
    expected, counts = zip(*row['weights'], strict=True)
    assert candidates == list(expected)
    assert shares == pytest.approx([k / sum(counts) for k in counts])
  assert result.text == rows[-1].pop('best')
  proposed = [row for row in rows if row['after'] is not None]
  _, *steps = result.history
  assert [
    {
      **{'parent': step.parents[0], 'minibatch': list(step.examples)},
      **{'before': step.before[0], 'after': step.after},
      'candidate': step.candidate,
    }
    for step in steps
  ] == [{k: v for k, v in row.items() if k != 'weights'} for row in proposed]
  taken = [row['candidate'] for row in proposed if row['candidate']]
  assert len(proposed) > 40 and taken == list(range(1, len(taken) + 1))


def test_the_recording_is_what_the_package_does():
  pytest.importorskip('gepa', reason='gepa is not installed: make parity')
  for seed, rows in RECORDED.items():
    assert recorder.record(int(seed)) == rows
