"""Stop strings are found in tokens that come in runs of any length."""

import hypothesis
import pytest
from hypothesis import strategies as st

from promptrl_jax.llm.jax_lm import _StopStrings
from promptrl_jax.testing import tiny

TOKENIZER = tiny.tokenizer()


@hypothesis.given(
  st.text(alphabet='abé你🙂 \n', max_size=30),
  st.integers(1, 60),
  st.lists(
    st.text(alphabet='abé你\n', min_size=1, max_size=4), min_size=1, max_size=3
  ),
)
def test_a_text_ends_with_the_token_that_completes_a_stop(text, cut, stop):
  (ids,) = TOKENIZER.encode([text])
  watch = _StopStrings(TOKENIZER, stop)
  count = watch(ids[:cut])
  if count is None and (rest := watch(ids[cut:])) is not None:
    count = cut + rest
  so_far = [TOKENIZER.decode_after([ids[:n]])[0] for n in range(len(ids) + 1)]
  if count is None:
    # A stop at the end may still be the start of a longer one.
    longer = [s for s in stop if any(t in s[:-1] for t in stop)]
    assert longer or not any(s in text for s in stop)
  else:
    assert any(s in so_far[count] for s in stop)


def test_it_waits_for_a_longer_stop_that_began_earlier():
  watch = lambda text: _StopStrings(TOKENIZER, ('ab', 'xabc'))(
    TOKENIZER.encode([text])[0]
  )
  assert watch('xab') is None
  assert watch('xabc') == watch('xabd') == len(TOKENIZER.encode(['xabc'])[0])


def test_an_empty_stop_string_is_refused():
  with pytest.raises(ValueError, match='an empty string ends every text'):
    _StopStrings(TOKENIZER, ('',))
