"""How soft scores are distributed."""

import matplotlib.image
import numpy as np
import pytest

from promptrl_jax.evaluation import distribution


@pytest.fixture
def rows(make_cell):
  soft = np.array([[0.0, 0.25, 0.26, 0.5], [0.75, 0.76, 1.0, 1.0]])
  counts = np.ones_like(soft, int)
  cells = [
    make_cell(
      name,
      budget,
      task_ids=tuple('abcd'),
      passed=soft == 1,
      soft=soft,
      **dict.fromkeys(
        ('calls', 'attempts', 'prompt_tokens', 'completion_tokens'), counts
      ),
    )
    for budget in (1, 4)
    for name in ('direct', 'ppo')
  ]
  return distribution.measure(cells)


def test_quarters_end_at_their_upper_edge_and_0_and_1_stand_alone(rows):
  assert rows[0]['shares'] == [1 / 8, 1 / 8, 2 / 8, 1 / 8, 1 / 8, 2 / 8]
  assert all(sum(row['shares']) == 1 for row in rows)
  table = distribution.to_markdown(rows)
  assert 'at B=4' in table
  assert '| ppo | 12.5 | 12.5 | 25.0 | 12.5 | 12.5 | 25.0 |' in table
  assert table.count('| ppo |') == 1


def test_it_is_drawn_without_a_display(rows, tmp_path, monkeypatch):
  monkeypatch.delenv('DISPLAY', raising=False)
  path = distribution.draw(tmp_path / 'soft.png', rows)
  image = matplotlib.image.imread(path)[..., :3]
  assert 0.3 < np.mean(image) < 0.99
