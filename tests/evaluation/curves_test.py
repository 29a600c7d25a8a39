"""Learning curves over seeds: which lines are drawn, and where they end."""

from __future__ import annotations

import numpy as np
import pytest

from promptrl_jax.evaluation import canvas, curves

RUNS = {
  'grpo': [
    [{'reward/mean': 0.2, 'calls': 10}, {'reward/mean': 0.4, 'calls': 20}],
    [{'reward/mean': 0.6, 'calls': 12}],
  ],
  'ppo': [[{'other': 1.0, 'calls': 10}, {'train/kl': 0.1, 'calls': 20}]],
}


@pytest.fixture
def figures(monkeypatch):
  """Figures that were saved, in order."""
  figures = []
  save = canvas.save

  def keep_and_save(figure, path):
    figures.append(figure)
    return save(figure, path)

  monkeypatch.setattr(canvas, 'save', keep_and_save)
  return figures


def lines(axes):
  """x and y of each line that has points, by its width."""
  points = {}
  for line in axes.get_lines():
    if len(line.get_xdata()):
      xy = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
      points.setdefault(line.get_linewidth(), []).append(xy)
  return points


def test_a_panel_has_every_seed_and_the_mean_of_what_all_seeds_have(
  tmp_path, figures
):
  path = curves.draw(tmp_path / 'curves.png', RUNS)
  assert path.stat().st_size > 0
  (figure,) = figures
  rewards, kl = figure.axes  # metrics that no run has get no panel
  thin, thick = lines(rewards).values()
  assert [y.tolist() for _, y in thin] == [[0.2, 0.4], [0.6]]
  ((x, y),) = thick
  assert x.tolist() == [1]
  np.testing.assert_allclose(y, [0.4])
  for points in lines(kl).values():
    ((x, y),) = points
    assert (x.tolist(), y.tolist()) == ([2], [0.1])


def test_curves_may_be_drawn_over_another_metric(tmp_path, figures):
  panels = {'reward/mean': 'Reward'}
  runs = {'grpo': RUNS['grpo'][:1]}
  curves.draw(tmp_path / 'a.png', runs, panels, over='calls', label='calls')
  (axes,) = figures[0].axes
  for points in lines(axes).values():
    assert [x.tolist() for x, _ in points] == [[10, 20]]
  assert axes.get_xlabel() == 'calls'
