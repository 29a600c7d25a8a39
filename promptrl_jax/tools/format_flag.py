"""The flag --format of the commands that write prompts."""

from absl import flags

from promptrl_jax.prompts import export

FORMAT = flags.DEFINE_enum(
  'format', 'text', list(export.FORMATS), 'Format of the files of prompts.'
)
