"""Each setting that a comparison has of its own changes what it plays.

A field that is added without a row here fails `test_every_setting_has_a_row`.
"""

import dataclasses

import pytest

from configs import compare, mbpp_ppo
from experiments import entrants, measures, searching
from promptrl_jax import settings
from promptrl_jax.evaluation.play import Entrant, LineUp, Plan
from promptrl_jax.evaluation.selection import Selected
from promptrl_jax.evaluation.store import CellStore
from promptrl_jax.execution.memo import MemoPool
from promptrl_jax.llm.attempt import CODER, REWRITER
from promptrl_jax.llm.cache import CachedBackend
from promptrl_jax.strategies.base import named
from promptrl_jax.testing import tiny
from promptrl_jax.testing.scripted import ScriptedBackend

TASKS = {split: tiny.tasks(4, split) for split in ('train', 'validation')}
PLAN = Plan('visible1', 3, tiny.tasks(4, 'test'), (0,))
USUAL = compare.Config(
  subject='greedy_first',
  restarted=('greedy_first',),
  restarted_after=2,
  verified=('greedy_first',),
  oracle_of_n=True,
  eval=mbpp_ppo.EvalConfig(budgets=(PLAN.budget,)),
)
CHANGES = {
  'subject': 'mbr_exec',
  'portfolio': ('greedy_first',),
  'oracle_of_n': False,
  'restarted': ('mbr_exec',),
  'restarted_after': 1,
  'verified': ('mbr_exec',),
  'verified_at': 0.01,
  'verifier_problems': 2,
  'trained_rewriter': 'minicode2_rewriter',
  'rescore': False,
}


def test_every_setting_has_a_row():
  own = {*settings.fields(compare.Config)} - {*settings.fields(mbpp_ppo.Config)}
  # The run that it names is read first, what plays together changes no result,
  # and another split is another plan, see `compare_test.py`.
  assert own == {*CHANGES, 'controllers', 'together', 'split'}


@pytest.fixture
def play(pool, tmp_path):
  """What plays, what each asks for, and what is measured beside."""
  model = CachedBackend(
    ScriptedBackend(lambda request: f'\n  return x + {request.seed % 3}')
  )
  line_up = LineUp({CODER: model, REWRITER: model}, MemoPool(pool))
  rivals = {
    'greedy_first': Entrant.of(named('best_of_n')),
    'mbr_exec': Entrant.of(named('mbr_exec')),
  }

  def play(config, name):
    # Verifiers of equal settings are fitted once, since they are kept.
    kept = tmp_path / f'{config.verified} {config.verifier_problems}'
    kept.mkdir(exist_ok=True)
    fitted = searching.fit_verifiers(config, rivals, line_up, TASKS, kept)
    players = rivals | entrants.verified(config, rivals, fitted)
    players |= entrants.restarted(config, rivals)
    cells = [line_up.play_cell(n, e, PLAN)[0] for n, e in players.items()]
    beside = config, line_up, [PLAN], cells, CellStore(tmp_path / name)
    bounds, _ = measures.measure_ceilings(*beside)
    controls = measures.sample_as_often(*beside)
    chosen = [Selected('mbr_exec', (PLAN.budget,), 0.5)]
    again = measures.rescore(
      *(config, line_up, players, chosen, TASKS['validation'], cells)
    )
    asked = [
      (cell.strategy, cell.calls.tolist(), cell.optimisation_calls)
      for cell in (*cells, *bounds, *controls)
    ]
    return list(entrants.compared_costs(config, None)), asked, again

  return play


def test_every_setting_changes_what_is_played(play):
  usual = play(USUAL, 'usual')
  assert play(USUAL, 'again') == usual
  for name, value in CHANGES.items():
    other = dataclasses.replace(USUAL, **{name: value})
    assert play(other, name) != usual, name
