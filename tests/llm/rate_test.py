"""Limits bound what passes in any minute; time is a number here."""

from __future__ import annotations

import asyncio
import random

import pytest

from promptrl_jax.llm.rate import RateLimits, TokenBucket


class FakeTime:
  """A clock that only sleeping moves."""

  def __init__(self):
    self.now = 0.0

  def __call__(self):
    return self.now

  async def sleep(self, seconds):
    assert seconds > 0
    self.now += seconds
    await asyncio.sleep(0)


def pass_all(amounts, used=None, **limits):
  """Times at which requests of these tokens pass, all of them at once."""
  time, passed = FakeTime(), []
  rate = RateLimits(**limits, clock=time, sleep=time.sleep)

  async def one(amount):
    await rate.enter(amount)
    passed.append((time.now, amount))
    if used is not None:
      rate.give_back(amount - used)

  async def run():
    await asyncio.gather(*map(one, amounts))

  asyncio.run(run())
  return passed


def most_in_a_minute(passed):
  return max(
    sum(n for then, n in passed if start <= then < start + 60 - 1e-6)
    for start, _ in passed
  )


def test_no_minute_sees_more_requests_than_allowed():
  passed = pass_all([1] * 100, requests_per_minute=30)
  assert most_in_a_minute(passed) == 30
  # And the limit is used up: a request every two seconds.
  assert passed[-1][0] == pytest.approx(99 * 2)


def test_no_minute_sees_more_tokens_than_allowed():
  draw = random.Random(0)
  amounts = [draw.randint(1, 100) for _ in range(300)]
  passed = pass_all(amounts, tokens_per_minute=1000)
  assert 900 < most_in_a_minute(passed) <= 1000
  assert [n for _, n in passed] == amounts  # Nobody is passed over.


def test_both_limits_hold_at_once_though_either_one_lets_requests_queue():
  # Small requests wait for their turn, large ones for their tokens.
  amounts = [1] * 20 + [100, 100, 100] + [1] * 20
  passed = pass_all(amounts, requests_per_minute=10, tokens_per_minute=500)
  assert most_in_a_minute([(then, 1) for then, _ in passed]) <= 10
  assert most_in_a_minute(passed) <= 500


def test_a_request_above_all_limits_is_paid_off_before_the_next_one():
  passed = pass_all([600, 60], tokens_per_minute=600)
  assert passed[0][0] == 0
  # 540 are owed and 60 wanted, at nine tenths of ten a second.
  assert passed[1][0] == pytest.approx((540 + 60) / 9)


def test_tokens_that_were_not_used_make_room():
  assert pass_all([60] * 10, tokens_per_minute=600)[-1][0] == pytest.approx(60)
  passed = pass_all([60] * 10, used=6, tokens_per_minute=600)
  assert passed[-1][0] == pytest.approx(54 / 9)


def test_a_bucket_is_never_fuller_than_its_capacity():
  time = FakeTime()
  bucket = TokenBucket(10, 1, time)
  bucket.give_back(50)
  time.now += 1000
  assert bucket.delay(10) == 0
  bucket.take(10)
  assert bucket.delay(3) == 3
  time.now += 2
  assert bucket.delay(3) == 1


def test_without_limits_nothing_waits():
  assert {then for then, _ in pass_all([10**9] * 50)} == {0.0}
