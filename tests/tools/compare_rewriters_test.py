"""Rewriters on the statements that the coder fails."""

import re

import pytest

from tests.experiments import commands

NAME = 'promptrl_jax.tools.compare_rewriters'


@pytest.mark.slow
def test_rewriters_are_compared_on_what_the_coder_fails(tmp_path):
  same = tmp_path / 'same'
  same.symlink_to(commands.ROOT / 'promptrl_jax/assets/minicode2_rewriter')
  result = commands.run(NAME, 'minicode2_rewriter', str(same), '--limit=24')
  assert result.returncode == 0, result.stderr[-3000:]
  lines = result.stdout.splitlines()
  (sizes,) = [line for line in lines if line.startswith('- statements')]
  failed, count = re.search(r'the (\d+) of (\d+) that', sizes).groups()
  assert 0 < int(failed) < int(count) == 24, sizes
  # A rewriter differs in nothing from itself.
  assert '| +0.0 [+0.0, +0.0] | 0/0 (1.0000)' in result.stdout
  (total,) = [line for line in lines if line.startswith('| all |')]
  _, _, failures, one, other, _ = map(str.strip, total.split('|'))
  assert failures == failed and one == other


@pytest.mark.slow
def test_seeds_of_a_rewriter_are_one_strategy(tmp_path):
  asset = commands.ROOT / 'promptrl_jax/assets/minicode2_rewriter'
  copies = [tmp_path / name for name in 'ab']
  for copy in copies:
    copy.symlink_to(asset)
  trained = f'trained={",".join(map(str, copies))}'
  result = commands.run(NAME, 'minicode2_rewriter', trained, '--limit=12')
  assert result.returncode == 0, result.stderr[-3000:]
  assert '| kind | failures | minicode2_rewriter | trained |' in result.stdout
  assert '0/0 (1.0000); 0/0 (1.0000)' in result.stdout
  assert '- seeds: 0, 1' in result.stdout


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (['minicode2_rewriter'], 'expected two or more different rewriters'),
    (['a', 'a'], 'expected two or more different rewriters'),
    (['a', 'b,c'], "rewriter 'b,c': give it a name, NAME=b,c"),
    (['a', 'x=b,b'], "rewriter 'x=b,b': expected a model, or NAME="),
    (['a', 'x='], "rewriter 'x=': expected a model"),
  ],
)
def test_bad_arguments_are_refused(arguments, message):
  result = commands.run(NAME, *arguments)
  assert result.returncode != 0 and 'Traceback' not in result.stderr
  assert message in result.stderr
