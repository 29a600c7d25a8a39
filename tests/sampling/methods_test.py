"""The next-token distribution and its draws."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.sampling import filters as filters_lib
from promptrl_jax.sampling.filters import Epsilon
from promptrl_jax.sampling.methods import (
  Sampling,
  check_row,
  chosen_logps,
  draw,
  log_distribution,
  seen,
)

LOGITS = jnp.log(jnp.array([[0.5, 0.3, 0.15, 0.05]]))


def probabilities(temperature=1.0, top_p=1.0, **filters):
  logps = log_distribution(
    LOGITS,
    jnp.array([temperature]),
    Sampling(**filters),
    jnp.array([top_p]),
  )
  return np.exp(np.asarray(logps[0]))


def test_without_filters_it_is_the_softmax():
  np.testing.assert_allclose(probabilities(), [0.5, 0.3, 0.15, 0.05], rtol=1e-5)


def test_temperature_sharpens():
  expected = np.array([0.5, 0.3, 0.15, 0.05]) ** 2
  np.testing.assert_allclose(
    probabilities(0.5), expected / expected.sum(), rtol=1e-5
  )


def test_top_k_keeps_k_and_renormalises():
  np.testing.assert_allclose(
    probabilities(top_k=2), [0.625, 0.375, 0, 0], atol=1e-6
  )


@pytest.mark.parametrize(
  ('top_p', 'kept'), [(0.4, 1), (0.5, 1), (0.6, 2), (0.9, 3), (1.0, 4)]
)
def test_top_p_keeps_the_smallest_set_that_reaches_it(top_p, kept):
  assert (probabilities(top_p=top_p) > 1e-9).sum() == kept


@pytest.mark.parametrize(
  ('filters', 'expected'),
  [
    ({'min_p': 0.5}, [0.625, 0.375, 0, 0]),
    ({'min_p': 1.0}, [1, 0, 0, 0]),
    # After temperature: the second token has 0.36 of the first one's.
    ({'min_p': 0.5, 'temperature': 0.5}, [1, 0, 0, 0]),
    # After top-p: of what min-p would leave, the first has more than 0.6.
    ({'min_p': 0.5, 'top_p': 0.6}, [0.625, 0.375, 0, 0]),
    # After top-k, of which the first has more than 0.6.
    ({'top_k': 2, 'top_p': 0.6}, [1, 0, 0, 0]),
    ({'filters': (Epsilon(0.2),)}, [0.625, 0.375, 0, 0]),
    # The most probable token stays.
    ({'filters': (Epsilon(0.9),)}, [1, 0, 0, 0]),
    # After top-k: of the two that are left, the second has less than 0.4.
    ({'top_k': 2, 'filters': (Epsilon(0.4),)}, [1, 0, 0, 0]),
  ],
  ids=str,
)
def test_filters_apply_in_order(filters, expected):
  np.testing.assert_allclose(probabilities(**filters), expected, atol=1e-6)


def test_a_row_does_not_depend_on_the_top_p_of_others():
  logits = 3 * jax.random.normal(jax.random.key(0), (3, 500))
  top_p = jnp.array([1.0, 0.3, 0.8])
  fn = lambda logits, top_p: log_distribution(
    logits, jnp.ones(len(logits)), Sampling(), top_p
  )
  together = fn(logits, top_p)
  for row in range(3):
    alone = fn(logits[row : row + 1], top_p[row : row + 1])
    np.testing.assert_array_equal(together[row], alone[0])
  np.testing.assert_array_equal(
    together[0], log_distribution(logits, jnp.ones(3), Sampling())[0]
  )
  assert len(np.unique((np.asarray(together) > -1e9).sum(axis=1))) == 3


def test_the_penalty_divides_what_is_positive_and_multiplies_the_rest():
  logits = jnp.array([[2.0, -1.0, 0.5, -3.0]])
  method = Sampling(repetition_penalty=2.0)
  tokens = jnp.array([[1, 0, 0, 3]])
  met = seen(method, tokens, tokens != 3, 4)
  assert met is not None and met.tolist() == [[True, True, False, False]]
  np.testing.assert_allclose(
    log_distribution(logits, jnp.zeros(1), method, seen=met),
    jax.nn.log_softmax(jnp.array([[1.0, -2.0, 0.5, -3.0]])),
    rtol=1e-6,
  )
  assert seen(Sampling(), tokens, tokens != 3, 4) is None


def test_a_place_is_penalised_for_what_comes_before_it_alone():
  logits = jnp.broadcast_to(jnp.array([1.0, 2.0, 3.0]), (1, 3, 3))
  context = jnp.array([[2, 0]]), jnp.array([[False, True]])
  found = chosen_logps(
    logits,
    context,
    jnp.array([[1, 1, 2]]),
    jnp.ones((1, 3), bool),
    jnp.ones(1),
    Sampling(repetition_penalty=2.0),
  )
  # The prompt has the token 0, its padding 2; from the second place on, 1.
  places = jnp.array([[0.5, 2, 3], [0.5, 1, 3], [0.5, 1, 3]])
  logps = jax.nn.log_softmax(places)
  expected = [logps[0, 1], logps[1, 1], logps[2, 2]]
  np.testing.assert_allclose(found[0], expected, rtol=1e-6)


def test_draws_follow_the_distribution():
  vocab, count = 70, 20_000  # more than one block of the sampler, and a rest
  rng = np.random.default_rng(0)
  probs = rng.dirichlet(np.full(vocab, 0.3))
  probs[40:50] = 0.0
  probs /= probs.sum()
  logps = jnp.log(jnp.tile(jnp.asarray(probs, jnp.float32), (count, 1)))
  uniform = jax.random.uniform(jax.random.key(1), count)
  drawn = np.asarray(draw(uniform, logps, jnp.ones(count)))
  shares = np.bincount(drawn, minlength=vocab) / count
  assert shares[40:50].sum() == 0
  assert np.abs(shares - probs).sum() < 0.05


def test_greedy_takes_the_first_maximum():
  logps = jnp.array([[0.1, 0.7, 0.7, 0.2]])
  assert draw(jnp.zeros(1), logps, jnp.zeros(1))[0] == 1


@pytest.mark.parametrize(
  'filters',
  [{'top_k': -1}, {'min_p': 1.5}, {'repetition_penalty': 0.0}],
)
def test_impossible_filters_are_refused(filters):
  ((name, value),) = filters.items()
  with pytest.raises(ValueError, match=f'{name}={value}: expected'):
    Sampling(**filters)


@pytest.mark.parametrize(
  ('row', 'message'),
  [
    ((1.0, 0.0), 'top_p=0.0'),
    ((1.0, 2.0), 'top_p=2.0'),
    ((-1.0, 1.0), 'temperature=-1.0'),
    ((float('nan'), 1.0), 'temperature=nan'),
  ],
)
def test_impossible_rows_are_refused(row, message):
  with pytest.raises(ValueError, match=f'{message}: expected'):
    check_row(*row)


@dataclasses.dataclass(frozen=True)
class Second:
  """Drops all but the tokens from `first` on."""

  first: float

  def __call__(self, logits):
    return jnp.where(jnp.arange(logits.shape[-1]) >= self.first, logits, -1e30)


def test_a_new_filter_is_a_class_and_a_line_of_the_registry(monkeypatch):
  monkeypatch.setitem(filters_lib.FILTERS, 'from', Second)
  filters = filters_lib.parse('from=2, epsilon=0.5')
  assert filters == (Second(2.0), Epsilon(0.5))
  # Of 0.15 and 0.05, three quarters and one quarter are left.
  np.testing.assert_allclose(
    probabilities(filters=filters), [0, 0, 1, 0], atol=1e-6
  )
  np.testing.assert_allclose(
    probabilities(filters=filters[:1]), [0, 0, 0.75, 0.25], atol=1e-6
  )
  assert filters_lib.parse('') == ()


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    ('magic=1', "filter 'magic': expected one of epsilon"),
    ('epsilon', "filter 'epsilon': expected epsilon=NUMBER"),
    ('epsilon=x', "filter 'epsilon=x'"),
    ('epsilon=1.5', 'epsilon=1.5: expected a probability'),
  ],
)
def test_text_that_names_no_filter_is_refused(text, message):
  with pytest.raises(ValueError, match=message):
    filters_lib.parse(text)
