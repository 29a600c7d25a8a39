"""Rewriters on the statements that the coder fails."""

import re

from tests.experiments import commands

NAME = 'promptrl_jax.tools.compare_rewriters'


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


def test_one_rewriter_alone_is_refused():
  result = commands.run(NAME, 'minicode2_rewriter')
  assert result.returncode != 0
  assert 'expected two or more different rewriters' in result.stderr
