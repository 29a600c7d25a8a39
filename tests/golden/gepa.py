"""Records what the GEPA package decides where its model is a list of texts.

  python -m tests.golden.gepa     writes tests/golden/strategies/gepa.json

The package (extra `parity`) is called through its public interface.
"""

from __future__ import annotations

import collections
import itertools
import json
import pathlib
import random
import zlib
from typing import Any

PATH = pathlib.Path(__file__).parent / 'strategies' / 'gepa.json'
EXAMPLES, MINIBATCH, LOOKS, SEEDS = 12, 3, 60, (0, 1)


def text_of(number: int) -> str:
  """The proposal of a number; that of 0 is the start."""
  return f'text {number}'


def score_of(text: str, example: int) -> float:
  """0 or 1, drawn by a hash; later texts are a little better."""
  number = int(text.removeprefix('text '))
  draw = zlib.crc32(f'{number}/{example}'.encode()) % 100
  return float(draw < 25 + min(number, 40))


def record(seed: int) -> list[dict[str, Any]]:
  """Runs the package; returns a row for each of its iterations.

  A row holds the `weights` by which candidates were drawn, the `parent` that
  was, its `minibatch`, the sums `before` and `after` of the scores there
  (`after` is None where the minibatch was perfect and nothing was proposed) and
  the number of the new `candidate` if it was taken. The last row has the text
  that was `best` in the end.
  """
  import gepa
  from gepa.gepa_utils import remove_dominated_programs
  from gepa.strategies.candidate_selector import ParetoCandidateSelector

  rows: list[dict[str, Any]] = []
  numbers = itertools.count(1)

  class Adapter:
    """Scores texts; a proposal is the next text."""

    propose_new_texts = None

    def evaluate(self, batch, candidate, capture_traces=False):
      scores = [score_of(candidate['text'], example) for example in batch]
      return gepa.EvaluationBatch(
        outputs=list(batch),
        scores=scores,
        trajectories=list(batch) if capture_traces else None,
      )

    def make_reflective_dataset(self, candidate, batch, components):
      return {name: [{'score': s} for s in batch.scores] for name in components}

  class Selector(ParetoCandidateSelector):
    """Notes what the package draws from."""

    def select_candidate_idx(self, state):
      fronts = remove_dominated_programs(
        state.get_pareto_front_mapping(),
        scores=state.per_program_tracked_scores,
      )
      count = collections.Counter(itertools.chain(*fronts.values()))
      parent = super().select_candidate_idx(state)
      weights = [[k, count[k]] for k in sorted(count)]
      rows.append({'weights': weights, 'parent': parent})
      return parent

  class Silent:
    """A log that nobody reads."""

    def log(self, message):
      pass

  class Notes:
    """Fills in the row of an iteration."""

    def on_minibatch_sampled(self, event):
      rows[-1] |= {'minibatch': event['minibatch_ids'], 'candidate': None}
      rows[-1] |= {'before': None, 'after': None}

    def on_evaluation_end(self, event):
      name = 'after' if event['candidate_idx'] is None else 'before'
      rows[-1][name] = sum(event['scores'])

    def on_candidate_accepted(self, event):
      rows[-1]['candidate'] = event['new_candidate_idx']

  examples = list(range(EXAMPLES))
  result = gepa.optimize(
    seed_candidate={'text': text_of(0)},
    trainset=examples,
    valset=examples,
    adapter=Adapter(),
    custom_candidate_proposer=lambda *unused: {'text': text_of(next(numbers))},
    candidate_selection_strategy=Selector(random.Random(seed)),
    reflection_minibatch_size=MINIBATCH,
    stop_callbacks=lambda state: state.i + 1 >= LOOKS,
    callbacks=[Notes()],
    logger=Silent(),
    seed=seed,
  )
  rows[-1]['best'] = result.best_candidate['text']
  return rows


if __name__ == '__main__':
  lines = ',\n'.join(
    f'"{seed}": [\n' + ',\n'.join(map(json.dumps, record(seed))) + '\n]'
    for seed in SEEDS
  )
  PATH.write_text(f'{{\n{lines}\n}}\n', encoding='utf-8')
