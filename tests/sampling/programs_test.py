"""The jitted programs of the engine."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.models import encoder_decoder, transformer
from promptrl_jax.parallel.mesh import make_data_mesh
from promptrl_jax.sampling import programs
from promptrl_jax.sampling.engine import make_engine
from promptrl_jax.sampling.lowering import compile_engine
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.sampling.model import InputBatch, make_model
from promptrl_jax.sampling.prepare import abstract, prepare
from promptrl_jax.sampling.requests import EngineConfig
from promptrl_jax.testing import tiny, tiny_encoder_decoder

N = 6
MODEL = make_model(dataclasses.replace(tiny.CONFIG, eos_token_ids=()), 8, N)
METHOD = Sampling()
MESH = make_data_mesh(1)
params = functools.cache(lambda: prepare(tiny.params(), MESH))


def state(rows, start):
  """A state whose leaves tell the rows apart."""
  shapes = jax.eval_shape(
    lambda: programs.empty_slots(MODEL, Sampling(), rows, 1)
  )
  fill = lambda s: jnp.broadcast_to(
    (start + jnp.arange(rows)).reshape(-1, *[1] * (s.ndim - 1)), s.shape
  ).astype(s.dtype)
  return jax.tree.map(fill, shapes)


@pytest.mark.parametrize(
  'insert',
  [
    programs.insert,
    programs.insert_together,
    functools.partial(programs.insert_together, together=1),
    functools.partial(programs.insert_together, together=3),
  ],
)
def test_insert_copies_the_valid_pairs_and_leaves_the_other_slots(insert):
  slots = insert(
    state(4, 0),
    state(2, 10),
    jnp.array([1, 0, 0, 0]),
    jnp.array([3, 0, 2, 2]),
    jnp.array([2]),
  )
  for leaf in jax.tree.leaves(slots):
    assert np.asarray(leaf).reshape(4, -1)[:, 0].tolist() == [10, 1, 2, 11]


@functools.partial(jax.jit, static_argnums=())
def decode(params, slots, limits, enough_free, steps):
  batch = InputBatch(
    prompt_start=jnp.zeros(3, jnp.int32),
    prompt_lengths=jnp.full(3, 8),
    generated=jnp.zeros(3, jnp.int32),
    max_tokens=limits,
    temperature=jnp.ones(3),
    top_p=jnp.ones(3),
    seeds=jnp.arange(3, dtype=jnp.uint32),
  )
  return programs.decode(
    MODEL, METHOD, params, slots, batch, enough_free, steps
  )[1]


@pytest.mark.parametrize(
  ('limits', 'enough_free', 'steps', 'counts'),
  [
    ([6, 6, 6], 3, 4, [4, 4, 4]),  # the steps are over
    ([2, 3, 6], 3, 6, [2, 3, 6]),  # until all are free
    ([2, 3, 6], 2, 6, [2, 3, 3]),  # until two are free
    ([0, 2, 6], 2, 6, [0, 2, 2]),  # one was free before
    ([0, 0, 6], 2, 6, [0, 0, 0]),  # enough were
  ],
)
def test_decoding_ends_when_enough_slots_are_free(
  limits, enough_free, steps, counts
):
  slots = programs.empty_slots(MODEL, METHOD, 3, MODEL.blocks(8))
  out = decode(
    params(),
    slots,
    jnp.array(limits),
    jnp.array([enough_free]),
    jnp.array([steps]),
  )
  assert out.mask.sum(axis=1).tolist() == counts
  assert not out.stopped.any()


def test_compiled_without_parameters_it_is_the_program_that_an_engine_runs():
  shapes = EngineConfig(3, (8,), N)
  compiled = compile_engine(
    MODEL.config, METHOD, abstract(tiny.params(), MESH), MESH, shapes
  )
  engine = make_engine(MODEL.config, METHOD, params(), MESH, shapes)
  slots = engine.programs.empty_fn(MODEL.blocks(8), 3)
  of = lambda tree: [(x.shape, x.dtype) for x in jax.tree.leaves(tree)]
  assert of(compiled.slots) == of(slots)
  tokens = np.arange(3, 19, dtype=np.int32).reshape(2, 8)
  mask = np.ones((2, 8), bool)
  expected = engine.programs.prefill_fn(params(), tokens, mask)
  prompts = compiled.prefill(params(), tokens, mask)
  jax.tree.map(np.testing.assert_array_equal, prompts, expected)


@pytest.mark.parametrize(
  ('family', 'config', 'tied'),
  [
    (transformer, tiny.CONFIG, True),
    pytest.param(transformer, tiny.CONFIG, False, marks=pytest.mark.slow),
    (encoder_decoder, tiny_encoder_decoder.GATED, False),
  ],
)
def test_decoding_holds_no_copy_of_an_embedding_of_16_bits(
  family, config, tied
):
  config = dataclasses.replace(
    config, vocab_size=2**15, hidden_size=64, tie_embeddings=tied
  )
  params = jax.tree.map(
    lambda s: jax.ShapeDtypeStruct(s.shape, jnp.bfloat16),
    family.shapes(config),
  )
  shapes = EngineConfig(1, (8,), N)
  compiled = compile_engine(
    config, METHOD, abstract(params, MESH), MESH, shapes
  )
  used = compiled.decode.memory_analysis().temp_size_in_bytes
  assert used < 2 * config.vocab_size * config.hidden_size
