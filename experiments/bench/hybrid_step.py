"""Milliseconds of one step of `experiments.hybrid`: an update and a generation.

  python -m experiments.bench.hybrid_step

A simulated person rates answers of templates, with the settings of
`configs/hybrid.py`. A line of JSON with medians over the steps after a warm-up:

step_ms      an update of GPRO, and a generation of children that critics score
             on the last questions, without the time of the model
answers_ms   the time of the model, which answers under parents and children;
             the update is computed meanwhile
update_ms    an update alone
"""

from __future__ import annotations

import json
import time

import jax
import numpy as np
from absl import app, flags

from configs.hybrid import EVOLVING, Config
from experiments.bench.timed import Timed
from experiments.hybrid_loop import make_loop, make_parts
from promptrl_jax.envs.simulated_user import SimulatedUser
from promptrl_jax.llm.load import load_backend
from promptrl_jax.models import sentence_encoder
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.tasks import queries as queries_lib
from promptrl_jax.tools import command

_QUERIES = flags.DEFINE_integer('queries', 300, 'Questions.', lower_bound=60)

_WARM_UP = 5  # steps


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {argv[1:]}')
  with command.in_one_line():
    mesh_lib.use_cpu_cores()
    command.log_warnings_alone()
    print(json.dumps(measure(Config(), _QUERIES.value)))


def measure(config, queries):
  """The medians, as JSON data."""
  bank = [query.text for query in queries_lib.load(config.split)]
  embed_fn = sentence_encoder.load(config.embedding)
  features, learner = make_parts(config, embed_fn, bank)
  model = Timed(load_backend(config.model, None), 'complete')
  seed = config.seed
  loop = make_loop(config, f'gpro{EVOLVING}', seed, learner, model, features)
  user = SimulatedUser(config.user, seed)
  steps, answers, updates = [], [], []
  for at, query in enumerate(queries_lib.draw(config.split, queries, seed)):
    showing = loop.show(query.text)
    rating = user.rate(query, showing.text, at)
    loop.hear(showing.serial, (rating - 1) / 4, 'rating')
    before, started = model.seconds, time.perf_counter()
    if loop.learn():
      took = time.perf_counter() - started
      answers.append(model.seconds - before)
      steps.append(took - answers[-1])
      run, _ = loop.snapshot()
      started = time.perf_counter()
      jax.block_until_ready(learner.update(run.state, run.replay))
      updates.append(time.perf_counter() - started)
  found = {'step_ms': steps, 'answers_ms': answers, 'update_ms': updates}
  return {
    name: round(1e3 * float(np.median(seconds[_WARM_UP:])), 1)
    for name, seconds in found.items()
  }


if __name__ == '__main__':
  app.run(main)
