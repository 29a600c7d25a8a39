"""Groups of rewrites: which tasks, which draws, and what is left of them."""

import jax
import numpy as np
import pytest

from promptrl_jax.training.rewriter import packing
from promptrl_jax.training.rewriter.collect import Collector
from promptrl_jax.training.rewriter.rollout import (
  Rollout,
  RolloutConfig,
  draw_tasks,
  informative,
  own_names,
  seed_of,
)
from tests.training import tiny_rewriter


def sampled(count=6, group=2):
  """Completion i has i + 1 tokens, all of them 10 + i."""
  return Rollout(
    prompts=[[1, 5 + i] for i in range(count // group)],
    owners=[i // group for i in range(count)],
    completions=[[10 + i] * (i + 1) for i in range(count)],
    sampler_logps=[np.full(i + 1, -float(i)) for i in range(count)],
    texts=[f'text {i}' for i in range(count)],
    finished=[i % 2 == 0 for i in range(count)],
  )


def test_a_dropped_sample_leaves_the_rest_of_its_group_in():
  rewards = np.array([1.0, np.nan, 0.0, 0.5, np.nan, np.nan])
  kept, rewards = informative(sampled(), rewards, drop_uniform=False)
  assert kept.prompts == [[1, 5], [1, 6]]  # of the third nothing is left
  assert kept.owners == [0, 1, 1]
  assert rewards.tolist() == [1.0, 0.0, 0.5]
  assert kept.completions == [[10], [12] * 3, [13] * 4]
  assert [x.tolist() for x in kept.sampler_logps] == [
    [0.0],
    [-2.0] * 3,
    [-3.0] * 4,
  ]
  assert kept.texts == ['text 0', 'text 2', 'text 3']
  assert kept.finished == [True, True, False]


def test_groups_without_a_difference_are_left_out():
  rewards = np.array([1.0, 1.0, 0.0, 0.5, np.nan, 0.5])
  kept, rewards = informative(sampled(), rewards, drop_uniform=True)
  # One that is alone has nothing to be compared with.
  assert kept.prompts == [[1, 6]] and kept.owners == [0, 0]
  assert rewards.tolist() == [0.0, 0.5]
  again, _ = informative(kept, rewards, drop_uniform=True)
  assert again.completions == kept.completions


def test_each_completion_needs_a_reward():
  with pytest.raises(
    ValueError, match=r'shape \(5,\), expected one for each of 6'
  ):
    informative(sampled(), np.zeros(5), drop_uniform=False)


def test_rollouts_are_put_together_with_owners_counted_on():
  first, second = sampled(2), sampled(4)
  first.extend(second)
  assert first.owners == [0, 0, 1, 1, 2, 2]
  assert len(first.prompts) == 3 and len(first.completions) == 6
  assert first.texts == ['text 0', 'text 1', *second.texts]
  empty = Rollout()
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


def test_a_name_that_comes_again_is_told_apart():
  assert own_names(['a', 'b', 'a', 'a']) == ['a', 'b', 'a/1', 'a/2']


def test_a_seed_depends_on_all_its_parts():
  seeds = {seed_of(1, 2), seed_of(12), seed_of(2, 1), seed_of(1, 2, 0)}
  assert len(seeds) == 4
  assert seed_of('a', 1) == seed_of('a', 1)


@pytest.fixture(scope='module')
def learner():
  return tiny_rewriter.make(tiny_rewriter.make_config())


def draw(learner, seed):
  prompts = tiny_rewriter.make_env(None).prompts(tiny_rewriter.TASKS)
  return learner.sample(learner.initial, prompts, seed)


def test_the_seed_alone_decides_what_is_drawn(learner):
  first, again, other = (draw(learner, seed) for seed in (3, 3, 4))
  assert first.texts == again.texts != other.texts
  assert len(first.completions) == 16 and len(first.prompts) == 4
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


def test_a_task_that_comes_again_in_a_batch_has_other_rewrites(learner):
  class Env:
    prompts = staticmethod(tiny_rewriter.make_env(None).prompts)

    def submit(self, tasks, texts, seed, finished):
      assert len(tasks) == len(texts) == len(finished) == 16

  collector = Collector(learner, Env(), tiny_rewriter.TASKS[:1], seed=0)
  texts = collector.sample(learner.initial).rollout.texts
  groups = {tuple(texts[i : i + 4]) for i in range(0, 16, 4)}
  assert len(groups) > 1


def test_log_probs_of_the_sampler_are_those_of_the_trainer(learner):
  rollout = draw(learner, 5)
  rows = packing.pack(
    rollout.prompts, rollout.completions, rollout.owners, learner.config.packing
  )
  params = jax.tree.map(np.asarray, learner.params(learner.initial))
  scores = learner.score(params, rows).logps
  logps = packing.gather(rows, scores, len(rollout.completions))
  for sampler, trainer in zip(rollout.sampler_logps, logps, strict=True):
    np.testing.assert_allclose(sampler, trainer[: len(sampler)], atol=2e-4)


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
