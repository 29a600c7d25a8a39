"""Groups of rewrites: which tasks, which draws, and what is left of them."""

import dataclasses

import jax
import numpy as np
import pytest

from promptrl_jax.sampling.requests import Sample
from promptrl_jax.testing import tiny
from promptrl_jax.training.rewriter import packing
from promptrl_jax.training.rewriter import rollout as lm_rollout
from promptrl_jax.training.rewriter.rollout import (
  Rollout,
  RolloutConfig,
  Sampled,
  draw_tasks,
  seed_of,
  to_rollout,
)
from tests.training import tiny_rewriter


def sampled(count=6, group=2):
  """Completion i has i + 1 tokens, all of them 10 + i."""
  samples = [
    Sample(
      np.full(i + 1, 10 + i, np.int32), np.full(i + 1, -float(i)), stopped=True
    )
    for i in range(count)
  ]
  prompts = [[1, 5 + i] for i in range(count // group)]
  texts = [f'text {i}' for i in range(count)]
  return Sampled(tiny.tasks(count // group), prompts, samples, texts, 0.5)


def test_a_dropped_sample_leaves_the_rest_of_its_group_in():
  rewards = np.array([1.0, np.nan, 0.0, 0.5, np.nan, np.nan])
  config = RolloutConfig(prompts=3, group=2, drop_uniform=False)
  found = to_rollout(sampled(), rewards, config)
  assert found.prompts == [[1, 5], [1, 6]]  # of the third nothing is left
  assert found.owners == [0, 1, 1]
  assert found.rewards == [1.0, 0.0, 0.5]
  assert found.completions == [[10], [12] * 3, [13] * 4]
  assert [x.tolist() for x in found.sampler_logps] == [
    [0.0], [-2.0] * 3, [-3.0] * 4,
  ]  # fmt: skip


def test_groups_without_a_difference_are_left_out():
  rewards = np.array([1.0, 1.0, 0.0, 0.5, np.nan, 0.5])
  config = RolloutConfig(prompts=3, group=2, drop_uniform=True)
  found = to_rollout(sampled(), rewards, config)
  # One that is alone has nothing to be compared with.
  assert found.prompts == [[1, 6]] and found.owners == [0, 0]
  assert found.rewards == [0.0, 0.5]


def test_rollouts_are_put_together_with_owners_counted_on():
  config = RolloutConfig(prompts=3, group=2, drop_uniform=False)
  first = to_rollout(sampled(2), np.array([0.0, 1.0]), config)
  second = to_rollout(sampled(4), np.array([0.0, 1.0, 1.0, 0.0]), config)
  first.extend(second)
  assert first.owners == [0, 0, 1, 1, 2, 2]
  assert len(first.prompts) == 3 and len(first.completions) == 6
  assert first.rewards == [0, 1, 0, 1, 1, 0]
  empty = Rollout([], [], [], [], [])
  empty.extend(first)
  assert empty == first


def test_a_pass_takes_each_task_once_and_passes_differ():
  # Five tasks, three at a time: five iterations are three passes.
  walk = [i for step in range(5) for i in draw_tasks(5, 3, seed=7, step=step)]
  passes = [walk[i : i + 5] for i in (0, 5, 10)]
  assert all(sorted(one) == list(range(5)) for one in passes)
  assert len(set(map(tuple, passes))) > 1
  assert walk[:3] == draw_tasks(5, 3, seed=7, step=0)
  others = [draw_tasks(50, 50, seed, 0) for seed in range(3)]
  assert len(set(map(tuple, others))) == 3


def test_more_tasks_than_there_are_is_more_than_one_pass():
  assert sorted(draw_tasks(3, 6, seed=0, step=0)) == [0, 0, 1, 1, 2, 2]


def test_a_seed_is_told_by_all_its_parts():
  seeds = {seed_of(1, 2), seed_of(12), seed_of(2, 1), seed_of(1, 2, 0)}
  assert len(seeds) == 4
  assert seed_of('a', 1) == seed_of('a', 1)


@pytest.fixture(scope='module')
def made():
  return tiny_rewriter.make(tiny_rewriter.make_config())


def draw(made, seed, temperature=1.0):
  config = dataclasses.replace(made.config.rollout, temperature=temperature)
  made.engine.replace_params(made.decode_params(made.initial))
  return lm_rollout.sample(
    made.engine, made.tokenizer, tiny_rewriter.make_env(None),
    tiny_rewriter.TASKS, config, seed,
  )  # fmt: skip


def test_the_seed_alone_tells_what_is_drawn(made):
  first, again, other = (draw(made, seed) for seed in (3, 3, 4))
  assert first.texts == again.texts != other.texts
  assert len(first.samples) == 16 and len(first.prompts) == 4
  wordings = {
    text
    for k in range(4)
    for text in (
      tiny_rewriter.CLEAR.format(k).strip(),
      tiny_rewriter.TERSE.format(k).strip(),
    )
  }
  known = [text.strip() in wordings for text in first.texts]
  assert np.mean(known) > 0.8  # it was taught no others
  assert len(set(first.texts)) > 4  # draws of a group differ


def test_log_probs_of_the_sampler_are_those_of_the_trainer(made):
  found = draw(made, 5)
  rewards = np.zeros(len(found.samples))
  config = dataclasses.replace(made.config.rollout, drop_uniform=False)
  rollout = to_rollout(found, rewards, config)
  rows = packing.pack(
    rollout.prompts, rollout.completions, rollout.owners, made.config.packing
  )
  params = jax.tree.map(np.asarray, made.params(made.initial))
  logps = packing.gather(rows, made.score(params, rows).logps, len(rewards))
  for found, expected in zip(rollout.sampler_logps, logps, strict=True):
    np.testing.assert_allclose(found, expected[: len(found)], atol=2e-4)


@pytest.mark.parametrize(
  ('settings', 'message'),
  [
    ({'prompts': 0}, 'prompts=0'),
    ({'group': 0}, 'group=0'),
    ({'new_tokens': 0}, 'new_tokens=0'),
    ({'temperature': 0.0}, 'a policy that explores'),
  ],
)
def test_bad_settings_are_named(settings, message):
  with pytest.raises(ValueError, match=message):
    RolloutConfig(**settings)
