"""The slot scheduler, on the host alone."""

import jax
import numpy as np
import pytest

from promptrl_jax.sampling.loop import Completions
from promptrl_jax.sampling.programs import SlotState
from promptrl_jax.sampling.prompt_cache import PromptCache
from promptrl_jax.sampling.requests import (
  EngineConfig,
  EngineRequest,
  SamplingParams,
  prompt_lengths_up_to,
)
from promptrl_jax.sampling.scheduler import Scheduler

CONFIG = EngineConfig(
  slots=4, prompt_lengths=(4, 8), new_tokens=5, steps=2, prefill_rows=2
)


def request(size, *limits, **settings):
  samples = [SamplingParams(limit, **settings) for limit in limits]
  return EngineRequest(list(range(1, size + 1)), samples)


def completions(counts, stopped=(), tokens=None):
  """A decode call in which slot b generated counts[b] tokens."""
  counts = np.asarray(counts)
  mask = np.arange(CONFIG.new_tokens) < counts[:, None]
  if tokens is None:
    tokens = np.arange(mask.size, dtype=np.int32).reshape(mask.shape)
  return Completions(
    tokens=np.where(mask, tokens, 0),
    logps=np.where(mask, -0.5, 0).astype(np.float32),
    mask=mask,
    stopped=np.isin(np.arange(len(counts)), stopped),
  )


def ended(scheduler):
  """What has ended and was not taken yet, in the order of the requests."""
  taken = sorted(scheduler.take(), key=lambda one: one[:2])
  return [sample for _, _, sample in taken]


def test_prompts_of_one_padded_length_are_prefilled_together():
  requests = [request(3, 5), request(7, 5), request(2, 5)]
  scheduler = Scheduler(requests, CONFIG, groups=1)
  job = scheduler.next_prefill()
  assert job.prefilled.prompt_length == job.end == 4
  assert job.tokens.tolist() == [[0, 1, 2, 3], [0, 0, 1, 2]]
  assert job.mask.tolist() == [[False, *[True] * 3], [False] * 2 + [True] * 2]


def test_assigned_slots_hold_the_settings_of_their_sample():
  asked = request(3, 5, temperature=0.7, top_p=0.9, seed=2**32 + 6)
  scheduler = Scheduler([asked], CONFIG, groups=1)
  prefilled = scheduler.next_prefill().prefilled
  _, targets, counts = scheduler.assign(prefilled)
  assert counts.tolist() == [1]
  slot = targets[0]
  batch = scheduler.batch
  assert (batch.prompt_start[slot], batch.prompt_lengths[slot]) == (1, 3)
  assert (batch.generated[slot], batch.max_tokens[slot]) == (0, 5)
  assert batch.temperature[slot] == np.float32(0.7)
  assert batch.top_p[slot] == np.float32(0.9)
  assert batch.seeds[slot] == 6
  assert scheduler.is_running()
  assert scheduler.assign(prefilled) is None


def test_samples_of_one_prompt_share_its_prefill():
  scheduler = Scheduler([request(3, 5, 5, 5)], CONFIG, groups=1)
  job = scheduler.next_prefill()
  assert job.mask.any(axis=1).tolist() == [True, False]
  sources, targets, counts = scheduler.assign(job.prefilled)
  assert counts.tolist() == [3]
  assert sources[:3].tolist() == [0, 0, 0]
  assert sorted(targets[:3].tolist()) == [0, 1, 2]


def test_no_prompt_is_prefilled_while_samples_of_an_earlier_one_wait():
  asked = [request(3, *[5] * 6), request(3, 5)]
  scheduler = Scheduler(asked, CONFIG, groups=1)
  prefilled = scheduler.next_prefill().prefilled
  scheduler.assign(prefilled)  # Four of seven have a slot.
  scheduler.record(completions([1, 5, 5, 5]))
  assert scheduler.next_prefill() is None
  assert scheduler.assign(prefilled)[2].tolist() == [3]


def test_slots_end_by_limit_or_stop_token_and_results_keep_the_order():
  asked = [request(3, 3), request(2, 5, 2)]
  scheduler = Scheduler(asked, CONFIG, groups=1)
  prefilled = scheduler.next_prefill().prefilled
  scheduler.assign(prefilled)
  scheduler.record(completions([2, 2, 2, 0], stopped=[1]))
  assert scheduler.is_running()
  scheduler.record(completions([1, 0, 0, 0]))
  assert not scheduler.is_running()
  first, second, third = ended(scheduler)
  assert not ended(scheduler)
  assert first.tokens.tolist() == [0, 1, 0] and not first.stopped
  assert second.tokens.tolist() == [5, 6] and second.stopped
  assert third.tokens.tolist() == [10, 11] and not third.stopped
  assert first.logps.tolist() == [-0.5] * 3
  assert first.tokens.dtype == np.int32 and first.logps.dtype == np.float32


def test_a_watch_keeps_what_it_says_and_sets_the_steps():
  seen = []
  watch = lambda tokens: seen.append(tokens.tolist()) or 1
  asked = [request(3, 5, watch=watch), request(3, 5)]
  scheduler = Scheduler(asked, CONFIG, groups=1)
  scheduler.assign(scheduler.next_prefill().prefilled)
  assert scheduler.next_decode()[2].tolist() == [CONFIG.steps]
  scheduler.record(completions([2, 2, 0, 0]))
  assert seen == [[0, 1]]
  # The other one is not watched: nobody looks before it ends.
  assert scheduler.next_decode()[2].tolist() == [CONFIG.new_tokens]
  scheduler.record(completions([0, 3, 0, 0]))
  first, second = ended(scheduler)
  assert first.tokens.tolist() == [0] and first.stopped
  assert len(second.tokens) == 5


def test_decoding_returns_early_only_while_something_waits():
  scheduler = Scheduler([request(3, 5)] * 5, CONFIG, groups=1)
  for _ in range(2):
    scheduler.assign(scheduler.next_prefill().prefilled)
  assert scheduler.next_prefill() is None  # All slots are taken.
  assert scheduler.next_decode()[1].tolist() == [2]
  scheduler.record(completions([5, 5, 1, 1]))
  scheduler.assign(scheduler.next_prefill().prefilled)
  assert scheduler.next_decode()[1].tolist() == [4]


def test_a_group_gets_the_prompts_whose_slots_are_its_own():
  scheduler = Scheduler([request(3, 5)] * 4, CONFIG, groups=2)
  job = scheduler.next_prefill()
  # Two groups of two slots, which prefill one prompt each at once.
  assert job.mask.any(axis=1).tolist() == [True, True]
  _, targets, counts = scheduler.assign(job.prefilled)
  assert counts.tolist() == [1, 1]
  assert targets.reshape(2, 2)[:, 0].tolist() == [0, 0]
  assert scheduler.batch.max_tokens.tolist() == [5, 0, 5, 0]


def test_a_sample_of_no_tokens_takes_no_slot():
  scheduler = Scheduler([request(3, 0)], CONFIG, groups=1)
  assert scheduler.next_prefill() is None and not scheduler.is_running()
  (sample,) = ended(scheduler)
  assert sample.tokens.shape == (0,) and not sample.stopped


@pytest.mark.parametrize(('prefill_rows', 'rows'), [(1, 1), (4, 2), (9, 2)])
def test_at_most_three_eighths_of_the_slots_are_prefilled_at_once(
  prefill_rows, rows
):
  config = EngineConfig(4, (4,), 5, prefill_rows=prefill_rows)
  assert config.prefill_rows_per_group(1) == rows
  scheduler = Scheduler([request(3, 5)] * 4, config, groups=1)
  assert len(scheduler.next_prefill().tokens) == rows


@pytest.mark.parametrize(
  ('platform', 'slots', 'rows', 'lengths'),
  [
    ('cpu', 64, 4, (64, 96, 160, 256, 400)),
    ('gpu', 16, 4, (128, 256, 400)),
    ('gpu', 512, 64, (128, 256, 400)),
  ],
)
def test_an_accelerator_reads_many_prompts_at_once_in_few_shapes(
  platform, slots, rows, lengths, monkeypatch
):
  monkeypatch.setattr(jax, 'default_backend', lambda: platform)
  assert EngineConfig(slots).prefill_rows_per_group(1) == rows
  assert prompt_lengths_up_to(400) == lengths


def test_prompts_that_begin_alike_are_read_to_their_ends():
  config = EngineConfig(
    slots=8, prompt_lengths=(8, 48), new_tokens=5, prefill_rows=3, ends=(8, 20)
  )
  start = list(range(100, 132))
  asked = [[*start, 1, 2, 3], [7] * 40, [*start, 4], [*start[:16], 5], [9] * 30]
  requests = [EngineRequest(p, [SamplingParams(5)]) for p in asked]

  cache, jobs = PromptCache(1 << 20), []
  scheduler = Scheduler(requests, config, 1, cache=cache, reads_ends=True)
  while job := scheduler.next_prefill():
    cache.add(SlotState(np.zeros(1), (), None), 48, job.prefilled.prompts)
    scheduler.assign(job.prefilled)
    jobs.append((job, [len(prompt) for *_, prompt in job.prefilled.prompts]))
  # Others wait for the first one, whose beginning they share.
  (first, sizes), (second, others) = jobs
  assert (first.end, sizes) == (48, [35, 40, 30])
  assert first.beginnings == [None] * 3
  assert (second.end, others) == (8, [33, 17])
  known = [b and (b.place.row, b.count) for b in second.beginnings]
  assert known == [(0, 25), (0, 9), None]
