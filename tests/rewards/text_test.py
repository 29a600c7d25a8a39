import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from promptrl_jax.rewards import text

LABELS = ('World', 'Sports', 'Business', 'Sci/Tech')
words = st.text('ab c', max_size=12)


def test_token_f1_of_one_word_in_four_is_four_tenths():
  assert text.token_f1('the capital is Paris', ['Paris']) == pytest.approx(0.4)


def test_token_f1_counts_repeated_words_as_often_as_both_have_them():
  # Two of three and two of two: 2 * 2 / (3 + 2).
  assert text.token_f1('a a a', ['a a']) == pytest.approx(0.8)


@pytest.mark.parametrize(
  ('answer', 'gold', 'score'),
  [
    ('', '', 1.0),
    ('', 'a', 0.0),
    ('a', ' ', 0.0),
    ('x', 'y', 0.0),
  ],
)
def test_token_f1_of_empty_texts(answer, gold, score):
  assert text.token_f1(answer, [gold]) == score


@hypothesis.given(words, words)
def test_token_f1_is_symmetric_and_1_for_what_matches(a, b):
  score = text.token_f1(a, [b])
  assert 0 <= score <= 1
  assert score == text.token_f1(b, [a])
  assert score >= text.exact_match(a, [b])


def test_the_best_of_several_right_answers_counts():
  assert text.exact_match('New  York', ['NYC', 'new york']) == 1
  assert text.token_f1('York', ['NYC', 'new york']) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
  ('answer', 'label'),
  [
    ('Sports', 'Sports'),
    (' "sports." ', 'Sports'),
    ('The topic is Sci/Tech.', 'Sci/Tech'),
    ('Business, certainly business.', 'Business'),
    ('world or sports', None),
    ('worldly goods', None),
    ('', None),
  ],
)
def test_a_label_is_found_where_an_answer_names_just_one(answer, label):
  assert text.find_label(answer, LABELS) == label


def test_a_longer_label_is_not_taken_for_a_shorter_one_in_it():
  assert text.find_label('It is very good!', ['good', 'very good']) == (
    'very good'
  )


def test_accuracy_is_of_the_label_and_not_of_the_whole_answer():
  assert text.accuracy('I think: sports.', ['Sports'], LABELS) == 1
  assert text.accuracy('I think: sports.', ['World'], LABELS) == 0
  assert text.accuracy('no idea', ['World'], LABELS) == 0


@pytest.mark.parametrize(
  ('answer', 'gold', 'score'),
  [
    ('The answer is 42.', '42', 1),
    ('42', 'so 6 * 7 = 42\n#### 42', 1),
    ('He pays $1,234.50 in all', '1234.5', 1),
    ('The answer is 7. I used 3 steps.', '7', 1),
    ('3 + 4 = 7', '7', 1),
    ('-5', '5', 0),
    ('10-5', '5', 1),
    ('42.0', '42', 1),
    ('41', '42', 0),
    ('2e3', '2000', 1),
    ('.5', '0.5', 1),
    ('none', '42', 0),
    ('1e' + '9' * 40, '42', 0),
  ],
)
def test_the_number_that_an_answer_results_in_is_compared(answer, gold, score):
  assert text.numeric(answer, [gold]) == score


@hypothesis.given(st.text(max_size=40))
def test_any_text_has_a_number_or_none(answer):
  number = text.find_number(answer)
  assert number is None or number == number  # Parsed, and no NaN.


@hypothesis.given(st.integers(-(10**9), 10**9))
def test_a_whole_number_is_read_with_and_without_commas(number):
  assert text.find_number(f'It is {number}.') == number
  assert text.find_number(f'It is {number:,}.') == number


def test_the_perplexity_of_a_label_is_a_mean_over_its_tokens():
  logps = np.log([0.5, 0.25])
  # Geometric mean of 1/2 and 1/4 is 1 / sqrt(8).
  assert text.perplexity_reward(logps) == pytest.approx(-np.log(8) / 2)


@pytest.mark.parametrize('logps', [[], [[-1.0]], [np.nan], [-np.inf]])
def test_log_probs_that_are_none_are_refused(logps):
  with pytest.raises(ValueError, match='expected one or more finite'):
    text.perplexity_reward(np.array(logps))


def test_unknown_and_unsuitable_metrics_are_refused():
  with pytest.raises(ValueError, match="'bleu': expected one of em, f1"):
    text.check_metric('bleu', ())
  with pytest.raises(ValueError, match='accuracy needs labels'):
    text.check_metric('accuracy', ())
  text.check_metric('accuracy', LABELS)
