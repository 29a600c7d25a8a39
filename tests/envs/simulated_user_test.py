"""A simulated person, and the responder that obeys the sections of a prompt."""

import numpy as np
import pytest

from promptrl_jax.envs.simulated_user import SimulatedUser, UserConfig
from promptrl_jax.llm import templated
from promptrl_jax.llm.backend import Message, Request
from promptrl_jax.llm.candidates import candidate_requests
from promptrl_jax.llm.load import BackendConfig, load_backend
from promptrl_jax.prompts import catalogue
from promptrl_jax.rewards import surface
from promptrl_jax.tasks import queries

QUERY = queries.load('train')[0]


def seen(system):
  (row,) = surface.features([templated.answer(system, QUERY.text)])
  return dict(zip(surface.FEATURES, row.tolist(), strict=True))


@pytest.mark.parametrize(
  ('section', 'feature'),
  [
    ('Use a bulleted list.', 'bullets'),
    ('Use numbered steps.', 'steps'),
    ('Begin with a summary.', 'summary'),
    ('End with a question to the reader.', 'question'),
    ('Give an example.', 'example'),
    ('Show a snippet of code.', 'code'),
    ('Write in a formal tone.', 'formal'),
    ('Write in a warm, friendly tone.', 'warm'),
    ('Write with enthusiasm.', 'enthusiastic'),
    ('Say how sure you are.', 'hedges'),
    ('Be thorough and mention exceptions.', 'exceptions'),
  ],
)
def test_every_section_shows_in_the_answer(section, feature):
  assert seen(section)[feature] > seen('Write plainly.')[feature] == 0


def test_length_obeys():
  lengths = [
    seen(text)['length']
    for text in (
      'Answer in at most two sentences.',
      'Answer in about five sentences.',
      'Be thorough and mention exceptions.',
    )
  ]
  assert lengths == sorted(lengths) and lengths[2] - lengths[0] > 0.2


def test_it_is_a_backend_like_the_others():
  backend = load_backend(BackendConfig('templated', 'templated'))
  asked = Request(
    (Message('system', 'Use a bulleted list.'), Message('user', QUERY.text)),
    max_tokens=5,
  )
  (completion,) = backend.complete([asked])
  assert completion.finish_reason == 'length'
  assert completion.completion_tokens == 5
  ask = lambda seed: backend.complete(
    candidate_requests([''], QUERY.text, temperature=1.0, seed=seed)
  )
  texts = [ask(seed)[0].text for seed in (0, 0, 1)]
  assert texts[0] == texts[1] != texts[2]


def test_a_prompt_for_all_is_worse_than_one_for_each_question():
  rows = []
  for seed in range(5):
    user, asked = SimulatedUser(seed=seed), queries.draw('train', 100, seed)
    best = np.mean([user.best(q, i) for i, q in enumerate(asked)])
    rows.append((user.mean_static(asked), user.best_static(asked)[1], best))
  mean, static, best = np.mean(rows, axis=0)
  assert 0.3 < mean < 0.45 and best > 0.75
  assert mean + 0.15 < static < best - 0.1


def test_the_best_single_prompt_is_what_its_answers_say():
  user, asked = SimulatedUser(seed=3), queries.draw('train', 20, 3)
  genome, value = user.best_static(asked)
  answers = [templated.answer(genome.render(), q.text) for q in asked]
  found = [
    user.satisfaction(q, a, 0) for q, a in zip(asked, answers, strict=True)
  ]
  assert np.mean(found) == pytest.approx(value)


def test_ratings_follow_satisfaction_and_repeat():
  user, rng = SimulatedUser(seed=1), np.random.default_rng(0)
  ratings, true = [], []
  for at, query in enumerate(queries.draw('train', 400, 1)):
    text = templated.answer(catalogue.draw(rng).render(), query.text)
    ratings.append(user.rate(query, text, at))
    true.append(user.satisfaction(query, text, at))
    assert ratings[-1] == user.rate(query, text, at)
  assert set(ratings) <= {1, 2, 3, 4, 5}
  assert 0.4 < np.corrcoef(ratings, true)[0, 1] < 0.9


def test_a_comment_asks_for_what_is_missed_most():
  """Whoever does as it says is liked better, in all tastes but a few."""
  gains = []
  for seed in range(40):
    user = SimulatedUser(UserConfig(comments=1.0), seed)
    before = templated.answer('Write one paragraph.', QUERY.text)
    wish = user.comment(QUERY, before, 0)
    assert wish == user.comment(QUERY, before, 0) != ''
    after = templated.answer(f'Write one paragraph.\n{wish}', QUERY.text)
    gains.append(
      user.satisfaction(QUERY, after, 0) - user.satisfaction(QUERY, before, 0)
    )
  assert np.mean(gains) > 0.05
  silent = SimulatedUser(UserConfig(), 0)
  assert silent.comment(QUERY, before, 0) == ''
  some = SimulatedUser(UserConfig(comments=0.3), 0)
  said = [bool(some.comment(QUERY, before, at)) for at in range(300)]
  assert 0.2 < np.mean(said) < 0.4


def test_the_taste_changes_when_it_is_told_to():
  user = SimulatedUser(UserConfig(drift=10), 0)
  assert user.taste(9) == SimulatedUser(seed=0).taste(500) != user.taste(10)


def test_a_part_of_the_taste_changes():
  moved = []
  for seed in range(20):
    before, after = (
      SimulatedUser(UserConfig(drift=1, moved=share), seed).taste(1)
      for share in (0.0, 1.0)
    )
    part = SimulatedUser(UserConfig(drift=1, moved=0.3), seed).taste(1)
    assert before == SimulatedUser(seed=seed).taste(0)
    for kind, of in part.items():
      for name, liked in of.items():
        assert liked in (before[kind][name], after[kind][name])
        if before[kind][name] != after[kind][name]:
          moved.append(liked == after[kind][name])
  assert 0.2 < np.mean(moved) < 0.4


def test_topics_of_the_test_questions_are_new():
  train, test = ({q.topic for q in queries.load(s)} for s in queries.SPLITS)
  assert not train & test
  with pytest.raises(ValueError, match="split 'dev': expected one of train"):
    queries.load('dev')


@pytest.mark.parametrize(
  'settings',
  [
    {'slips': 2.0},
    {'lowest': 0.9, 'highest': 0.2},
    {'drift': -1},
    {'moved': 1.5},
  ],
)
def test_settings_that_make_no_sense_are_refused(settings):
  with pytest.raises(ValueError, match='expected'):
    UserConfig(**settings)
