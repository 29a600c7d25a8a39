"""What is read of a finished run."""

from configs.mbpp_ppo import Config
from experiments import controllers


def test_a_bandit_plays_if_there_is_one_for_each_seed(tmp_path):
  for seed, names in ((3, ('bandit', 'bandit_mc')), (4, ('bandit_mc',))):
    folder = tmp_path / f'seed_{seed}'
    folder.mkdir()
    for name in names:
      (folder / f'{name}.npz').touch()
  played = lambda seeds: controllers.played_names(
    Config(seed=3, seeds=seeds), tmp_path
  )
  assert played(1) == ('ppo', 'bandit', 'bandit_mc')
  assert played(2) == ('ppo', 'bandit_mc')
  assert played(3) == ('ppo',)
