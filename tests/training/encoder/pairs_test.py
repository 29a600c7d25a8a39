"""Pairs to learn from: what they may hold, and that draws repeat."""

import dataclasses
import random

import jax
import numpy as np
import pytest

from promptrl_jax.models.sentence_encoder import TableConfig, make_embed_fn
from promptrl_jax.training.encoder import learner as encoder
from promptrl_jax.training.encoder import pairs, requests
from promptrl_jax.training.encoder.config import (
  EncoderTrainConfig,
  SharesConfig,
)

TABLE = TableConfig(rows=512, size=16)
CONFIG = EncoderTrainConfig(steps=30, pairs=16, focus=3, features=256)


def texts(held_parts: bool):
  """All sentences of the wordings, without their topics."""
  return {
    sentence
    for part in requests.parts().values()
    for sentence in (part.held if held_parts else part.learned)
  }


def test_no_wording_is_both_learned_and_held():
  assert not texts(True) & texts(False)
  for name, part in requests.parts().items():
    assert len(part.learned) >= 4 and len(part.held) >= 2, name


def test_every_kind_has_answers_and_topics_that_are_held():
  kinds = [name.partition(' ')[2] for name in requests.names('kind')]
  answers = [name.partition(' ')[2] for name in requests.names('answer')]
  assert kinds == answers
  learned, held = requests.topics(False), requests.topics(True)
  assert {topic.domain for topic in held} == set(requests.HELD_DOMAINS)
  assert not set(learned) & set(held)
  assert len(held) > 30


def test_nothing_held_out_is_drawn():
  rng = random.Random(0)
  wordings = [w for t in requests.topics(True) for w in t.wordings]
  sentences = [s for s in texts(True) if '$' not in s]
  for _ in range(40):
    focus = pairs.draw_focus(rng, 4)
    for name in ('requests', 'answers', 'styles'):
      pair = pairs.DRAWS[name](focus, rng)
      for text in (pair.first, pair.second):
        assert not any(s in text for s in sentences), text
        assert not any(f' {w}' in text for w in wordings), text


def test_styles_do_not_contradict_each_other():
  rng = random.Random(1)
  for _ in range(200):
    meaning = requests.vary(requests.draw_style(rng), rng)
    assert len(set(meaning.parts)) == len(meaning.parts)
    assert not {'style short', 'style long'} <= set(meaning.parts)
    assert not {'style bullets', 'style prose'} <= set(meaning.parts)


def test_damage_leaves_a_word():
  rng = random.Random(0)
  assert pairs.damage('Explain gravity to me.', rng, dropped=1.0) == 'Explain'
  assert pairs.damage('', rng) == ''


def test_batches_repeat_and_learning_brings_pairs_together():
  learner = encoder.make_learner(TABLE, CONFIG)
  state = learner.init(jax.random.key(0))
  losses = []
  for _ in range(CONFIG.steps):
    batch = encoder.draw_batch(CONFIG, TABLE, random.Random('same'))
    state, row = learner.update(state, batch)
    losses.append(row['train/loss'])
  assert losses[-1] < 0.5 * losses[0]
  # The table that is saved gives the vectors that were learned.
  table = encoder.to_table(state.params)
  text = 'Tell me the basics of magnets, please.'
  rows, weights = encoder.pad_features([text], TABLE, CONFIG.features)
  np.testing.assert_allclose(
    make_embed_fn(TABLE, table)([text]),
    encoder.encode(state.params, rows, weights),
    atol=1e-5,
  )


def test_a_kind_without_a_share_is_not_drawn():
  shares = dataclasses.asdict(SharesConfig())
  only = SharesConfig(**{**dict.fromkeys(shares, 0.0), 'minicode': 1.0})
  config = dataclasses.replace(CONFIG, shares=only)
  assert shares.keys() == pairs.DRAWS.keys()
  batch = encoder.draw_batch(config, TABLE, random.Random(0))
  assert batch.rows.shape == (16, 2, 256)


@pytest.mark.parametrize(
  ('values', 'message'),
  [
    ({'steps': 0}, 'steps=0: expected at least 1'),
    ({'pairs': 1}, 'pairs=1: expected at least 2'),
    ({'temperature': 0.0}, 'temperature=0.0: expected a number above 0'),
  ],
)
def test_bad_settings_are_named(values, message):
  with pytest.raises(ValueError, match=message):
    EncoderTrainConfig(**values)


def test_a_focus_on_more_than_there_is_is_named():
  with pytest.raises(ValueError, match='focus=1000: expected at most'):
    pairs.draw_focus(random.Random(0), 1000)


def test_shares_must_leave_something():
  with pytest.raises(ValueError, match='one of them above 0'):
    SharesConfig(*[0.0] * 7)
