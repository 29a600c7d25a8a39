"""The error of all that reads checkpoints."""


class CheckpointError(ValueError):
  """A checkpoint that cannot be read or does not fit; the text says why."""
