"""Measures the embedded models and writes their model cards.

  python -m promptrl_jax.tools.minicode_headroom --coder=runs/coder \\
    --rewriter=runs/rewriter

Each flag names the workdir of a finished `experiments.pretrain_minicode`. Its
model is copied into the package, and a README.md with recipe and figures is
written beside it. Without flags, the models in the package are measured again.
"""

from __future__ import annotations

import json
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any

from absl import app, flags

from promptrl_jax.evaluation import headroom, plots
from promptrl_jax.execution import ExecutionPool
from promptrl_jax.files import write_atomically
from promptrl_jax.llm.jax_lm import JaxLM
from promptrl_jax.llm.load import ASSETS
from promptrl_jax.models import pretrained, weights
from promptrl_jax.parallel import compilation
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.tasks.minicode import suite
from promptrl_jax.tools import command

_CODER = flags.DEFINE_string('coder', None, 'Workdir of the trained coder.')
_REWRITER = flags.DEFINE_string(
  'rewriter', None, 'Workdir of the trained rewriter.'
)
_SAMPLES = flags.DEFINE_integer(
  'samples', 16, 'Samples per problem for pass@k.'
)

_FILES = (weights.WEIGHTS, pretrained.CONFIG, pretrained.TOKENIZER)


def install(workdir: str | None, folder: pathlib.Path) -> None:
  """Copies a trained model and its recipe into a folder of the package.

  A workdir of None leaves the folder as it is.
  """
  if workdir is None:
    return
  source = pathlib.Path(workdir)
  folder.mkdir(parents=True, exist_ok=True)
  for name in _FILES:
    shutil.copyfile(source / 'model' / name, folder / name)
  shutil.copyfile(source / 'recipe.json', folder / 'recipe.json')


def percent(share: Mapping[str, float]) -> str:
  """Prints a share with its interval in percent."""
  low, high = 100 * share['low'], 100 * share['high']
  return f'{100 * share["mean"]:.1f} [{low:.1f}, {high:.1f}]'


def coder_figures(figures: Mapping[str, Any]) -> str:
  """Prints the result of `headroom.measure` as Markdown tables."""
  rows = [('direct, greedy', figures['direct'])]
  rows += [
    (f'direct, {name}', share)
    for name, share in figures['direct_by_register'].items()
  ]
  rows += [
    ('rewriter, then greedy', figures['rewritten']),
    ('canonical statement put in place', figures['canonical_substituted']),
  ]
  lines = ['| minicode test, `visible1`, pass@1 | % [95 %] |', '|---|---|']
  lines += [f'| {name} | {percent(share)} |' for name, share in rows]
  sampling = figures['sampling']
  lines += [
    '',
    f'Plain sampling at T = {sampling["temperature"]}, '
    f'{sampling["samples"]} samples: pass@1 {100 * sampling["pass@1"]:.1f}, '
    f'pass@8 {100 * sampling["pass@8"]:.1f}, gain '
    f'{100 * sampling["gain"]:.1f} points.',
    '',
    'First failure of the greedy programs that fail: '
    + ', '.join(f'{k} {v}' for k, v in figures['failures'].items())
    + '.',
  ]
  return '\n'.join(lines)


def card(
  role: str, description: str, folder: pathlib.Path, figures: str
) -> str:
  """Returns the text of the model card of `coder` or `rewriter`.

  `description` says input, output and training data, `folder` holds the model
  with its recipe, and `figures` are Markdown.
  """
  recipe = json.loads((folder / 'recipe.json').read_text())
  return f"""# minicode {role}

{description}

* Shape: Llama (RMSNorm, RoPE, GQA, SwiGLU), {recipe['parameters']:,}
  parameters, bfloat16; `transformers` loads this folder.
* Data: train split of minicode {recipe['suite']}, drawn anew for every step;
  nothing of validation, test or ood.
* Recipe: `python -m experiments.pretrain_minicode
  --config=configs/pretrain_minicode.py:{role} --workdir=runs/{role}`, seed
  {recipe['config']['seed']}, {recipe['config']['training']['steps']} steps,
  {recipe['minutes']} minutes on {recipe['hardware']}.
* Hash: `{pretrained.digest(folder)}`

{figures}

Trained for the experiments of this project; it writes programs of the suite's
families and nothing else.
"""


def measure(
  folders: Mapping[str, pathlib.Path], samples: int
) -> dict[str, dict[str, Any]]:
  """Returns the figures of `headroom.measure` on the splits test and ood."""
  mesh = mesh_lib.make_data_mesh()
  coder = JaxLM.from_folder(folders['coder'], mesh)
  rewriter = JaxLM.from_folder(folders['rewriter'], mesh)
  with ExecutionPool() as pool:
    return {
      split: headroom.measure(
        coder, rewriter, suite.load(split), pool, samples=samples
      )
      for split in ('test', 'ood')
    }


def write_cards(
  folders: Mapping[str, pathlib.Path], figures: Mapping[str, Mapping[str, Any]]
) -> None:
  """Writes and prints the model cards of coder and rewriter."""
  test, ood = figures['test'], figures['ood']
  tables = coder_figures(test) + (
    '\n\nOn `ood`, families that neither model has seen: direct '
    f'{percent(ood["direct"])}, canonical '
    f'{percent(ood["canonical_substituted"])}.'
    '\n\n`python -m promptrl_jax.tools.minicode_headroom` measures this again.'
  )
  texts = {
    'coder': (
      'Statement, visible assertion and signature in, the rest of the program '
      'out. Mostly canonical statements in training, so that other wordings '
      'are harder for it: that is what prompts are edited for.',
      tables,
    ),
    'rewriter': (
      'Statement, function name and feedback on the last program in, a clearer '
      'statement out. Trained on every register.',
      f'Rewritten statements equal the canonical one in '
      f'{percent(test["rewritten_exact"])} % of minicode test.',
    ),
  }
  for role, (description, table) in texts.items():
    text = card(role, description, folders[role], table)
    write_atomically(folders[role] / 'README.md', text.encode())
    print(text)


def draw(path: pathlib.Path, figures: Mapping[str, Any]) -> None:
  """Draws the headroom between the direct and the canonical statements."""
  bars = [
    plots.Bar(
      name, figures[key]['mean'], figures[key]['low'], figures[key]['high']
    )
    for name, key in (
      ('direct', 'direct'),
      ('rewritten', 'rewritten'),
      ('canonical', 'canonical_substituted'),
    )
  ]
  plots.headroom_bars(path, bars, base='direct', ceiling='canonical')


@command.without_arguments
def main() -> None:
  """Installs, measures and describes the models that the flags name.

  Raises:
    OSError: a workdir lacks a file of the model.
    ValueError: a model cannot be loaded.
  """
  mesh_lib.use_cpu_cores()
  compilation.use_cache()
  folders = {r: ASSETS / f'minicode_{r}' for r in ('coder', 'rewriter')}
  install(_CODER.value, folders['coder'])
  install(_REWRITER.value, folders['rewriter'])
  figures = measure(folders, _SAMPLES.value)
  write_atomically(
    folders['coder'] / 'headroom.json',
    (json.dumps(figures, indent=2) + '\n').encode(),
  )
  write_cards(folders, figures)
  draw(folders['coder'] / 'headroom.png', figures['test'])


if __name__ == '__main__':
  app.run(main)
