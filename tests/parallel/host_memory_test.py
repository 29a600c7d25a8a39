"""Memory of the machine, or of a container with less."""

import os

import pytest

from promptrl_jax.parallel import host_memory

MACHINE = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')


@pytest.mark.parametrize(
  'limit, expected',
  [('4096', 4096), ('max', MACHINE), (str(2 * MACHINE), MACHINE)],
)
def test_a_container_may_have_less(tmp_path, monkeypatch, limit, expected):
  path = tmp_path / 'memory.max'
  path.write_text(f'{limit}\n')
  monkeypatch.setattr(host_memory, '_LIMIT', path)
  assert host_memory.total_bytes() == expected


def test_without_a_limit_it_is_that_of_the_machine(tmp_path, monkeypatch):
  monkeypatch.setattr(host_memory, '_LIMIT', tmp_path / 'missing')
  assert host_memory.total_bytes() == MACHINE
