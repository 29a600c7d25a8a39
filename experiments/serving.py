"""Asks a person: the loop behind the feedback page.

question ──loop──> answer ──> feedback.sqlite <──page── a person
               ^                   │
               └─── ratings <──────┘     checkpoint after each update

Whatever was shown and said is in the store before anything is learned from it,
so that a run that was killed anywhere goes on without a rating lost.
"""

from __future__ import annotations

import json
import os
import pathlib
import time
import uuid

import numpy as np
import tqdm

from experiments.asking import Questions
from promptrl_jax.evaluation import generations, lineage_report, markdown
from promptrl_jax.feedback.store import Store
from promptrl_jax.feedback.web.server import TOKEN_VARIABLE, FeedbackServer
from promptrl_jax.files import held, write_atomically
from promptrl_jax.training import checkpoint
from promptrl_jax.training.gpro.people import People

_POLL_S = 0.2
_LAST = 10  # ratings of which the progress bar shows the mean


def serve(config, workdir, loop, reward_fn, asked, model, port, timeout_s):
  """Asks until there are `config.queries` ratings, or nobody answers any more.

  Args:
    loop: before its first question.
    reward_fn: what it learns from.
    asked: texts of questions, asked again from the first one after the last.
    model: name of what answers.
    port: of the page; 0 for any.
    timeout_s: seconds without a sign of a person after which the run ends; 0:
      it waits.
  """
  with (
    held(workdir),
    Store.open(workdir / 'feedback.sqlite') as store,
    checkpoint.open_checkpoints(workdir / 'checkpoints') as checkpoints,
  ):
    session = find_session(store)
    token = os.environ.get(TOKEN_VARIABLE)
    with FeedbackServer(
      store, port, token=token, session=session, can_ask_again=True
    ) as page:
      print(
        f'open {page.url}\nanswers of {model} (Ctrl-C ends it for now)',
        flush=True,
      )
      people = People(
        loop,
        store,
        session,
        ask=config.ask,
        reward_fn=reward_fn,
        model=model,
      )
      resume(people, checkpoints)
      loop.refine_if_due()
      questions = Questions(store, session, asked)
      try:
        is_done = ask(
          config, workdir, people, questions, checkpoints, timeout_s
        )
      finally:
        report(config, workdir, people)
  if is_done:
    loop.refine()
    report_prompts(config, workdir, people)  # The lineage is that of all.
    print((workdir / 'results.md').read_text())
  else:
    print(
      f'nobody answered for {timeout_s:g} s after {len(people.said)} of '
      f'{config.queries} ratings: the same command goes on'
    )


def find_session(store: Store) -> str:
  """The session of a store: a new one if nothing was shown yet."""
  shown = store.responses()
  return shown[0].session if shown else uuid.uuid4().hex


def resume(people: People, checkpoints) -> None:
  """Goes on from the last checkpoint if any, and from what is in the store."""
  if checkpoints.latest_step() is not None:
    template, _ = people.loop.snapshot()
    run, plain = checkpoint.restore_checkpoint(checkpoints, template)
    people.loop.restore(run, plain['loop'])
    people.restore(plain['people'])
  people.resume()


def ask(config, workdir, people, questions, checkpoints, timeout_s) -> bool:
  """Asks question after question; whether all ratings came in."""
  loop, store = people.loop, people.store
  heard_at, since, is_compiled = time.monotonic(), people.since, False
  with tqdm.tqdm(total=config.queries, desc='ratings', unit='') as bar:
    while True:
      is_open = people.is_open
      people.collect()
      _show_progress(bar, people)
      if people.since != since:
        heard_at, since = time.monotonic(), people.since
      if is_open:
        if timeout_s and time.monotonic() - heard_at > timeout_s:
          return False
        if is_compiled:
          store.wait(_POLL_S)
        else:  # while the first answer is read
          loop.compile()
          is_compiled = True
        continue
      generation = loop.population.generation
      if loop.learn():
        save(people, checkpoints, config.checkpoint_every)
      if loop.population.generation > generation:
        report(config, workdir, people)
      if len(people.said) >= config.queries:
        return True
      questions.show_next(people)
      loop.refine_if_due()
      heard_at = time.monotonic()


def save(people: People, checkpoints, every: int) -> None:
  """Saves all that the loop needs to go on, as one checkpoint."""
  run, plain = people.loop.snapshot()
  if int(run.step) % every == 0:
    extra = {'loop': plain, 'people': people.snapshot()}
    checkpoint.save_checkpoint(checkpoints, run, extra)


def report(config, workdir: pathlib.Path, people: People) -> None:
  """Writes what was said so far, and the prompts with where they come from."""
  report_prompts(config, workdir, people)
  loop = people.loop
  lineage_report.report(
    workdir,
    loop.population,
    list(loop.history.values()),
    usage_of(people),
    f'Where the prompts come from, after {len(people.said)} ratings',
  )


def usage_of(people: People) -> dict[str, lineage_report.Usage]:
  """What was shown of each prompt, and what was said of it, by its id."""
  usage: dict[str, lineage_report.Usage] = {}
  for response in people.store.responses(people.session):
    first, *_ = response.metadata['places']
    value, kind, _ = people.said.get(
      response.metadata['serial'], (None, '', '')
    )
    # Of two answers the second one loses what the first one gains.
    if value is not None and response.shown_index != first:
      value = 1 - value if kind == 'pair' else None
    before = usage.get(response.prompt_id, lineage_report.Usage())
    heard = () if value is None else (value,)
    usage[response.prompt_id] = lineage_report.Usage(
      before.shown + 1, (*before.heard, *heard)
    )
  return usage


def _judgement(metrics) -> str:
  """What the newest actor would have earned on what was shown, if known."""
  of = {k.removeprefix('off_policy/'): float(v) for k, v in metrics.items()}
  if 'logged' not in of:
    return ''
  return (
    f'On the {of["queries"]:.0f} answers that were rated the newest choice '
    f'would have had {of["value"]:.3f} [{of["low"]:.3f}, {of["high"]:.3f}], '
    f'where {of["logged"]:.3f} was said.'
  )


def _progress(loop) -> str:
  """How different the prompts are now, and whether they still get better."""
  if not loop.generations:
    return ''
  last = generations.with_slopes(loop.generations)[-1]
  return (
    f'Two prompts differ in {last["jaccard"]:.0%} of their words; what is '
    f'expected of the best one has changed by {last["slope"]:+.4f} in each of '
    f'the last {generations.WINDOW} generations, with a variance of '
    f'{last["variance"]:.4f} between prompts.'
  )


def report_prompts(config, workdir: pathlib.Path, people: People) -> None:
  """Writes what was said so far, and the prompts."""
  loop, ratings = people.loop, people.ratings
  ranked = loop.population.ranked()
  some = min(_LAST, len(ratings))
  first, last = (_mean(part) for part in (ratings[:some], ratings[-some:]))
  said = {
    'ratings': f'{len(ratings)} of {config.queries}',
    'mean of the first': first,
    'mean of the last': last,
    'generation': loop.population.generation,
  }
  prompts = [
    {
      'expected': '' if one.fitness is None else f'{one.fitness:.3f}',
      'generation': one.generation,
      'prompt': one.genome.render(),
    }
    for one in ranked
  ]
  lines = [
    markdown.table([said], 'r'),
    '',
    f'Ratings from 0 to 1, the first and last {some}.',
    _judgement(loop.metrics),
    _progress(loop),
    'Prompts, the best first:',
    '',
    markdown.table(prompts, 'rrl'),
  ]
  write_atomically(workdir / 'results.md', ('\n'.join(lines) + '\n').encode())
  results = {
    'ratings': ratings,
    'generation': loop.population.generation,
    'questions': loop.queries,
    'generations': generations.with_slopes(loop.generations),
  }
  write_atomically(workdir / 'results.json', json.dumps(results).encode())
  prompts = [
    {'prompt': one.genome.render(), 'fitness': one.fitness} for one in ranked
  ]
  write_atomically(workdir / 'prompts.json', json.dumps(prompts).encode())


def _show_progress(bar, people: People) -> None:
  ratings = people.ratings
  shown = (
    f'mean of the last {_LAST} {_mean(ratings[-_LAST:])}, '
    f'generation {people.loop.population.generation}'
  )
  if (bar.n, bar.postfix) != (len(ratings), shown):
    bar.n = len(ratings)
    bar.set_postfix_str(shown)


def _mean(values: list[float]) -> str:
  return f'{np.mean(values):.3f}' if values else '-'
