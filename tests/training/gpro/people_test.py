"""The loop on the store: late ratings, undo, pairs, and going on."""

import itertools

import jax
import numpy as np
import pytest

from promptrl_jax.evolution import diversity
from promptrl_jax.feedback.events import (
  Correction,
  Explicit,
  Implicit,
  Preference,
  Response,
  Skip,
  Undo,
)
from promptrl_jax.feedback.store import Store
from promptrl_jax.rewards import safety
from promptrl_jax.training import checkpoint
from promptrl_jax.training.gpro import replay as replay_lib
from promptrl_jax.training.gpro.people import People
from promptrl_jax.training.gpro.reward import Answer, make_reward
from tests.training.gpro.small import BANK, make_loop, make_parts

IDS = itertools.count()


@pytest.fixture(scope='module')
def parts():
  return make_parts(temperatures=(0.0, 1.0))


@pytest.fixture
def store(tmp_path):
  with Store.open(tmp_path / 'feedback.sqlite') as opened:
    yield opened


def make(parts, store, session='s', backend=None, **settings):
  return People(make_loop(parts, backend), store, session, **settings)


def say(store, kind, response, **fields):
  event = kind(id=f'e{next(IDS)}', response_id=response.id, at=0.0, **fields)
  store.add_event(event)
  return event


def rate(store, response, value, scale='rating_1_5'):
  return say(store, Explicit, response, value=value, scale=scale)


def rows(people):
  """Reward and kind by the number of the query."""
  replay = people.loop.snapshot()[0].replay
  return {
    int(serial): (float(reward), int(kind))
    for serial, reward, kind in zip(
      replay.serial, replay.reward, replay.kind, strict=True
    )
    if serial >= 0
  }


def test_late_ratings_count_for_the_answer_that_they_are_about(parts, store):
  people = make(parts, store)
  (first,), (second,) = people.show(BANK[0]), people.show(BANK[1])
  assert (first.metadata['serial'], second.metadata['serial']) == (0, 1)
  assert first.candidates[first.shown_index].prompt_id == first.prompt_id
  assert sum(c.propensity for c in first.candidates) == pytest.approx(1)
  rate(store, second, 5)
  rate(store, first, 0, 'thumbs')
  assert people.is_open is False and people.collect() == 2
  assert rows(people) == {
    0: (0.0, replay_lib.THUMBS),
    1: (1.0, replay_lib.RATING),
  }
  say(store, Implicit, first, value=3.0, scale='reading_time')
  assert people.collect() == 0  # A rating says more than how long it took.
  assert people.ratings == [1.0, 0.0]


def test_what_was_undone_or_skipped_is_not_learned_from(parts, store):
  people = make(parts, store)
  (first,), (second,) = people.show(BANK[0]), people.show(BANK[1])
  say(store, Implicit, first, value=20.0, scale='reading_time')
  rating = rate(store, first, 5)
  say(store, Skip, second)
  assert people.collect() == 1 and not people.is_open
  say(store, Undo, first, event_id=rating.id)
  assert people.is_open and people.collect() == 1
  assert rows(people) == dict.fromkeys((0, 1), (0.0, replay_lib.NONE))
  assert people.ratings == []
  rate(store, first, 2)
  people.collect()
  assert rows(people)[0] == (0.25, replay_lib.RATING)


def test_what_people_write_guides_the_next_generation(parts, store):
  hints = []
  loop = make_loop(parts, embed_fn=diversity.word_vectors)
  people = People(loop, store, 's')
  for number in range(10):
    (response,) = people.show(BANK[number])
    say(
      store,
      Explicit,
      response,
      value=1,
      scale='rating_1_5',
      comment='Use bullet points.' if number % 2 else '',
    )
    assert people.collect() == 1
    people.loop.learn()
    hints.append(people.loop.hint)
  assert hints[0] is None
  assert hints[-1].text == 'Use bullet points.'
  # Each of five people who were not content at all counts fully.
  assert hints[-1].weight == pytest.approx(5)
  guided = [
    one.genome.sections[hints[-1].section]
    for one in people.loop.population.individuals
    if one.generation
  ]
  assert any('bullet' in text for text in guided)
  run, plain = people.loop.snapshot()
  again = make_loop(parts, embed_fn=diversity.word_vectors)
  again.restore(run, plain)
  assert again.hint == hints[-1]
  withdrawn = store.responses('s')[-1]
  assert people.loop.forget(withdrawn.metadata['serial'])
  assert people.loop.hint.weight == pytest.approx(4)


def test_corrections_and_acts_count_by_the_score_of_all_of_them(parts, store):
  people = make(parts, store)
  (first,), (second,) = people.show(BANK[0]), people.show(BANK[1])
  say(store, Correction, first, value=first.text)
  say(store, Implicit, second, value=1, scale='copied')
  say(store, Implicit, second, value=1, scale='asked_again')
  # Whoever does something with an answer has read it.
  say(store, Implicit, first, value=30, scale='reading_time')
  say(store, Implicit, second, value=30, scale='reading_time')
  people.collect()
  assert rows(people) == {
    0: (1.0, replay_lib.RATING),
    1: (0.5, replay_lib.RATING),
  }


def test_who_asks_again_takes_it_back_and_asks_again_is_heard(parts, store):
  people = make(parts, store)
  (answer,) = people.show(BANK[0])
  # As the page sends it.
  say(store, Implicit, answer, value=30, scale='reading_time')
  people.collect()
  assert rows(people) == {0: (1.0, replay_lib.RATING)}
  again = say(store, Implicit, answer, value=1, scale='asked_again')
  people.collect()
  assert rows(people) == {0: (0.0, replay_lib.RATING)}
  say(store, Undo, answer, event_id=again.id)
  people.collect()
  assert rows(people) == {0: (0.0, replay_lib.NONE)}
  say(store, Implicit, answer, value=1, scale='asked_again')
  people.collect()
  assert rows(people) == {0: (0.0, replay_lib.RATING)}


@pytest.mark.parametrize('winner', [0, 1])
def test_two_answers_are_one_question_and_a_pair_of_the_replay(
  parts, store, winner
):
  people = make(parts, store, ask='pair')
  pair = people.show(BANK[0])
  assert len(pair) == 2 and pair[0].question_id == pair[1].question_id
  assert pair[0].shown_index != pair[1].shown_index
  assert len(store.pending('s')) == 1
  # Whichever response the page names first.
  loser = pair[1 - winner]
  say(store, Preference, loser, other_id=pair[winner].id, value='b')
  assert not people.is_open and people.collect() == 1
  assert rows(people) == {0: (1.0 - winner, replay_lib.PAIR)}


def test_other_sessions_are_not_heard(parts, store):
  people = make(parts, store)
  other = Response(id='r', query='q', text='t', prompt_id='p', shown_at=0.0)
  store.add_response(other)
  rate(store, other, 5)
  assert people.collect() == 0 and not people.is_open


def test_the_hybrid_reward_takes_critics_and_costs_into_account(parts, store):
  count = lambda text: len(text.split())
  reward_fn = make_reward(
    'hybrid',
    {'coherence': 0.0, 'safety': 0.0},
    count_tokens=count,
    embed_fn=diversity.word_vectors,
    safety_fn=safety.disclosure,
  )
  people = make(parts, store, reward_fn=reward_fn)
  (response,) = people.show(BANK[0])
  rate(store, response, 1, 'thumbs')
  people.collect()
  expected = response.candidates[response.shown_index].score
  tokens = count(response.text)
  value = 1.0 + 0.8 * expected - 0.1 * tokens / (tokens + 500)
  reward, kind = rows(people)[0]
  assert reward == pytest.approx((value + 0.1) / 1.9, abs=1e-6)
  assert kind == replay_lib.RATING  # It is no thumb any more.
  assert people.ratings == [1.0]
  long, short = (reward_fn(1.0, Answer('', 'word ' * n, 0.5)) for n in (900, 2))
  assert 0 < long < short < 1


def answer(people, store, question):
  """One step of a run: shows, rates by the length of the text, learns."""
  (response,) = people.show(question)
  rate(store, response, 1 + len(response.text) % 5)
  people.collect()
  return people.loop.learn()


def same(one, two):
  """Whether two loops stand at the same point, bit for bit."""
  (mine, plain), (theirs, their_plain) = (p.loop.snapshot() for p in (one, two))
  pairs = zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True)
  equal = [np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs]
  return all(equal) and plain == their_plain


def test_a_run_that_was_killed_goes_on_from_checkpoint_and_store(
  parts, store, tmp_path
):
  people = make(parts, store)
  with checkpoint.open_checkpoints(tmp_path / 'c') as checkpoints:
    for at in range(13):
      if answer(people, store, BANK[at]) and at < 7:
        run, plain = people.loop.snapshot()
        extra = {'loop': plain, 'people': people.snapshot()}
        checkpoint.save_checkpoint(checkpoints, run, extra)
    people.show(BANK[13])  # Nobody has rated it when the run is killed.
    again = make(parts, store)
    template = again.loop.snapshot()[0]
    run, extra = checkpoint.restore_checkpoint(checkpoints, template)
  # The update after ten ratings was lost, and is made again.
  assert int(run.step) == 1
  again.loop.restore(run, extra['loop'])
  again.restore(extra['people'])
  assert len(again.ratings) == 5
  assert again.resume() == 9
  assert again.is_open and again.ratings == people.ratings
  assert same(again, people)
  (question,) = store.pending('s')
  rate(store, question[0], 4)
  for one in (people, again):
    assert one.collect() == 1
  people.show(BANK[14])
  again.loop.show(BANK[14])
  rate(store, store.pending('s')[0][0], 4)
  for one in (people, again):
    assert one.collect() == 1 and one.loop.learn()
    assert one.loop.population.generation == 3
  assert same(again, people)


def test_a_way_to_ask_that_there_is_not_is_refused(parts, store):
  with pytest.raises(ValueError, match="ask='three': expected one of"):
    make(parts, store, ask='three')
  people = make(parts, store)
  with pytest.raises(ValueError, match='serial=0: expected 1'):
    people.loop.remember(people.loop.show(BANK[0]))
