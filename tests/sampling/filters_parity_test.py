"""Filters and penalty are those that transformers has now."""

import numpy as np
import pytest

from tests.golden import sampling as golden
from tests.sampling.filters_test import score_of, search_with_penalty

pytest.importorskip('torch', reason='parity extra is not installed')


@pytest.mark.parametrize('case', golden.CASES)
@pytest.mark.parametrize('name', golden.MODELS)
def test_log_probs_equal_those_of_transformers(name, case):
  tokens, logps = golden.sample(name, case)
  np.testing.assert_allclose(score_of(name, case, tokens), logps, atol=1e-4)


def test_beam_search_with_a_penalty_equals_that_of_transformers():
  tokens, scores = golden.beams('codet5p')
  out, found = search_with_penalty()
  np.testing.assert_array_equal(out.tokens, tokens)
  np.testing.assert_allclose(found, scores, rtol=1e-4)
