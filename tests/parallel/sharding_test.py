"""A model on eight devices gives the results of one device."""

import pytest
from jax.sharding import PartitionSpec as P

from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.parallel import sharding
from tests import scripts

SCRIPT = """
import json
import jax
jax.config.update('jax_num_cpu_devices', 8)
from jax.sharding import Mesh
import numpy as np
from promptrl_jax.models import pretrained, weights
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.parallel import sharding
from promptrl_jax.sampling.engine import make_engine
from promptrl_jax.sampling.methods import Sampling
from promptrl_jax.sampling.prepare import prepare
from promptrl_jax.sampling.requests import (
  EngineConfig, EngineRequest, SamplingParams)
from promptrl_jax.testing.reference_sampler import make_generate_fn
from tests.golden import causal
from tests.models.causal_families_test import log_probs

folder = causal.FOLDER / 'qwen2'
config = pretrained.load_config(folder)
of = pretrained.family(config.family)
shapes = of.shapes(config)

def load(mesh):
  shardings = sharding.shardings(shapes, of.partition, mesh)
  return weights.load_tree(
    weights.Tensors(folder), of.table(config), shapes, shardings=shardings)

def run(mesh, params):
  tokens, mask = causal.prompts(config.vocab_size)
  tokens, mask = np.tile(tokens, (4, 1)), np.tile(mask, (4, 1))
  rules = of.partition if mesh.size > 1 else None
  generate = make_generate_fn(config, Sampling(), 20, 16, mesh)
  out = generate(
    prepare(params, mesh, rules), tokens, mask, np.full(12, 0.9, np.float32),
    np.arange(12, dtype=np.uint32), np.full(12, 16, np.int32),
    np.full(12, 0.9, np.float32))
  return (np.asarray(out.tokens), np.asarray(out.logps),
          np.asarray(log_probs(config, params, tokens, mask))[mask])

def refill(params):
  # Continuous batching on all devices: 12 prompts in 2 groups of 2 rows.
  tokens, mask = causal.prompts(config.vocab_size)
  settings = EngineConfig(4, (20,), 16, steps=5, prefill_rows=1)
  engine = make_engine(
    config, Sampling(), prepare(params, many, of.partition), many, settings)
  requests = [
    EngineRequest(tokens[i % 3][mask[i % 3]].tolist(),
                  [SamplingParams(4 + i, temperature=0.9, top_p=0.9, seed=i)])
    for i in range(12)]
  results = [sample.tokens.tolist() for (sample,) in engine.run(requests)]
  compiled = engine.compiled_programs()
  engine.run(requests[:5])
  return results, engine.compiled_programs() - compiled

one = Mesh(np.asarray(jax.devices()[:1]).reshape(1, 1, 1), mesh_lib.AXES,
           axis_types=(jax.sharding.AxisType.Auto,) * 3)
many = mesh_lib.make_mesh({'data': 2, 'fsdp': 2, 'tensor': 2})
params = load(many)
alone, together = run(one, load(one)), run(many, params)
refilled, new_programs = refill(params)
qkv = params['params']['layers']['qkv']
print(json.dumps({
  'same_tokens': bool((alone[0] == together[0]).all()),
  'logps': float(np.abs(alone[1] - together[1]).max()),
  'same_refilled': refilled == [
    row[: 4 + i].tolist() for i, row in enumerate(alone[0])],
  'new_programs': new_programs,
  'scores': float(np.abs(alone[2] - together[2]).max()),
  'share': qkv.addressable_shards[0].data.size / qkv.size,
}))
"""


ADAPTERS = """
import dataclasses, json
import jax
jax.config.update('jax_num_cpu_devices', 8)
import numpy as np
from promptrl_jax.models import lora, pretrained
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.parallel import sharding
from promptrl_jax.testing import tiny, tiny_encoder_decoder
from tests.golden import causal, encoder_decoder
from tests.models import causal_families_test, encoder_decoder_test

mesh = mesh_lib.make_mesh({'data': 2, 'fsdp': 2, 'tensor': 2})
t5 = dataclasses.replace(tiny_encoder_decoder.GATED, num_heads=4, vocab_size=98)
models = {
  'causal': (tiny.CONFIG, tiny.params(), causal_families_test.log_probs,
             causal.prompts(300)),
  't5': (t5, tiny_encoder_decoder.params(t5), encoder_decoder_test.log_probs,
         (*encoder_decoder.prompts(), encoder_decoder.decoder_tokens())),
}
results = {}
for name, (config, params, log_probs, inputs) in models.items():
  settings = lora.LoraConfig(3, 6.0, family=lora.family_of(config))
  rng = np.random.default_rng(0)
  # Small: sharp attention of T5 amplifies the rounding of float32.
  adapters = jax.tree.map(lambda x: rng.normal(0, 0.05, x.shape).astype('f4'),
                          lora.shapes(settings, params))
  rules = pretrained.family(config.family).partition
  place = lambda tree: jax.device_put(
    tree, sharding.shardings(tree, rules, mesh))
  attach = jax.jit(lora.attach, static_argnums=0)
  alone = attach(settings, params, adapters)
  together = place(alone)
  # Placed before they are attached, they may as well be.
  later = attach(settings, place(params), place(adapters))
  values = [np.asarray(log_probs(config, variables, *inputs))
            for variables in (alone, together, later)]
  stack = 'decoder' if name == 't5' else 'layers'
  shares = lambda tree: {
    leaf: [x.addressable_shards[0].data.size / x.size for x in pair.values()]
    for leaf, pair in tree[stack].items() if leaf in ('qkv', 'gate_up', 'down')}
  results[name] = {
    'differences': [float(np.abs(values[0] - v).max() / np.abs(v).max())
                    for v in values[1:]],
    'effect': float(np.abs(
      values[0] - np.asarray(log_probs(config, params, *inputs))).max()),
    'shares': shares(together['lora']),
  }
print(json.dumps(results))
"""


FAMILIES = """
import json, pathlib, sys
import jax
jax.config.update('jax_num_cpu_devices', 8)
import numpy as np
from promptrl_jax.models import pretrained
from promptrl_jax.parallel import mesh as mesh_lib
from tests.golden import causal, encoder_decoder
from tests.models import causal_families_test, encoder_decoder_test

results = {}
for name in sys.argv[2:]:
  is_t5 = name in encoder_decoder.CASES
  folder = (encoder_decoder if is_t5 else causal).FOLDER / name
  config = pretrained.load_config(folder)
  # T5's have three heads.
  shape = {'fsdp': 4} if config.family == 't5' else {'fsdp': 2, 'tensor': 2}
  log_probs = causal_families_test.log_probs
  if config.family == 't5':
    log_probs = encoder_decoder_test.log_probs
    inputs = (*encoder_decoder.prompts(), encoder_decoder.decoder_tokens())
  else:
    inputs = causal.prompts(config.vocab_size)
  values, files = [], []
  for mesh in (None, mesh_lib.make_mesh({'data': 2, **shape})):
    config, params = pretrained.load_model(folder, mesh)
    values.append(np.asarray(log_probs(config, params, *inputs)))
    to = pathlib.Path(sys.argv[1]) / folder.name / str(len(files))
    pretrained.save_model(to, config, params)
    files.append({path.name: path.read_bytes() for path in to.iterdir()})
  here = sum(x.addressable_shards[0].data.size for x in jax.tree.leaves(params))
  results[folder.name] = {
    'difference': float(np.abs(values[0] - values[1]).max()),
    'same_files': files[0] == files[1] and len(files[0]) > 1,
    'share': here / sum(x.size for x in jax.tree.leaves(params)),
  }
print(json.dumps(results))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
  'names',
  [
    ('qwen3', 'flan_t5'),  # norms of heads; gates
    # Biases, a window, learned positions.
    ('llama_biases', 'mistral', 'gpt2', 'codet5p'),
  ],
)
def test_a_mesh_holds_a_family_and_saves_what_one_device_saves(names, tmp_path):
  results = scripts.found(FAMILIES, tmp_path, *names)
  assert results.keys() == set(names)
  for name, model in results.items():
    assert model['difference'] < 1e-4, name
    assert model['same_files'], name
    assert 0.25 <= model['share'] < 0.3, name


@pytest.fixture(scope='module')
def adapted():
  return scripts.found(ADAPTERS)


@pytest.mark.slow
@pytest.mark.parametrize('name', ['causal', 't5'])
def test_attached_adapters_lie_beside_their_leaf_and_change_nothing(
  name, adapted
):
  results = adapted[name]
  assert max(results['differences']) < 2e-5
  assert results['effect'] > 0.1
  # A by fsdp and B by tensor, or the other way round.
  assert results['shares'].keys() == {'qkv', 'gate_up', 'down'}
  assert all(share == [0.5, 0.5] for share in results['shares'].values())


@pytest.mark.slow
def test_eight_devices_give_the_tokens_and_log_probs_of_one():
  results = scripts.found(SCRIPT)
  assert results['same_tokens']
  assert results['same_refilled'] and results['new_programs'] == 0
  assert results['logps'] < 1e-4
  assert results['scores'] < 1e-4
  assert results['share'] == 0.25


def test_a_mesh_that_does_not_divide_the_heads_is_refused():
  shape = {'fsdp': 1, 'tensor': 3}
  mesh = type('M', (), {'shape': shape})()
  with pytest.raises(ValueError, match=r'layers/qkv.*8 cannot be split over'):
    sharding.fit(
      P(None, 'fsdp', 'tensor'), (2, 64, 8, 3, 8), mesh, 'layers/qkv'
    )


def test_a_leaf_without_a_rule_is_named():
  with pytest.raises(KeyError, match='layers/other'):
    sharding.spec_of('layers/other', [(r'layers/qkv', P())])


@pytest.mark.parametrize('text', ['model=2', 'data', 'data=x', 'tensor=0'])
def test_a_mesh_that_cannot_be_read_is_shown(text):
  with pytest.raises(ValueError, match=text):
    mesh_lib.parse(text)


def test_a_mesh_of_other_size_than_the_machine_is_refused():
  with pytest.raises(ValueError, match='takes 64 devices'):
    mesh_lib.make_mesh({'tensor': 64})
  assert mesh_lib.parse('data=2,tensor=4') == {'data': 2, 'tensor': 4}


def test_axes_that_a_mesh_lacks_are_left_out():
  mesh = mesh_lib.make_data_mesh()
  shardings = sharding.fit(P('tensor', 'fsdp'), (7, 5), mesh)
  assert shardings.is_fully_replicated
