"""Parameters that are read from their files one by one."""

import dataclasses
import functools
import itertools
import tracemalloc

import jax
import numpy as np
import pytest

from promptrl_jax.models import file_leaves, pretrained, transformer
from promptrl_jax.parallel import host_memory
from promptrl_jax.parallel.mesh import make_data_mesh
from promptrl_jax.sampling import prepare
from promptrl_jax.sampling.requests import EngineConfig
from promptrl_jax.sampling.sampler import Sampler
from promptrl_jax.testing import tiny
from tests.golden import causal, encoder_decoder
from tests.models.gguf_files import convert
from tests.variants import mostly_slow

FOLDERS = {
  **{name: causal.FOLDER / name for name in ('gpt2', 'qwen2', 'gemma3')},
  'flan_t5': encoder_decoder.FOLDER / 'flan_t5',
}
every_folder = pytest.mark.parametrize(
  'name', mostly_slow(FOLDERS, {'gemma3', 'flan_t5'})
)


def equal(one, other):
  assert jax.tree.structure(one) == jax.tree.structure(other)
  for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
    assert (x.shape, x.dtype) == (y.shape, y.dtype)
    assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


@every_folder
def test_what_is_read_late_is_the_same(name):
  load = functools.partial(pretrained.load_model, FOLDERS[name])
  _, tree = load(dtype='bfloat16')
  _, late = load(dtype='bfloat16', in_file=True)
  assert {type(x) for x in jax.tree.leaves(late)} == {file_leaves.FileLeaf}
  equal(jax.tree.map(np.asarray, late), tree)
  stack = next(k for k in ('layers', 'decoder') if k in tree['params'])
  for i in range(2):
    pick = lambda leaf, i=i: np.asarray(leaf[i])
    equal(*(jax.tree.map(pick, x['params'][stack]) for x in (late, tree)))


@pytest.mark.parametrize(
  ('name', 'bits'),
  mostly_slow(
    itertools.product(FOLDERS, (None, 8)),
    {('qwen2', 8), ('gemma3', None)},
  ),
)
def test_prepared_from_files_it_is_the_same(name, bits):
  mesh = make_data_mesh(2)
  _, tree = pretrained.load_model(FOLDERS[name])
  _, late = pretrained.load_model(FOLDERS[name], in_file=True)
  equal(*(prepare.prepare(x, mesh, bits=bits) for x in (late, tree)))


@pytest.mark.parametrize(
  'dtype', mostly_slow(['bfloat16', 'float32'], ['bfloat16'])
)
def test_an_embedding_in_several_parts_is_the_same(
  dtype, tmp_path, monkeypatch
):
  path = convert(FOLDERS['gemma3'], tmp_path / 'model.gguf')
  monkeypatch.setattr('promptrl_jax.models.gguf_file._AT_ONCE', 1)  # 32 rows
  _, tree = pretrained.load_model(path, dtype=dtype)
  _, late = pretrained.load_model(path, dtype=dtype, in_file=True)
  equal(*(prepare.prepare(x, make_data_mesh(2)) for x in (late, tree)))


def test_loading_a_sampler_holds_its_weights_once(tmp_path, monkeypatch):
  config = dataclasses.replace(
    tiny.CONFIG, vocab_size=2048, hidden_size=512, num_layers=9, mlp_size=512
  )
  rng = np.random.default_rng(0)
  params = jax.tree.map(
    lambda s: rng.normal(size=s.shape).astype(np.float32),
    transformer.shapes(config),
  )
  pretrained.save_pretrained(tmp_path, config, params, tiny.tokenizer())
  real, seen = prepare.prepare, {}

  def measured(params, *args):
    seen['arrays'] = sum(x.nbytes for x in jax.live_arrays()) - before
    tracemalloc.start()
    prepared = real(params, *args)
    _, seen['peak'] = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    seen['kept'] = sum(x.nbytes for x in jax.tree.leaves(prepared))
    return prepared

  monkeypatch.setattr(prepare, 'prepare', measured)
  # The end of a piece, which nothing is written to, takes no memory, but would
  # be counted.
  monkeypatch.setattr(host_memory, '_PIECE', 0)
  before = sum(x.nbytes for x in jax.live_arrays())
  Sampler.load(tmp_path, make_data_mesh(1), shapes=EngineConfig(1, (8,), 8))
  # No other arrays when it starts, and one tensor beside them at most: what
  # NumPy allocates are the parameters, which JAX takes as they are.
  largest = 4 * config.vocab_size * config.hidden_size
  assert seen['arrays'] < 0.1 * largest
  assert seen['kept'] > 5 * largest
  assert seen['kept'] < seen['peak'] < seen['kept'] + 1.3 * largest
