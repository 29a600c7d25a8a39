"""The Pareto front of calls and solved problems."""

import matplotlib.image
import numpy as np

from promptrl_jax.evaluation import frontier


def entry(name, budget, calls, solved):
  return {
    'strategy': name,
    'budget': budget,
    'calls': calls,
    'pass': {'mean': solved},
  }


SUMMARY = {
  'subject': 'ppo',
  'cells': [
    entry('ppo', 4, 2.5, 0.7),
    entry('direct', 1, 1.0, 0.5),
    entry('greedy_first', 1, 1.0, 0.5),  # equal: the first one stands for both
    entry('greedy_first', 4, 2.5, 0.6),  # beaten at the same cost
    entry('mbr', 4, 4.0, 0.7),  # as good, and costs more
    entry('ppo', 8, 3.0, 0.75),
  ],
}


def test_a_cell_is_on_the_front_if_none_is_better_in_both():
  front = frontier.front(SUMMARY)
  names = [(cell['strategy'], cell['budget']) for cell in front]
  assert names == [('direct', 1), ('ppo', 4), ('ppo', 8)]
  table = frontier.to_markdown(front)
  assert '| ppo | 4 | 2.50 | 70.0 |' in table and 'mbr' not in table


def test_it_is_drawn_without_a_display(tmp_path, monkeypatch):
  monkeypatch.delenv('DISPLAY', raising=False)
  path = frontier.draw(tmp_path / 'plots' / 'front.png', SUMMARY)
  image = matplotlib.image.imread(path)[..., :3]
  assert 0.3 < np.mean(image) < 0.99
