"""What the controller sees."""

import dataclasses

import numpy as np
import pytest

from promptrl_jax.envs.editing import observation
from promptrl_jax.envs.editing.config import EditingConfig
from promptrl_jax.envs.editing.env import observe
from promptrl_jax.execution import CallResult, ExpressionResult
from promptrl_jax.llm.attempt import CODER, REWRITER, Ask
from promptrl_jax.llm.backend import Completion, Confidence, Message, Request
from promptrl_jax.operators import Episode


def test_legacy_golden_vector():
  prompt = 'Write def f with import x now.'  # 30 characters, 7 words
  feedback = 'TEST_PASS_MASK: (False,)\nFAILED: NameError: y'
  features = observation.legacy_observation(prompt, ['', feedback], 3, 5, 20)
  expected = [0.03, 0.07, 0.2, 0.3, 0.25, 1, 0, 1, len(feedback) / 1000, 1]
  np.testing.assert_allclose(features, expected, rtol=1e-6)
  assert features.dtype == np.float32


def test_legacy_of_a_blank_prompt_is_zero():
  features = observation.legacy_observation('  ', ['error'], 3, 1, 2)
  assert not features.any()


def test_rich_observation_changes_after_each_action_and_feedback(
  make_env, problems
):
  env = make_env()
  first, _ = env.reset(problems[3:4], [0])
  assert first.shape == (1, env.config.observation_size)
  seen = [first]
  for action in ('keep', 'resample', 'lexical', 'semantic'):
    seen.append(env.step([action])[0])
    for other in seen[:-1]:
      assert not np.array_equal(seen[-1], other), action


def test_two_feedbacks_of_one_error_class_differ(problems):
  seen = []
  for message in ("name 'a' is not defined", "name 'total' is not defined"):
    episode = Episode(problems[0], budget=4)
    episode.status, episode.error_type = 'error', 'NameError'
    episode.feedback = f'TEST_PASS_MASK: (False,)\nFAILED: NameError: {message}'
    seen.append(observation.rich_observation(episode, ('keep',), 4))
  assert not np.array_equal(*seen)
  start = Episode(problems[0], budget=4)
  before = observation.rich_observation(start, ('keep',), 4)
  assert not before[-observation.FEEDBACK_SIZE :].any()


def test_counts_are_scaled_by_the_budget_of_the_config(problems):
  for budget in (4, 20):
    episode = Episode(problems[0], budget=budget)
    start = observation.rich_observation(episode, ('keep',), budget)
    episode.calls = budget // 2
    half = observation.rich_observation(episode, ('keep',), budget)
    changed = np.flatnonzero(start != half)[0]
    assert (start[changed], half[changed]) == (1.0, 0.5)


def test_embedding_has_mean_square_one_and_tells_texts_apart():
  a, b = observation.embed('find the sum'), observation.embed('sum the find')
  assert abs(np.mean(a**2) - 1) < 1e-5
  assert not np.array_equal(a, b)
  assert not observation.embed('').any()


def test_whether_a_prompt_was_asked_greedily_is_seen(make_env, problems):
  # After either pair of steps `keep` would go out at another temperature.
  seen = []
  for actions in (('resample', 'resample'), ('keep', 'resample')):
    env = make_env()
    env.reset(problems[:1], [0])
    for action in actions:
      features = env.step([action])[0]
    seen.append(features[0])
  assert not np.array_equal(*seen)
  for asked, fresh in (
    ((), True),
    ([('Raise it by 0, number.', '', 0)], False),
  ):
    start = Episode(problems[0], budget=4)
    start.asked_greedily.update(asked)
    features = observation.rich_observation(start, ('keep',), 4)
    other = observation.rich_observation(
      Episode(problems[0], budget=4), ('keep',), 4
    )
    assert np.array_equal(features, other) == fresh


def test_which_edit_stands_is_seen(make_env, problems):
  env = make_env()
  env.reset(problems[3:4], [0])
  (episode,) = env.episodes
  made = []
  for action in ('semantic', 'reset_prompt', 'lexical', 'resample'):
    env.step([action])
    made.append(episode.edited_by)
  assert made[:2] == ['semantic', ''] and made[3] == made[2]
  assert episode.uses['semantic'] == 1 and episode.tokens > 0


@pytest.mark.parametrize(
  ('returned', 'expected', 'compared'),
  [
    ('12', "'12'", ('int', 'str', True, True, True)),
    ('[1, 2]', '[1, 2, 9]', ('list', 'list', False, False, True)),
    ('(3,)', '[4]', ('tuple', 'list', True, False, False)),
    ('[1, 2 [...]', '7', ('unknown', 'int', True, False, False)),
    ('a failure', '', None),
  ],
)
def test_how_a_wrong_value_differs_is_seen(
  problems, returned, expected, compared
):
  episode = Episode(problems[0], budget=4)
  start = observation.rich_observation(episode, ('keep',), 4)
  episode.feedback = f'FAILED: f(1) returned {returned}, expected {expected}'
  if compared is None:
    episode.feedback = f'FAILED: {returned}'
  features = observation.rich_observation(episode, ('keep',), 4)
  # All but the embedded feedback, which changes with every text.
  changed = (features != start)[: -observation.FEEDBACK_SIZE]
  assert changed.sum() == (0 if compared is None else 2 + sum(compared[2:]))
  if compared is not None:
    first, second = np.flatnonzero(changed)[:2]
    names = observation.TYPES
    distance = names.index(compared[1]) - names.index(compared[0])
    assert second - first == len(names) + distance


def test_what_the_first_answer_got_wrong_stays_in_sight(problems):
  seen = []
  for first in ("'12'", '12'):
    episode = Episode(problems[0], budget=4)
    episode.feedbacks = [f'FAILED: f(1) returned 7, expected {first}', '']
    seen.append(observation.rich_observation(episode, ('keep',), 4))
  assert not np.array_equal(*seen)


def test_masked_hides_what_the_programs_did_and_nothing_else(
  make_env, problems
):
  config = EditingConfig(observation='masked')
  env = make_env()
  env.reset(problems[3:4], [0])
  env.step(['keep'])
  (episode,) = env.episodes
  assert episode.feedback and episode.status != 'unknown'
  seen = observe([episode], config)
  other = dataclasses.replace(
    episode,
    status='error',
    error_type='NameError',
    visible=(False,),
    feedback='FAILED: NameError: x',
    feedbacks=['FAILED: f(1) returned 2, expected 3'],
    best_visible=0.5,
  )
  rich = EditingConfig()
  assert not np.array_equal(*(observe([e], rich) for e in (episode, other)))
  np.testing.assert_array_equal(observe([other], config), seen)
  for change in ({'steps': 3}, {'statement': 'Another.'}, {'budget': 99}):
    changed = dataclasses.replace(episode, **change)
    assert not np.array_equal(observe([changed], config), seen), change


def test_the_price_of_a_token_is_the_last_feature(problems):
  config = EditingConfig(sees_price=True)
  assert config.observation_size == EditingConfig().observation_size + 1
  episodes = [Episode(problems[0], token_price=p) for p in (0.0, 0.01, 1.0)]
  seen = observe(episodes, config)
  assert seen.shape == (3, config.observation_size)
  assert seen.dtype == np.float32
  expected = [0.0, np.log(2) / np.log(101), 1.0]
  np.testing.assert_allclose(seen[:, -1], expected, rtol=1e-6)
  np.testing.assert_array_equal(
    seen[:, :-1], observe(episodes, EditingConfig())
  )


def test_agreement_of_the_programs_so_far_is_seen(problems):
  config = EditingConfig(sees_agreement=True)
  base = EditingConfig()
  assert config.observation_size == base.observation_size + 3
  computes = lambda value: CallResult('ok', (ExpressionResult('ok', value),))
  hangs = CallResult('infra_error', ())
  for outcomes, expected in (
    ([], [0, 0, 0]),
    ([computes('1')], [1, 1, 1]),
    ([computes('1'), computes('2'), computes('1')], [2 / 3, 2 / 3, 2 / 3]),
    ([computes('1'), computes('1'), hangs], [0, 2 / 3, 1 / 3]),
  ):
    episode = Episode(problems[0], outcomes=outcomes)
    (seen,) = observe([episode], config)
    np.testing.assert_allclose(seen[-3:], expected, rtol=1e-6)
    np.testing.assert_array_equal(seen[:-3], observe([episode], base)[0])
    masked = dataclasses.replace(config, observation='masked')
    np.testing.assert_array_equal(observe([episode], masked)[0, -3:], 0)


def test_certainty_of_the_last_program_is_seen(problems):
  config = EditingConfig(sees_certainty=True, sees_price=True)
  base = EditingConfig()
  assert config.observation_size == base.observation_size + 5
  episode = Episode(problems[0], budget=4, token_price=1.0)
  request = Request((Message('user', 'x'),))
  (before,) = observe([episode], config)
  np.testing.assert_array_equal(before[-5:], [0, 0, 0, 0, 1])
  sure = Completion('y', 3, 2, 'stop', Confidence(-0.5, -2.0, 0.25))
  episode.charge(Ask(CODER, request), sure)
  # What a rewriter says of itself is not of the program.
  other = Completion('z', 3, 2, 'stop', Confidence(-9.0, -9.0, 9.0))
  episode.charge(Ask(REWRITER, request), other)
  (after,) = observe([episode], config)
  np.testing.assert_allclose(after[-5:], [1, -0.5, -0.5, 0.25, 1])
  episode.charge(Ask(CODER, request), Completion('y', 3, 2, 'stop'))
  np.testing.assert_array_equal(observe([episode], config)[0, -5:-1], [0] * 4)
