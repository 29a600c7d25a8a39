"""An encoder-decoder as a policy: packed rows, updates, a learner."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.models.encoder_decoder import EncoderDecoder
from promptrl_jax.testing import tiny, tiny_encoder_decoder
from promptrl_jax.training.rewriter import packing
from promptrl_jax.training.rewriter import policy as policy_lib
from tests.training import tiny_rewriter
from tests.training.rewriter.update_test import SHARED, batch_of, texts
from tests.variants import mostly_slow

CONFIG = dataclasses.replace(
  tiny_encoder_decoder.CONFIG,
  vocab_size=tiny.CONFIG.vocab_size,
  decoder_start_token_id=2,
)
GATED = dataclasses.replace(
  tiny_encoder_decoder.GATED, vocab_size=tiny.CONFIG.vocab_size
)
LORA = {'rank': 2, 'alpha': 4.0}


@pytest.fixture(autouse=True, scope='module')
def compiled_quickly():
  """Programs run for milliseconds here, and there are many."""
  jax.config.update('jax_disable_most_optimizations', True)
  yield
  jax.config.update('jax_disable_most_optimizations', False)


@pytest.mark.parametrize(
  'config', mostly_slow([CONFIG, GATED], [GATED]), ids=['tied', 'gated']
)
def test_log_probs_are_those_of_each_text_alone(config):
  prompts, completions, owners = texts()
  rows = batch_of(SHARED).rows
  assert len(rows.tokens) < len(prompts)  # several prompts lie in a row
  params = dict(tiny_encoder_decoder.params(config))
  policy = policy_lib.PolicyConfig(config, temperature=0.8, logits_chunk=7)
  found = jax.jit(policy_lib.outputs, static_argnums=0)(policy, params, rows)
  logps = packing.gather(rows, found.logps, len(completions))

  @jax.jit
  def alone(prompt, mask, read):
    logits = EncoderDecoder(config).apply(params, prompt, mask, read)
    return jax.nn.log_softmax(logits / 0.8)

  for number, (owner, ids) in enumerate(zip(owners, completions, strict=True)):
    prompt = np.array(prompts[owner])
    read = np.array([config.decoder_start_token_id, *ids[:-1]])
    expected = alone(
      np.pad(prompt, (0, 16 - len(prompt)))[None],
      (np.arange(16) < len(prompt))[None],
      np.pad(read, (0, 16 - len(read)))[None],
    )
    expected = np.asarray(expected)[0, np.arange(len(ids)), ids]
    np.testing.assert_allclose(logps[number, : len(ids)], expected, rtol=1e-5)


TOKENIZER = dataclasses.replace(tiny.tokenizer(), end=(1,))


@functools.cache
def taught():
  start = jax.tree.map(jnp.copy, dict(tiny_encoder_decoder.params(CONFIG)))
  return tiny_rewriter.teach(CONFIG, start, TOKENIZER, steps=150)


@pytest.mark.slow
@pytest.mark.parametrize(
  ('name', 'sections'),
  [
    ('grpo', {'loss': {'kl_estimator': 'exact'}}),
    ('ppo', {}),
    ('grpo', {'parameters': 'lora', 'reference': {'kind': 'adapter_off'}}),
  ],
  ids=['grpo', 'ppo', 'lora'],
)
def test_it_learns_as_a_rewriter(name, sections, pool):
  config = tiny_rewriter.make_config(
    name, **sections, rollout={'drop_uniform': False}, lora=LORA
  )
  start = tiny_rewriter.start_of(CONFIG, taught(), TOKENIZER)
  learner = tiny_rewriter.make_learner(start, config)
  before = jax.tree.map(np.asarray, learner.initial.train.params)
  # Adapters alone take longer.
  steps = 16 if sections.get('parameters') == 'lora' else 10
  env = tiny_rewriter.make_env(pool)
  state, rows = tiny_rewriter.train(learner, env, steps)
  for row in rows[:2]:
    # The trainer reads what the sampler read, tokens around a text included.
    assert row['train/mismatch_kl'] < 1e-6
    assert row['train/tokens'] > 0 and row['train/grad_norm'] > 0
  assert rows[1]['train/kl'] > 1e-6
  assert rows[0]['train/kl'] < 1e-6 or not learner.config.loss.is_one_step
  assert learner.updates[0]._cache_size() == 1
  # As in `rewriter_test`: half are rewarded at the start.
  rewards = [row['reward/mean'] for row in rows]
  assert np.mean(rewards[-4:]) > 0.5 + 3 * math.sqrt(0.25 / 64), rewards
  moved = jax.tree.map(
    lambda a, b: bool(jnp.any(a != b)), before, state.train.params
  )
  assert set(moved) == set(before)
  assert all(any(jax.tree.leaves(tree)) for tree in moved.values())


def test_prompts_end_as_its_encoder_was_trained():
  (ids,) = TOKENIZER.encode(['add'])
  assert TOKENIZER.render([('user', 'add')])[-2:] == [ids[-1], 1]
