"""Prompts that learn from ratings of the answers that they lead to.

  python -m experiments.hybrid --config=configs/hybrid.py:smoke --workdir=W
  python -m experiments.hybrid --mode=serve --config=configs/hybrid.py:serve \
    --workdir=W

A population of prompts evolves, an actor picks which of several answers a
person sees, and critics learn what that person likes (GPRO).

--mode=simulate: people are simulated and have a known taste, so that the regret
of every method is known. Writes results.json, results.md, regret.png,
satisfaction.png, diversity.png, fitness.png, curves for TensorBoard,
prompts.json, the last prompts of each run, and lineage.html, lineage.png and
lineage.txt: what those of the last method's first person come from.

--mode=serve: a person rates answers on a page in the browser. Writes
feedback.sqlite, and after each generation results.md, results.json,
prompts.json, lineage.html and lineage.txt.

A run that was interrupted goes on with the same command, from the last
checkpoint of the person.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import shutil

import numpy as np
import tqdm
from absl import app, flags
from ml_collections import config_flags

from configs.hybrid import Config
from experiments import hybrid_report, serving, session
from experiments.hybrid_loop import make_loop, make_parts
from promptrl_jax.envs.simulated_user import SimulatedUser
from promptrl_jax.evolution import convergence, diversity
from promptrl_jax.files import write_atomically
from promptrl_jax.llm.cache import CachedBackend
from promptrl_jax.llm.load import load_backend
from promptrl_jax.models import sentence_encoder
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.prompts import catalogue
from promptrl_jax.rewards.safety import SAFETY
from promptrl_jax.tasks import queries as queries_lib
from promptrl_jax.tools import command
from promptrl_jax.training import checkpoint
from promptrl_jax.training import workdir as workdir_lib
from promptrl_jax.training.gpro.reward import learned, make_reward

_CONFIG = config_flags.DEFINE_config_file(
  'config', 'configs/hybrid.py', lock_config=True
)
_WORKDIR = flags.DEFINE_string('workdir', None, 'Where results go.')
_MODE = flags.DEFINE_enum(
  'mode', 'simulate', ['simulate', 'serve'], 'Who rates: see above.'
)
_PORT = flags.DEFINE_integer('port', 8321, 'With --mode=serve: 0 for any port.')
_QUERIES = flags.DEFINE_string(
  'queries', None, 'With --mode=serve: file of questions, one a line.'
)
_TIMEOUT_S = flags.DEFINE_float(
  'timeout_s',
  0.0,
  'With --mode=serve: ends after so many seconds without an answer; 0: never.',
  lower_bound=0.0,
)
flags.mark_flag_as_required('workdir')

_FEWEST = 20  # questions of a simulated person
_UNSEEN = 200  # answers by which the critics are checked


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {argv[1:]}')
  with command.in_one_line('interrupted: the same command goes on'):
    run(_CONFIG.value, pathlib.Path(_WORKDIR.value))


def run(config, workdir):
  config = session.begin(Config, config)
  is_served = _MODE.value == 'serve'
  if _QUERIES.value and not is_served:
    raise ValueError(
      f'--queries={_QUERIES.value}: simulated people ask their own questions; '
      'expected --mode=serve'
    )
  if config.queries < _FEWEST and not is_served:
    raise ValueError(
      f'queries={config.queries}: expected {_FEWEST} or more of each simulated '
      'person, as curves are fitted to them'
    )
  bank = [query.text for query in queries_lib.load(config.split)]
  own = read_queries(_QUERIES.value) if _QUERIES.value else []
  backend = load_backend(config.model, mesh_lib.from_text(config.mesh))
  embed_fn = sentence_encoder.load(config.embedding)
  features, learner = make_parts(config, embed_fn, bank + own)
  reward_fn = make_reward(
    config.reward,
    config.reward_options,
    count_tokens=backend.count_tokens,
    embed_fn=embed_fn,
    safety_fn=SAFETY[config.safety],
  )
  # Features are those of these questions, so that a run keeps to them.
  models = {'model': backend.name}
  if is_served:
    models['queries'] = name_of(own)
    workdir_lib.prepare(workdir, 'hybrid_serve', config, models)
    serve(config, workdir, learner, backend, features, reward_fn, own)
    return
  workdir_lib.prepare(workdir, 'hybrid', config, models)

  # --- Runs, one for each method and person -----------------------------------
  people = range(config.seed, config.seed + config.seeds)
  todo = [(name, seed) for name in config.methods for seed in people]
  runs = {name: [] for name in config.methods}
  with tqdm.tqdm(todo, desc='hybrid', unit='run') as bar:
    for name, seed in bar:
      path = workdir / 'runs' / f'{name}_{seed}.json'
      if not path.exists():
        folder = path.with_suffix('')
        played = play(
          config, name, seed, learner, backend, features, reward_fn, folder
        )
        write_atomically(path, json.dumps(played).encode())
        shutil.rmtree(folder)
      runs[name].append(json.loads(path.read_text()))
      last = {
        n: np.mean([r['last'] for r in of]) for n, of in runs.items() if of
      }
      best = max(last, key=last.__getitem__)
      bar.set_postfix_str(f'best {best} {last[best]:.3f}')

  # --- Report -----------------------------------------------------------------
  print(hybrid_report.write(config, workdir, runs))


def play(config, method, seed, learner, backend, features, reward_fn, folder):
  """One person's questions under one method; JSON data.

  Goes on from the last checkpoint in the folder, if there is one.
  """
  user = SimulatedUser(config.user, seed)
  loop = make_loop(config, method, seed, learner, backend, features)
  asked = queries_lib.draw(config.split, config.queries, seed)
  curves = {name: [] for name in hybrid_report.CURVES}
  usage = {}  # what was said of the answers of each prompt, by its id
  with checkpoint.open_checkpoints(folder) as checkpoints:
    if checkpoints.latest_step() is not None:
      state, plain = checkpoint.restore_checkpoint(
        checkpoints, loop.snapshot()[0]
      )
      loop.restore(state, plain['loop'])
      curves, usage = plain['curves'], plain['usage']
    for at in range(loop.queries, config.queries):
      query = asked[at]
      showing = loop.show(query.text, pair=config.ask == 'pair')
      texts = [answer.text for answer in showing.seen]
      said = say(user, query, texts, at)
      comment = user.comment(query, texts[0], at)
      loop.hear(
        showing.serial, *learned(reward_fn, *said, showing.seen), comment
      )
      value, _ = said
      # Of two answers the second one loses what the first one gains.
      for place, heard in zip(showing.places, (value, 1 - value), strict=False):
        usage.setdefault(showing.prompts[place].id, []).append(heard)
      is_updated = loop.learn()
      satisfied = [user.satisfaction(query, text, at) for text in texts]
      curves['satisfaction'].append(float(np.mean(satisfied)))
      curves['best'].append(user.best(query, at))
      curves['diversity'].append(
        diversity.jaccard_diversity(loop.population.texts)
      )
      loop.refine_if_due()
      if is_updated:
        state, plain = loop.snapshot()
        if int(state.step) % config.checkpoint_every == 0:
          extra = {'loop': plain, 'curves': curves, 'usage': usage}
          checkpoint.save_checkpoint(checkpoints, state, extra)
  _, plain = loop.snapshot()
  loop.refine()
  static, best_static = user.best_static(asked)
  return curves | {
    'last': convergence.satisfaction(curves['satisfaction']),
    'generations': loop.generations,
    'best_static': best_static,
    'best_prompt': static.render(),
    'correlation': check_critics(config, user, loop, seed),
    'prompts': loop.population.texts,
    'population': plain['population'],
    'history': plain['history'],
    'usage': usage,
    'queries': config.queries,
  }


def say(user, query, texts, at):
  """What a simulated person says of one or two answers, and its kind."""
  ratings = [user.rate(query, text, at) for text in texts]
  if len(ratings) == 1:
    return (ratings[0] - 1) / 4, 'rating'
  return 0.5 + 0.5 * float(np.sign(ratings[0] - ratings[1])), 'pair'


def serve(config, workdir, learner, backend, features, reward_fn, own):
  """A person in the browser, who gets the last of the methods."""
  asked = own or [
    query.text
    for query in queries_lib.draw(config.split, config.queries, config.seed)
  ]
  if config.model.backend != 'templated':
    # A run that goes on does not ask again, and gets the same answers.
    path = workdir / 'answers.sqlite'
    backend = CachedBackend(backend, path, config.model.identity)
  method = config.methods[-1]
  serving.serve(
    config,
    workdir,
    make_loop(config, method, config.seed, learner, backend, features),
    reward_fn,
    asked,
    backend.name,
    _PORT.value,
    _TIMEOUT_S.value,
  )


def read_queries(path):
  """The questions of a file, one a line; blank lines are passed over.

  Raises:
    ValueError: there is none.
  """
  lines = pathlib.Path(path).read_text(encoding='utf-8').splitlines()
  found = [line.strip() for line in lines if line.strip()]
  if not found:
    raise ValueError(f'--queries={path}: expected at least one question')
  return found


def name_of(texts):
  """A short name of questions, by which others are told from them."""
  if not texts:
    return 'bank'
  return hashlib.sha256('\n'.join(texts).encode()).hexdigest()[:16]


def check_critics(config, user, loop, seed):
  """Correlation of what critics expect of unseen answers with what is true.

  The answers are those of prompts that are drawn anew to questions on topics
  that nobody has asked about.
  """
  rng = np.random.default_rng([seed, 4])
  asked = queries_lib.draw('test', _UNSEEN // 10, seed)
  expected, true = [], []
  for query in asked:
    genomes = [catalogue.draw(rng) for _ in range(10)]
    answers, scores = loop.expect(genomes, query.text)
    expected += scores
    true += [user.satisfaction(query, a, config.queries) for a in answers]
  return float(np.corrcoef(expected, true)[0, 1])


if __name__ == '__main__':
  app.run(main)
