"""How `cpp/devices.h` divides threads among devices."""

import subprocess

import pytest

from promptrl_jax.models import native

PROGRAM = """
#include <cstdio>
#include "devices.h"

int main() {
  long long ms, device;
  while (std::scanf("%lld %lld", &ms, &device) == 2)
    std::printf("%d\\n", int(promptrl::ThreadsAt(ms * 1000000, device, 8)));
}
"""


@pytest.fixture(scope='module')
def program(compiler, tmp_path_factory):
  folder = tmp_path_factory.mktemp('devices')
  (folder / 'main.cc').write_text(PROGRAM)
  flags = ('-std=c++17', f'-I{native.FOLDER}')
  subprocess.run(
    [compiler, *flags, folder / 'main.cc', '-o', folder / 'main'], check=True
  )
  return folder / 'main'


@pytest.mark.parametrize(
  ('calls', 'threads'),
  [
    ([(0, 0)], [8]),
    ([(0, 1), (1, 1)], [8, 8]),
    ([(0, 0), (1, 1), (2, 0)], [8, 4, 4]),
    ([(0, 0), (1, 1), (2, 2), (3, 0)], [8, 4, 2, 2]),
    ([(0, 0), (90, 1), (120, 1), (180, 0)], [8, 4, 8, 4]),
    ([(0, 0), (100, 1)], [8, 8]),
    ([(0, device) for device in range(10)], [8, 4, 2, 2, 1, 1, 1, 1, 1, 1]),
    ([(0, -1), (0, 256), (0, 0)], [1, 1, 8]),
  ],
  ids=['one', 'again', 'two', 'three', 'one rests', 'late', 'many', 'unknown'],
)
def test_devices_at_work_divide_the_threads(program, calls, threads):
  given = '\n'.join(f'{ms} {device}' for ms, device in calls)
  done = subprocess.run(
    [program], input=given, check=True, capture_output=True, text=True
  )
  assert [int(line) for line in done.stdout.split()] == threads
