"""Each setting of GPRO and its loop changes what happens.

A field that is added without a row here fails `test_every_setting_has_a_row`.
"""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.evolution import diversity, hints
from promptrl_jax.evolution.islands import IslandsConfig
from promptrl_jax.evolution.schedule import ScheduleConfig
from promptrl_jax.training.gpro import choosing, update
from promptrl_jax.training.gpro import replay as replay_lib
from promptrl_jax.training.gpro.choosing import RulesConfig
from promptrl_jax.training.gpro.config import GPROConfig
from promptrl_jax.training.gpro.phases import LoopConfig
from promptrl_jax.training.gpro.state import make_parts as make_networks
from promptrl_jax.training.gpro.state import mixture, standardise
from tests.training.gpro.small import BANK, SMALL, make_loop, make_parts
from tests.variants import mostly_slow

ROWS = 60
GPRO = GPROConfig(
  features=4,
  candidates=3,
  members=2,
  capacity=64,
  actor_steps=3,
  minibatch=8,
  max_weight=2.0,
  drift=50.0,
  temperatures=(0.0, 1.0),
  context=2,
)
GPRO_CHANGES = {
  'features': 5,
  'candidates': 4,
  'hidden': (3,),
  'members': 3,
  'every': 7,
  'capacity': 63,
  'half_life': 5.0,
  'drift': 1e-6,
  'old_taste': 0.9,
  'actor_steps': 4,
  'minibatch': 9,
  'actor_lr': 0.2,
  'advantage': 'shown',
  'max_weight': 1.0,
  'clip': 0.01,
  'kl_coef': 1.0,
  'anchor': 'frozen',
  'anchor_decay': 0.1,
  'entropy_coef': 0.9,
  'exploration': 0.0,
  'uniform': 0.5,
  'rating_noise': 0.6,
  'prior_scale': 0.3,
  'temperatures': (0.0, 0.5, 1.0),
  'context': 3,
}
# One each of the networks, the replay, the loss and the choice.
EVERY_TIME = ('members', 'clip', 'temperatures')
RULE_CHANGES = {'epsilon': 0.0, 'scale': 0.0}
LOOP_CHANGES = {
  'population_size': 5,
  'bootstrap_queries': 8,
  'bootstrap_prompts': 2,
  'main_queries': 6,
  'refine_below': 1.0,
  'window': 2,
  'optimism': 30.0,
  'judged': True,
  'evolves': False,
  'choose': 'random',
  'rules': RulesConfig(epsilon=1.0),
  'evolution': dataclasses.replace(
    SMALL.evolution, mutation_rate=1.0, strength=hints.Anneal(0.0, 0.0, 1)
  ),
  'objectives': 'cost',
  'islands': IslandsConfig(2),
  'schedule': ScheduleConfig(every=2, patience=0),
  'temperature': 1.0,
  'max_tokens': 3,
}
# What a setting needs beside it to have an effect.
LOOP_BESIDE = {
  'refine_below': {'main_queries': 20},
  'rules': {'choose': 'epsilon_greedy'},
  'objectives': {
    'evolution': dataclasses.replace(SMALL.evolution, selection='nsga2')
  },
}


@pytest.mark.parametrize(
  ('config', 'changes'),
  [
    (GPROConfig, GPRO_CHANGES),
    (RulesConfig, RULE_CHANGES),
    (LoopConfig, LOOP_CHANGES),
  ],
)
def test_every_setting_has_a_row(config, changes):
  assert {f.name for f in dataclasses.fields(config)} == changes.keys()


def make_replay(config):
  """A replay of ratings, thumbs and pairs, of another taste at the end."""
  rng = np.random.default_rng(0)
  replay = replay_lib.empty(config)
  group = config.candidates
  for at in range(ROWS):
    features = rng.normal(size=(group, config.features))
    scores = rng.uniform(0.3, 0.9, group)
    replay, serial = replay_lib.add(
      replay,
      features,
      np.ones(group, bool),
      np.log(rng.dirichlet(np.ones(group))),
      scores,
      at % group,
      (at + 1) % group,
      context=rng.normal(size=config.context),
      temperature=at % 2,
      temperature_logp=np.log(0.5),
    )
    liked = features[at % group, 0] * (1 if at < 40 else -1)
    kind = ('rating', 'thumbs', 'pair')[at % 3]
    reward = float(liked > 0) if kind != 'rating' else 1 / (1 + np.exp(-liked))
    replay, _ = replay_lib.rate(replay, serial, reward, kind)
  return replay


def start(config):
  """Networks, the state before an update, and a replay."""
  networks = make_networks(config)
  state = networks.initial(jax.random.key(0))
  # The taste has changed once, so that there are ratings of an old one.
  state = dataclasses.replace(state, changed=jnp.int32(9))
  return networks, state, make_replay(config)


@functools.cache
def trained(config):
  """The state after two updates."""
  networks, state, replay = start(config)
  step = jax.jit(functools.partial(update.update, config, networks))
  for _ in range(2):
    state, _ = step(state, replay)
  return state


@functools.cache
def program(config):
  """What an update and a choice compute, as text; nothing is compiled."""
  networks = make_networks(config)
  state = jax.eval_shape(networks.initial, jax.random.key(0))
  replay = replay_lib.empty(config)
  step = functools.partial(update.update, config, networks)

  def act(state, features, mask):
    logits = networks.actor(state.params['actor'], standardise(state, features))
    return mixture(config, logits, mask)

  due = [n for n in range(1, 20) if n % config.every == 0]
  first = jax.make_jaxpr(networks.initial)(jax.random.key(0))
  choice = jax.make_jaxpr(act)(state, replay.features, replay.mask)
  text = f'{first} {jax.make_jaxpr(step)(state, replay)} {choice} {due}'
  return re.sub('0x[0-9a-f]+', '', text)  # addresses of functions


@pytest.mark.parametrize('name', mostly_slow(GPRO_CHANGES, EVERY_TIME))
def test_each_setting_of_gpro_changes_what_is_computed(name):
  changed = dataclasses.replace(GPRO, **{name: GPRO_CHANGES[name]})
  assert program(GPRO) != program(changed)


@pytest.mark.parametrize(
  'where', [{'advantage': 'shown'}, {'temperatures': ()}]
)
def test_the_clip_holds_for_every_policy(where):
  """Of what was shown, and of candidates."""
  of = lambda clip: program(dataclasses.replace(GPRO, clip=clip, **where))
  assert of(0.3) != of(0.4)


def test_a_temperature_depends_on_what_is_known_of_a_query():
  config = dataclasses.replace(GPRO, context=0)
  with pytest.raises(ValueError, match='context=0: expected a feature'):
    make_networks(config)


def test_a_program_is_a_function_of_its_settings():
  assert program.__wrapped__(dataclasses.replace(GPRO)) == program(GPRO)


def spread(state):
  """How far actors are from each other."""
  return sum(
    float(np.sum(np.std(x, axis=0)))
    for x in jax.tree.leaves(state.params['actor'])
  )


def distance(state, other):
  """How far the actors of two states are from each other."""
  pairs = (jax.tree.leaves(s.params['actor']) for s in (state, other))
  return sum(float(np.abs(x - y).sum()) for x, y in zip(*pairs, strict=True))


@pytest.mark.slow
def test_settings_change_it_the_way_they_say():
  change = lambda **fields: trained(dataclasses.replace(GPRO, **fields))
  base = trained(GPRO)
  # Actors that learn from one critic are one actor.
  assert spread(change(exploration=0.0)) < 1e-4 < 0.01 < spread(base)
  frozen = change(anchor='frozen')
  same = jax.tree.map(np.array_equal, frozen.anchor, frozen.first['actor'])
  assert jax.tree.all(same)
  assert not jax.tree.all(
    jax.tree.map(np.array_equal, base.anchor, base.first['actor'])
  )
  first = dataclasses.replace(base, params=base.first)
  held = change(kl_coef=5.0, anchor='frozen')
  assert distance(held, first) < distance(frozen, first)
  assert change(drift=1e-6).changed > base.changed == 9
  # The less an old taste weighs, the more critics expect of the new one.
  critic = lambda state: state.params['critic']['params']['head']['kernel']
  little, much = (np.asarray(critic(change(old_taste=w))) for w in (0.0, 1.0))
  near, far = (np.abs(critic(base) - x).max() for x in (little, much))
  assert near < far


PARTS = functools.cache(make_parts)


@pytest.mark.parametrize(
  ('rule', 'name'), [('epsilon_greedy', 'epsilon'), ('thompson', 'scale')]
)
def test_each_setting_of_a_rule_changes_what_is_tried(rule, name):
  features, learner = PARTS()
  loop = make_loop(PARTS())
  rate(loop, 10)
  state = loop.snapshot()[0].state
  shown = np.random.default_rng(0).normal(size=(5, features.size))
  choose = lambda value: np.exp(
    choosing.choose(
      rule, learner, state, shown, 0, RulesConfig(**{name: value})
    ).logps
  )
  # Nothing but the best one, up to the least probability that is noted.
  assert choose(RULE_CHANGES[name]).max() == pytest.approx(1.0)
  assert choose({'epsilon': 1.0, 'scale': 9.0}[name]).max() < 0.95


def rate(loop, queries):
  """What a person saw who likes short answers."""
  seen = []
  for query in BANK[:queries]:
    showing = loop.show(query)
    seen.append((showing.text, showing.logps, loop.phase))
    loop.hear(showing.serial, 1 / (1 + len(showing.text) / 300))
    loop.learn()
    loop.refine_if_due()
  return seen


@functools.cache
def outcome(config):
  """What a person saw in a run, and what the prompts are in the end."""
  loop = make_loop(PARTS(), config=config, embed_fn=diversity.word_vectors)
  return rate(loop, 24), loop.population.texts, sorted(loop.metrics)


@pytest.mark.slow
@pytest.mark.parametrize('name', LOOP_CHANGES)
def test_each_setting_of_the_loop_changes_a_run(name):
  base = dataclasses.replace(SMALL, **LOOP_BESIDE.get(name, {}))
  changed = dataclasses.replace(base, **{name: LOOP_CHANGES[name]})
  assert outcome(base) != outcome(changed)
