"""Pages as axe-core sees them, which npm fetches for these tests alone."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

import pytest

_RUN = """
  const done = arguments[0];
  axe.run().then((found) => done(found.violations.map((each) => ({
    id: each.id,
    impact: each.impact,
    where: each.nodes.map((node) => `${node.html} ${node.failureSummary}`),
  }))));
"""


@pytest.fixture(scope='module')
def axe(tmp_path_factory) -> str:
  """The script of axe-core: of the folder `$AXE_CORE`, or new from npm."""
  folder = pathlib.Path(os.environ.get('AXE_CORE', ''))
  if not (folder / 'axe.min.js').is_file():
    if not shutil.which('npm'):
      pytest.skip('npm is not installed, and AXE_CORE names no folder')
    home = tmp_path_factory.mktemp('npm')
    result = subprocess.run(
      ['npm', 'install', '--no-save', '--ignore-scripts', 'axe-core@4'],
      cwd=home,
      capture_output=True,
      text=True,
      timeout=120,
    )
    if result.returncode:
      pytest.skip(f'npm could not fetch axe-core: {result.stderr[-200:]}')
    folder = home / 'node_modules' / 'axe-core'
  return (folder / 'axe.min.js').read_text(encoding='utf-8')


def violations(browser, script: str) -> list[dict]:
  """What axe-core finds wrong with the page that a browser shows."""
  browser.execute_script(script)
  return browser.execute_async_script(_RUN)
