"""Measures the embedded models and writes their cards.

  python -m promptrl_jax.tools.minicode_headroom --coder=runs/coder \
    --rewriter=runs/rewriter

Each argument is the workdir of a finished `pretrain_minicode`; its model is
copied into the package, beside a README.md with recipe and figures. Without
arguments the models in the package are measured again.
"""

from __future__ import annotations

import json
import pathlib
import shutil

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

_CODER = flags.DEFINE_string('coder', None, 'Workdir of the trained coder.')
_REWRITER = flags.DEFINE_string(
  'rewriter', None, 'Workdir of the trained rewriter.'
)
_SAMPLES = flags.DEFINE_integer(
  'samples', 16, 'Samples per problem for pass@k.'
)

_FILES = (weights.WEIGHTS, pretrained.CONFIG, pretrained.TOKENIZER)


def install(workdir: str | None, folder: pathlib.Path) -> None:
  """Copies a trained model and its recipe into the package."""
  if workdir is None:
    return
  source = pathlib.Path(workdir)
  folder.mkdir(parents=True, exist_ok=True)
  for name in _FILES:
    shutil.copyfile(source / 'model' / name, folder / name)
  shutil.copyfile(source / 'recipe.json', folder / 'recipe.json')


def percent(share) -> str:
  low, high = 100 * share['low'], 100 * share['high']
  return f'{100 * share["mean"]:.1f} [{low:.1f}, {high:.1f}]'


def coder_figures(figures) -> str:
  """The headroom tables, Markdown."""
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


def card(role: str, what: str, folder: pathlib.Path, figures: str) -> str:
  recipe = json.loads((folder / 'recipe.json').read_text())
  return f"""# minicode {role}

{what}

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


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {argv[1:]}')
  mesh_lib.use_cpu_cores()
  compilation.use_cache()
  mesh = mesh_lib.make_data_mesh()
  folders = {r: ASSETS / f'minicode_{r}' for r in ('coder', 'rewriter')}
  install(_CODER.value, folders['coder'])
  install(_REWRITER.value, folders['rewriter'])
  coder = JaxLM.from_folder(folders['coder'], mesh)
  rewriter = JaxLM.from_folder(folders['rewriter'], mesh)
  with ExecutionPool() as pool:
    figures = {
      split: headroom.measure(
        coder, rewriter, suite.load(split), pool, samples=_SAMPLES.value
      )
      for split in ('test', 'ood')
    }
  write_atomically(
    folders['coder'] / 'headroom.json',
    (json.dumps(figures, indent=2) + '\n').encode(),
  )
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
  for role, (what, table) in texts.items():
    text = card(role, what, folders[role], table)
    write_atomically(folders[role] / 'README.md', text.encode())
    print(text)
  bars = [
    plots.Bar(name, share['mean'], share['low'], share['high'])
    for name, share in (
      ('direct', test['direct']),
      ('rewritten', test['rewritten']),
      ('canonical', test['canonical_substituted']),
    )
  ]
  plots.headroom_bars(
    folders['coder'] / 'headroom.png', bars, base='direct', ceiling='canonical'
  )


if __name__ == '__main__':
  app.run(main)
