"""The flags of a run on several processes.

  distributed_flags.define()          # where an experiment defines its flags
  with distributed.session(distributed_flags.config()):
    ...

Nothing is joined unless `--distributed` says so: a command that finds itself
in a cluster's environment by chance stays a run of one process.
"""

from __future__ import annotations

import dataclasses

from absl import flags

from promptrl_jax.parallel import distributed


def define(values: flags.FlagValues = flags.FLAGS) -> None:
  """Defines them; call once, where the experiment defines its own."""
  flags.DEFINE_enum(
    'distributed',
    'off',
    ['off', 'flags', 'slurm'],
    'Several processes: off, as the next three flags say, or as srun says.',
    flag_values=values,
  )
  flags.DEFINE_string(
    'coordinator',
    None,
    'host:port on which process 0 is to listen.',
    flag_values=values,
  )
  flags.DEFINE_integer(
    'num_processes', None, 'How many processes there are.', flag_values=values
  )
  flags.DEFINE_integer(
    'process_id', None, 'Which one this is, from 0.', flag_values=values
  )
  flags.DEFINE_float(
    'join_timeout_s',
    300.0,
    'How long all others are waited for.',
    flag_values=values,
  )
  flags.DEFINE_float(
    'heartbeat_s',
    100.0,
    'After so long a silence a process is dead.',
    flag_values=values,
  )


def config(
  values: flags.FlagValues = flags.FLAGS,
) -> distributed.DistributedConfig | None:
  """What the flags say; None: one process.

  Raises:
    ValueError: a flag is missing, or has no effect as the others are.
  """
  names = ('coordinator', 'num_processes', 'process_id')
  given = [name for name in names if values[name].value is not None]
  how = values.distributed
  if how != 'flags' and given:
    raise ValueError(
      f'--{given[0]} has no effect with --distributed={how}: say '
      '--distributed=flags, or leave it out'
    )
  if how == 'off':
    return None
  if how == 'slurm':
    found = distributed.from_slurm()
  else:
    for name in names:
      if name not in given:
        raise ValueError(f'--distributed=flags needs --{name}')
    found = distributed.DistributedConfig(
      values.coordinator, values.num_processes, values.process_id
    )
  return dataclasses.replace(
    found, timeout_s=values.join_timeout_s, heartbeat_s=values.heartbeat_s
  )
