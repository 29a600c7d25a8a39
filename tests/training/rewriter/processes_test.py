"""Processes that share a batch learn from it what one process learns."""

import json

import numpy as np
import pytest

from tests.parallel import processes

# Four prompts with two completions each; a process learns from its own.
SCRIPT = """
import json
import numpy as np
from promptrl_jax.parallel import exchange
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.sampling.requests import EngineRequest, SamplingParams
from promptrl_jax.testing import tiny
from promptrl_jax.training.rewriter import build
from promptrl_jax.training.rewriter.rollout import Rollout
from tests.training import tiny_rewriter

folder, groups, mesh, *names = ARGS
draw = np.random.default_rng(0)
prompts = [draw.integers(5, 40, 6 + i).tolist() for i in range(4)]
completions = [draw.integers(5, 40, 3 + i).tolist() for i in range(8)]
logps = [np.float32(draw.normal(-2, 0.3, len(c))) for c in completions]
REQUESTS = [
  EngineRequest(p, [SamplingParams(8, 1.0, seed=7)]) for p in prompts
]
rewards = [0.0, 1.0, 0.5, 0.25, 1.0, 0.0, 0.75, 0.5]


def rollout(rows):
  # The groups of these rows that are left.
  left = [i for i in range(4)[rows] if i < int(groups)]
  each = lambda values: [values[2 * i + j] for i in left for j in (0, 1)]
  owners = [n for n in range(len(left)) for _ in range(2)]
  return Rollout(
    [prompts[i] for i in left], owners, each(completions), each(logps),
    [''] * len(owners), [True] * len(owners)), each(rewards)


def learn(name):
  learner = build.make_learner(
    build.Start('tiny', tiny.CONFIG, dict(tiny.params()), tiny.tokenizer()),
    config=tiny_rewriter.make_config(
      name.removesuffix('_exact'), rollout={'group': 2},
      loss={'epochs': 1, 'minibatches': 1,
              'kl_estimator': 'exact' if name.endswith('_exact') else 'k3'}),
    mesh=mesh_lib.of_process(mesh), seed=0, prompt_lengths=(32,))
  qkv = lambda state: [
    tree['params']['layers']['qkv'].addressable_shards[0].data.size
    for tree in (state.train.params, state.train.opt_state[1][0].mu,
                 state.reference) if tree]
  shares = qkv(learner.initial)
  learner.engine.replace_params(learner.decode_params(learner.initial))
  sampled = [
    sample.tokens.tolist() for group in learner.engine.run(REQUESTS)
    for sample in group]
  state, row = learner.update(learner.initial, *rollout(exchange.my_rows(4)))
  assert shares == qkv(state) and len(set(shares)) == 1
  here = exchange.own_copies(state.train.params, learner.own_mesh)
  vector = np.concatenate([np.ravel(x) for x in jax.tree.leaves(here)])
  np.save(f'{folder}/{name}_{jax.process_index()}.npy', vector)
  return {'step': int(state.step), 'share': shares[0],
          'sampled': sampled} | {
    k: v for k, v in row.items() if not k.startswith('time/')}


with distributed.session(config):
  print(json.dumps({name: learn(name) for name in names}))
"""

# Advantages over a group, over the batch, over its tokens, with a value head,
# and over the whole vocabulary.
NAMES = ('grpo', 'reinforce', 'reinforce_pp', 'ppo', 'reinforce_exact')


def run(folder, count, groups, *names, mesh='', devices=2):
  folder.mkdir()
  done = processes.run(
    SCRIPT,
    count,
    str(folder),
    str(groups),
    mesh,
    *names,
    devices=devices // count,
  )
  assert not any(d.returncode for d in done), processes.report(done)
  rows = [json.loads(d.stdout.splitlines()[-1]) for d in done]
  return rows, {
    name: [np.load(folder / f'{name}_{i}.npy') for i in range(count)]
    for name in names
  }


# Three groups: the second process has one less than the first.
@pytest.mark.slow
@pytest.mark.parametrize('groups', [4, 3])
def test_two_processes_learn_what_one_does(groups, tmp_path):
  names = NAMES if groups == 4 else NAMES[:1]
  alone = run(tmp_path / 'one', 1, groups, *names)
  check(alone, run(tmp_path / 'two', 2, groups, *names))


@pytest.mark.slow
def test_a_model_that_is_split_learns_what_a_whole_one_does(tmp_path):
  alone = run(tmp_path / 'one', 1, 4, *NAMES)
  split = run(tmp_path / 'two', 2, 4, *NAMES, mesh='fsdp=2,tensor=2', devices=8)
  whole = alone[0][0]['grpo']['share']
  # Parameters, optimizer and reference: each device of a process a quarter.
  assert [row['grpo']['share'] for row in split[0]] == [whole // 4] * 2
  check(alone, split)


def check(alone, together):
  """Whether two processes learned what one did."""
  ((alone,), expected), ((first, second), found) = alone, together
  assert first == second
  for name in expected:
    assert alone[name]['step'] == first[name]['step'] == 1
    assert alone[name]['train/tokens'] == first[name]['train/tokens'] > 0
    assert alone[name]['sampled'] == first[name]['sampled']
    # How full rows are is a matter of how completions were dealt to them.
    rows = [
      {k: v for k, v in row.items() if k.startswith('train/')}
      for row in (first[name], alone[name])
    ]
    for row in rows:
      row.pop('train/packed')
    assert rows[0] == pytest.approx(rows[1], abs=1e-4), name
    np.testing.assert_array_equal(*found[name])
    # Adam moves by the sign of a gradient, however near to 0 that is.
    difference = np.abs(found[name][0] - expected[name][0])
    assert np.mean(difference > 1e-4) < 0.01, name


@pytest.mark.slow
def test_a_process_without_a_group_does_not_hold_up_the_other(tmp_path):
  (first, second), found = run(tmp_path / 'some', 2, 2, 'grpo')
  assert first == second and first['grpo']['train/tokens'] > 0
  np.testing.assert_array_equal(*found['grpo'])
  (first, second), kept = run(tmp_path / 'none', 2, 0, 'grpo')
  assert first == second and first['grpo']['step'] == 1
  names = [n for n in first['grpo'] if n.startswith('train/')]
  assert names == ['train/phase']
  assert not np.array_equal(kept['grpo'][0], found['grpo'][0])
