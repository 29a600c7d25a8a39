"""A model that is split over eight devices answers as it does on one."""

import pytest

from tests import scripts

SCRIPT = """
import dataclasses, json, pathlib, sys
import jax
jax.config.update('jax_num_cpu_devices', 8)
from promptrl_jax.llm.backend import Message, Request
from promptrl_jax.llm.jax_lm import JaxLM
from promptrl_jax.llm.load import BackendConfig, load_backend
from promptrl_jax.models import pretrained
from promptrl_jax.parallel import mesh as mesh_lib
from promptrl_jax.sampling import EngineConfig
from promptrl_jax.testing import tiny, tiny_encoder_decoder

folder = pathlib.Path(sys.argv[1])
t5 = dataclasses.replace(
  tiny_encoder_decoder.CONFIG, num_heads=4, vocab_size=300)
tokenizer = tiny.tokenizer()
ends = dataclasses.replace(tokenizer, end=(2,))
models = {
  'llama': (tiny.CONFIG, tiny.params(), tokenizer),
  't5': (t5, tiny_encoder_decoder.params(t5), ends),
}
settings = EngineConfig(3, (16, 48), 8)
requests = [
  Request((Message('user', 'add ' * (i % 4 + 1)),), temperature=t, seed=i,
          max_tokens=8, top_p=p)
  for i, (t, p) in enumerate([(0.0, 1.0), (0.9, 1.0), (0.9, 0.9)] * 3)
]
found = {'errors': {}}
for name, (config, params, tokenizer) in models.items():
  pretrained.save_pretrained(folder / name, config, params, tokenizer)
  answers = []
  for mesh in (mesh_lib.make_data_mesh(1),
               mesh_lib.from_text('data=2,fsdp=2,tensor=2')):
    model = JaxLM.from_folder(folder / name, mesh, shapes=settings)
    answers.append([c.text for c in model.complete(requests)])
  leaves = jax.tree.leaves(model._sampler._engine._params)
  here = sum(leaf.addressable_shards[0].data.size for leaf in leaves)
  found[name] = {
    'answers': answers,
    'share': here / sum(leaf.size for leaf in leaves),
  }
  try:
    mesh = mesh_lib.from_text('tensor=4' if name == 'llama' else 'tensor=8')
    load_backend(BackendConfig('jax', str(folder / name)), mesh)
  except ValueError as error:
    found['errors'][name] = str(error)
print(json.dumps(found))
"""

# A process of eight devices that shares the parameters of two models.
pytestmark = pytest.mark.slow


@pytest.fixture(scope='module')
def found(tmp_path_factory):
  folder = tmp_path_factory.mktemp('models')
  return scripts.found(SCRIPT, folder, timeout=600)


@pytest.mark.parametrize('name', ['llama', 't5'])
def test_a_mesh_gives_the_completions_of_one_device(found, name):
  alone, together = found[name]['answers']
  assert alone == together
  assert len(set(alone)) > 3


@pytest.mark.parametrize('name', ['llama', 't5'])
def test_each_device_holds_its_part_alone(found, name):
  # Matrices are split over fsdp and tensor; norms are not.
  assert 0.25 <= found[name]['share'] < 0.3


@pytest.mark.parametrize(
  ('name', 'message'),
  [
    (
      'llama',
      'layers/qkv of shape (2, 32, 2, 4, 8): 2 cannot be split over the 4 '
      'devices of tensor; choose a mesh whose axes divide it',
    ),
    (
      't5',
      'decoder/cross_kv of shape (2, 24, 4, 2, 6): 4 cannot be split over the '
      '8 devices of tensor; choose a mesh whose axes divide it',
    ),
  ],
)
def test_a_mesh_that_does_not_divide_the_heads_is_told(found, name, message):
  assert found['errors'][name] == message
