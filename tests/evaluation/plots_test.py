from __future__ import annotations

import matplotlib.image
import numpy as np
import pytest

from promptrl_jax.evaluation import actions, canvas, plots, report


def _check_png(path):
  image = matplotlib.image.imread(path)
  assert path.read_bytes().startswith(b'\x89PNG')
  assert image.shape[0] > 200
  # Something is drawn, and not everything is.
  assert 0.3 < np.mean(image[..., :3]) < 0.99


@pytest.fixture(autouse=True)
def no_display(monkeypatch):
  monkeypatch.delenv('DISPLAY', raising=False)


@pytest.mark.parametrize('others', [1, 6])
@pytest.mark.parametrize('protocol', ['visible1', 'oracle'])
def test_solved_at_budget_writes_a_figure(
  tmp_path, make_cell, others, protocol
):
  names = ['ppo', *(f'rival {i}' for i in range(others))]
  cells = [
    make_cell(name, budget=budget, protocol=protocol)
    for name in names
    for budget in (1, 2, 4)
  ]
  summary = report.summarise(cells, subject='ppo', resamples=50)
  path = tmp_path / 'plots' / 'solved.png'
  assert plots.solved_at_budget(path, summary) == path
  _check_png(path)


def test_same_numbers_give_the_same_bytes(tmp_path, make_cell):
  summary = report.summarise([make_cell()], subject=None, resamples=50)
  first, second = (
    plots.solved_at_budget(tmp_path / name, summary)
    for name in ('a.png', 'b.png')
  )
  assert first.read_bytes() == second.read_bytes()


def test_learning_curve_writes_a_figure(tmp_path):
  steps = np.arange(1, 21) * 100
  _check_png(
    plots.learning_curve(
      tmp_path / 'curve.png',
      steps,
      np.linspace(-1, 1, 20),
      np.linspace(0, 0.6, 20),
      validation_steps=[500, 1500],
      validation_pass_rates=[0.2, 0.4],
      window=5,
    )
  )
  with pytest.raises(ValueError, match='got 3, 2 and 3'):
    plots.learning_curve(tmp_path / 'x.png', [1, 2, 3], [0, 0], [0, 0, 0])


def test_action_usage_needs_shares_that_sum_to_one(tmp_path):
  shares = {'keep': [0.5, 0.2], 'rewrite': [0.5, 0.8]}
  _check_png(plots.action_usage(tmp_path / 'usage.png', [1, 2], shares))
  with pytest.raises(ValueError, match='must sum to 1'):
    plots.action_usage(tmp_path / 'x.png', [1, 2], {'keep': [0.5, 0.2]})


def test_action_heatmap_writes_a_figure(tmp_path):
  rows = [
    {
      'strategy': 'ppo',
      'seed': 0,
      'task_id': str(task),
      'step': step,
      'action': action,
      'reward': 0.0,
      'status': 'timeout',
      'visible_passed': False,
      'cost': 1,
    }
    for task in range(3)
    for step, action in enumerate(['keep', 'rewrite'])
  ]
  statistics = actions.action_statistics(rows)
  _check_png(plots.action_heatmap(tmp_path / 'heat.png', statistics))
  with pytest.raises(ValueError, match='no steps'):
    plots.action_heatmap(tmp_path / 'x.png', actions.action_statistics([]))


def test_labels_are_moved_apart_in_order_and_no_further_than_needed():
  places = canvas.spread([0.5, 0.1, 0.51, 0.9], 0.05)
  assert places == pytest.approx([0.48, 0.1, 0.53, 0.9])
  crowded = canvas.spread([0.3] * 5, 0.1)
  assert np.diff(np.sort(crowded)) == pytest.approx(0.1)
  assert np.mean(crowded) == pytest.approx(0.3)


@pytest.mark.parametrize(
  ('top', 'labels'),
  [(0.1, ['0.0%', '2.5%', '5.0%', '7.5%', '10.0%']), (1.0, ['0%', '100%'])],
)
def test_ticks_of_percent_say_where_they_are(top, labels):
  axes = canvas.new_figure(3.0, 3.0).subplots()
  axes.set_ylim(0.0, top)
  axes.set_yticks(np.linspace(0.0, top, len(labels)))
  canvas.percent(axes.yaxis)
  axes.figure.draw_without_rendering()
  assert [text.get_text() for text in axes.get_yticklabels()] == labels
