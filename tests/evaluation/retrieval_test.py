"""The retrieval check: its numbers by hand, and those of what is shipped."""

import os
import pathlib

import numpy as np
import pytest

from promptrl_jax.evaluation import retrieval
from promptrl_jax.evaluation.retrieval import Check
from promptrl_jax.models import sentence_encoder

ROOT = pathlib.Path(__file__).parents[2]
MBPP = pathlib.Path(
  os.environ.get('PROMPTRL_MBPP', ROOT / '../shared/data/mbpp/mbpp.jsonl')
)
# Recall at 1 among 200 that the shipped encoder reached, less 0.03.
MARKS = {
  'requests': 0.67,
  'answers': 0.76,
  'styles': 0.62,
  'minicode': 0.65,
  'minicode2': 0.97,
}


def test_a_score_is_that_worked_out_by_hand():
  vectors = {
    'a': [1.0, 0.0],
    'b': [0.0, 2.0],
    'q0': [3.0, 1.0],  # nearest to its own
    'q1': [1.0, 0.5],  # its own is the second
    'q2': [0.0, 1.0],  # as near to its own as to another one
  }
  embed_fn = lambda texts: np.array([vectors[t] for t in texts], np.float32)
  check = Check('hand', ('q0', 'q1', 'q2'), ('a', 'b', 'b'))
  score = retrieval.score(embed_fn, check)
  # Of q1 both b are equally near: places 2 and 3.
  assert score.recall == pytest.approx((1 + 0 + 1 / 2) / 3)
  assert score.mrr == pytest.approx((1 + 1 / 2.5 + 1 / 1.5) / 3)


@pytest.fixture(scope='module')
def checks():
  return {check.name: check for check in retrieval.make_checks()}


def test_checks_repeat_and_ask_for_others_words(checks):
  again = {check.name: check for check in retrieval.make_checks()}
  assert again == checks
  for check in checks.values():
    assert len(set(check.documents)) > 0.9 * len(check.documents), check.name
    same = [q == d for q, d in zip(check.queries, check.documents, strict=True)]
    assert np.mean(same) < 0.1, check.name


@pytest.mark.parametrize('name', MARKS)
def test_the_shipped_encoder_stays_above_its_mark(checks, name):
  score = retrieval.score(sentence_encoder.load(), checks[name])
  assert score.recall >= MARKS[name]


@pytest.mark.parametrize('name', ['requests', 'answers', 'styles', 'minicode'])
def test_the_shipped_encoder_is_better_than_word_counts(checks, name):
  shipped = retrieval.score(sentence_encoder.load(), checks[name])
  assert shipped.recall > retrieval.score_words(checks[name]).recall + 0.05


@pytest.mark.skipif(not MBPP.is_file(), reason='no MBPP file: PROMPTRL_MBPP')
def test_statements_of_mbpp_are_found_by_what_is_left_of_them():
  *_, words, code = retrieval.make_checks(mbpp_path=str(MBPP))
  assert (words.name, code.name) == ('mbpp_words', 'mbpp_code')
  assert retrieval.score(sentence_encoder.load(), words).recall > 0.65
  assert retrieval.score(sentence_encoder.load(), code).recall > 0.2


def test_what_cannot_be_checked_is_named():
  with pytest.raises(FileNotFoundError, match="mbpp_path='no.jsonl'"):
    retrieval.make_checks(mbpp_path='no.jsonl')
  with pytest.raises(ValueError, match='size=10000: expected 1 to'):
    retrieval.make_checks(10000)
  with pytest.raises(ValueError, match='1 queries and 0 documents'):
    Check('c', ('q',), ())
