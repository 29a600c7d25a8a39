"""The table of what plays, and what a candidate costs each of them."""

import dataclasses
import pathlib

import pytest

from configs import compare, mbpp_ppo
from configs.mbpp_ppo import EvalConfig
from experiments import controllers, entrants, searching
from promptrl_jax import settings
from promptrl_jax.evaluation import instruction_search, open_loop, portfolio
from promptrl_jax.evaluation.instruction_search import Instruction
from promptrl_jax.evaluation.open_loop import Found
from promptrl_jax.llm.ask import AskConfig
from promptrl_jax.llm.ledger import SpendConfig
from promptrl_jax.llm.preflight import CandidateCost
from promptrl_jax.strategies.base import STRATEGIES


def config_of(argument, job=compare, **changes):
  """Settings of a job with everything that it can play."""
  given = job.get_config(argument)
  given.eval.without = ()
  given.eval.instruction_search.calls = 400
  given.eval.thompson = True
  given.editing.sees_price, given.eval.token_prices = True, (0.5,)
  config = settings.from_mapping(job.Config, given.to_dict())
  return dataclasses.replace(config, **changes)


def chosen(config):
  """What a search on validation would find."""
  names = tuple(open_loop.sampling_rivals(config.editing))
  if not config.examples:
    names = tuple(name for name in names if name != 'fewshot')
  return Found(
    best={1: ('keep',)},
    single=('keep',),
    scores={1: 0.5},
    temperatures=dict.fromkeys(names, 0.8),
    temperature_calls=dict.fromkeys(names, 1),
    examples={'fewshot': 1} if 'fewshot' in names else {},
  )


@pytest.mark.parametrize(
  ('argument', 'job'),
  [
    ('smoke', compare),
    ('minicode2', compare),
    ('mbpp_real', compare),
    ('mbpp_all', compare),
    ('minicode2', mbpp_ppo),
    ('mbpp_real', mbpp_ppo),
  ],
)
def test_every_entrant_has_a_cost_and_nobody_else(argument, job):
  config = config_of(argument, job)
  instructed = {
    instruction_search.NAME: Instruction('', '', 0.0, 0.0, 1, 1, 'over')
  }
  learned = {
    0: dict.fromkeys(controllers.names(config), (None, 100)),
  }
  players = set(entrants.make(config, chosen(config), instructed, learned))
  costs = entrants.costs(config, controllers.names(config))
  assert players == set(costs)
  assert all(isinstance(cost, CandidateCost) for cost in costs.values())
  entrants.check_costs(players, costs)
  with pytest.raises(ValueError, match='known for newcomer: expected one for'):
    entrants.check_costs([*players, 'newcomer'], costs)


def test_a_comparison_knows_the_costs_of_all_that_it_plays_itself():
  config = config_of(
    'minicode2',
    restarted=('direct', 'ppo'),
    verified=('direct', 'random'),
    portfolio=('ppo_rewriter', 'greedy_first', 'mbr_exec'),
  )
  folder = pathlib.Path(config.controllers)
  costs = entrants.compared_costs(config, folder)
  learned = controllers.played_names(config, folder)
  assert set(costs) == {
    *entrants.costs(config, learned),
    *entrants.REWRITING,
    *portfolio.NAMES,
    *('direct_restarted', 'ppo_restarted'),
    *('direct_verified', 'random_verified'),
  }
  # Any operator may be chosen, and `semantic` takes two calls.
  assert costs['ppo'] == costs['rewriter'] == costs['portfolio']
  assert costs['ppo'] == costs['best_open_loop'] == CandidateCost(2)
  # One greedy call is no more, but one that goes on for a verifier is.
  assert costs['direct'].candidates(16) == 1
  assert costs['direct_verified'].candidates(16) == 16
  assert costs['direct_restarted'].candidates(16) == 16
  assert costs['ppo_restarted'] == costs['ppo']
  # keep, semantic (two), reset_prompt, repair, resample.
  assert costs['hand_rule'].candidates(6) == 5
  assert costs['mbr_exec'] == STRATEGIES['mbr_exec'].cost


def test_one_argument_plays_every_registered_strategy_on_mbpp():
  given = compare.get_config('mbpp_all').to_dict()
  config = settings.from_mapping(compare.Config, given)
  costs = entrants.compared_costs(config, pathlib.Path(config.controllers))
  # The line-up has these two under names of its own; ablations, which another
  # test may have registered, are not rivals.
  others = {'best_of_n', 'fewshot', *compare._ABLATED}
  assert set(STRATEGIES) - others <= set(costs)
  assert costs.keys() >= {
    *('direct', 'greedy_first', 'fewshot_tuned', 'repair', 'best_open_loop'),
    *('hand_rule', 'random', 'gepa', 'ppo', 'portfolio', 'random_portfolio'),
  }
  assert config.eval.budgets == (1, 2, 4, 8, 16) and config.seeds >= 3
  entrants.check_members(config, costs)
  entrants.check_verified(config, costs)


def candidates(config, costs, sizes=(100, 100, 100)):
  splits = ('train', 'validation', 'test')
  tasks = {n: [None] * k for n, k in zip(splits, sizes, strict=True)}
  return entrants.candidates(config, costs, tasks, sizes[-1])


def test_a_cap_that_buys_too_few_candidates_names_all_it_is_short_for():
  config = config_of('minicode2')
  costs = entrants.compared_costs(config, None)
  line = candidates(config, costs)
  assert line.startswith('candidates that 16 calls per problem buy: direct 1, ')
  for told in ('random 8', 'best_open_loop 8', 'hand_rule 15', 'gepa 16'):
    assert f', {told}' in line
  budgets, others = sum(config.eval.budgets), len(costs) - 1
  most = 100 * config.seeds * (others * budgets + len(config.eval.budgets))
  assert f'at most {most:,} model calls' in line

  def capped_at(calls):
    spend = dataclasses.replace(config.spend, calls=calls)
    return dataclasses.replace(config, spend=spend)

  # It pays for one strategy at 16 calls, though not for all of the table.
  enough = 16 * 100 * config.seeds
  line = candidates(capped_at(enough), costs)
  assert ', random 8, ' in line and f'the run ends at {enough:,}' in line
  capped = capped_at(enough // 4)
  with pytest.raises(ValueError, match=r'^4 calls .* random 2 \(needs 6 calls'):
    candidates(capped, costs)
  told_otherwise = dataclasses.replace(capped.spend, least_candidates=1)
  capped = dataclasses.replace(capped, spend=told_otherwise)
  assert ', random 2, ' in candidates(capped, costs)


def test_what_the_table_may_cost_on_servers_is_said_where_prices_are_given():
  config = config_of('minicode2', eval=EvalConfig(budgets=(1, 4)), seeds=2)
  spend = SpendConfig(prices=(('small', 0.5, 2.0), ('large', 1.0, 1.5)))
  config = dataclasses.replace(
    config, spend=spend, ask=AskConfig(max_tokens=50, rewrite_max_tokens=100)
  )
  costs = {'direct': CandidateCost(most=1), 'repair': CandidateCost()}
  assert '$' not in candidates(config, costs)  # Models here are free.

  def on_server(model):
    server = dataclasses.replace(config.coder, backend='openai', model=model)
    return dataclasses.replace(config, coder=server)

  # 100 problems in two runs, of 1 + 1 and of 1 + 4 calls.
  assert (
    'at most 1,400 model calls, which cost $0.28 for answers of 100 tokens, '
    'and $0.07 for each 100 tokens of a prompt, fewer where'
  ) in candidates(on_server('small'), costs)
  assert '$' not in candidates(on_server('unknown'), costs)


def test_an_instruction_search_with_too_few_calls_is_refused_before_any():
  config = config_of('mbpp_real')
  search = dataclasses.replace(config.eval.instruction_search, calls=60)
  config = dataclasses.replace(
    config, eval=dataclasses.replace(config.eval, instruction_search=search)
  )
  costs = entrants.compared_costs(config, None)
  with pytest.raises(ValueError, match='60 calls buys 0 candidates of gepa'):
    candidates(config, costs)
  del costs[instruction_search.NAME]  # Left out: nothing is searched.
  assert 'direct 1' in candidates(config, costs)


def test_rivals_of_operators_that_are_no_actions_may_be_left_out():
  given = compare.get_config('minicode2')
  given.editing.actions = ('keep', 'semantic')
  given.eval.without = ('lexical', 'repair', 'best_of_b', 'best_of_b_tuned')
  config = settings.from_mapping(compare.Config, given.to_dict())
  entrants.check_left_out(config, ())
  given.eval.without = ('lexicals',)
  config = settings.from_mapping(compare.Config, given.to_dict())
  with pytest.raises(ValueError, match='names lexicals: expected some of'):
    entrants.check_left_out(config, ())


def test_a_member_that_is_not_known_yet_is_refused_by_its_own_check():
  names = dict.fromkeys(('portfolio', 'restarted', 'verified'), ('nobody',))
  config = config_of('minicode2', **names)
  costs = entrants.compared_costs(config, None)
  for check in (
    entrants.check_members,
    entrants.check_restarted,
    entrants.check_verified,
  ):
    with pytest.raises(ValueError, match='nobody is not played'):
      check(config, costs)


def test_what_is_searched_is_what_may_be_played():
  config = config_of('minicode2')
  assert set(searching.costs(config)) <= {
    *open_loop.rival_names(config.editing),
    instruction_search.NAME,
  }
