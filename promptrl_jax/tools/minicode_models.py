"""Puts trained models into the package and writes their model cards.

  python -m promptrl_jax.tools.minicode_models --coder=runs/coder \\
    --rewriter=runs/rewriter

Each flag names the workdir of a finished `experiments.pretrain_minicode`.
Without flags, the models in the package are measured again: which operator
solves what they do not, see `evaluation.mending`.
"""

from __future__ import annotations

import json
import pathlib
import shutil

from absl import app, flags

from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.evaluation import mending
from promptrl_jax.files import write_atomically
from promptrl_jax.llm.attempt import CODER, REWRITER
from promptrl_jax.llm.load import ASSETS
from promptrl_jax.models import pretrained, weights
from promptrl_jax.tasks.minicode2.suite import SUITE
from promptrl_jax.tools import command
from promptrl_jax.tools.line_up import open_line_up

_CODER = flags.DEFINE_string('coder', None, 'Workdir of the trained coder.')
_REWRITER = flags.DEFINE_string(
  'rewriter', None, 'Workdir of the trained rewriter.'
)
_SEEDS = flags.DEFINE_integer('seeds', 3, 'Runs of each operator.')

_FILES = (weights.WEIGHTS, pretrained.CONFIG, pretrained.TOKENIZER)
_SPLITS = ('pretrain', 'train', 'validation', 'test', 'ood')
_ABOUT = {
  'coder': 'Statement, visible assertion and signature in, the rest of the '
  'program out. It learned from plain statements in common words.',
  'rewriter': 'Statement, function name and feedback on the last program in, a '
  'plain statement out. It learned from stories.',
}


def install(workdir: str | None, folder: pathlib.Path) -> None:
  """Copies a trained model and its recipe into a folder of the package.

  A workdir of None leaves the folder as it is.

  Raises:
    OSError: the workdir lacks a file of the model.
  """
  if workdir is None:
    return
  source = pathlib.Path(workdir)
  files = [
    *(source / 'model' / name for name in _FILES),
    source / 'recipe.json',
  ]
  if missing := [str(file) for file in files if not file.is_file()]:
    raise FileNotFoundError(f'{missing[0]} is missing: train the model first')
  folder.mkdir(parents=True, exist_ok=True)
  for file in files:
    shutil.copyfile(file, folder / file.name)


def card(role: str, folder: pathlib.Path, tables: str) -> str:
  """Returns the text of the model card of `coder` or `rewriter`."""
  recipe = json.loads((folder / 'recipe.json').read_text())
  steps = recipe['config']['supervised']['steps']
  return f"""# minicode 2 {role}

{_ABOUT[role]}

* Shape: Llama (RMSNorm, RoPE, GQA, SwiGLU), {recipe['parameters']:,}
  parameters, bfloat16; `transformers` loads this folder.
* Data: templates of the split `pretrain` of minicode 2 {recipe['suite']}, with
  parameters that no other split asks for, drawn anew for every step.
* Recipe: `python -m experiments.pretrain_minicode
  --config=configs/pretrain_minicode.py:{role} --workdir=runs/{role}`, seed
  {recipe['config']['seed']}, {steps} steps, {recipe['minutes']} minutes on
  {recipe['hardware']}.
* Hash: `{pretrained.digest(folder)}`

{tables}Trained for the experiments of this project; it knows the suite's
problems and nothing else.
"""


def measure(folders: dict[str, pathlib.Path]) -> str:
  """Returns the tables of `evaluation.mending` on all splits."""
  parts = [
    'Percent of the problems that one greedy call leaves with a failed visible '
    f'test and that one use of an operator then solves, `visible1`, '
    f'{_SEEDS.value} seeds; `train` is the split `policy`.\n'
  ]
  models = {REWRITER: str(folders['rewriter']), CODER: str(folders['coder'])}
  with open_line_up(models) as line_up:
    for split in _SPLITS:
      figures = mending.measure(
        line_up,
        SUITE.load(split),
        EditingConfig(),
        protocol='visible1',
        seeds=range(_SEEDS.value),
      )
      parts.append(mending.to_markdown(split, figures) + '\n')
  parts.append('`python -m promptrl_jax.tools.minicode_models` makes them.\n\n')
  return '\n'.join(parts)


def run() -> None:
  """Installs, measures and describes the models that the flags name."""
  folders = {role: ASSETS / f'minicode2_{role}' for role in _ABOUT}
  install(_CODER.value, folders['coder'])
  install(_REWRITER.value, folders['rewriter'])
  tables = {'coder': measure(folders), 'rewriter': ''}
  for role, folder in folders.items():
    text = card(role, folder, tables[role])
    write_atomically(folder / 'README.md', text.encode())
    print(text)


if __name__ == '__main__':
  app.run(command.without_arguments(run))
