"""Saving and loading keep every weight; unfit folders are refused."""

import dataclasses
import fnmatch
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import numpy as st_numpy

from promptrl_jax.models import pretrained, weights
from promptrl_jax.testing import tiny
from tests.golden.torch_file import make as torch_file


def save(folder, seed=0, dtype=None):
  pretrained.save_pretrained(
    folder, tiny.CONFIG, tiny.params(seed=seed), tiny.tokenizer(), dtype
  )
  return folder


@pytest.fixture
def folder(tmp_path):
  return save(tmp_path)


def tensors_of(folder):
  return dict(st_numpy.load_file(folder / weights.WEIGHTS))


def test_what_is_saved_comes_back(folder):
  config, params, tokenizer = pretrained.load_pretrained(folder)
  assert config == tiny.CONFIG
  assert tokenizer.decode(tokenizer.encode(['a + b'])) == ['a + b']
  jax.tree.map(np.testing.assert_array_equal, params, tiny.params())


def test_saving_in_bfloat16_rounds_once(tmp_path):
  save(tmp_path, dtype='bfloat16')
  _, params, _ = pretrained.load_pretrained(tmp_path)
  rounded = jax.tree.map(
    lambda x: x.astype(jnp.bfloat16).astype(jnp.float32), tiny.params()
  )
  jax.tree.map(np.testing.assert_array_equal, params, rounded)
  _, params, _ = pretrained.load_pretrained(tmp_path, dtype=jnp.bfloat16)
  assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {
    np.dtype(jnp.bfloat16)
  }


def test_a_checkpoint_in_several_files_is_the_same_model(tmp_path):
  of = pretrained.family('llama')
  save(tmp_path)
  table = of.table(tiny.CONFIG)
  weights.save_tree(tmp_path, tiny.params(), table, shard_bytes=20_000)
  (tmp_path / weights.WEIGHTS).unlink()
  assert len(list(tmp_path.glob('model-*-of-*.safetensors'))) > 2
  _, params, _ = pretrained.load_pretrained(tmp_path)
  jax.tree.map(np.testing.assert_array_equal, params, tiny.params())


def test_names_and_shapes_are_those_of_hugging_face(folder):
  shapes = {name: t.shape for name, t in tensors_of(folder).items()}
  assert len(shapes) == 2 + 9 * tiny.CONFIG.num_layers
  assert shapes['model.layers.1.self_attn.k_proj.weight'] == (16, 32)
  assert shapes['model.layers.0.mlp.down_proj.weight'] == (32, 48)


@pytest.mark.parametrize('change', ['missing', 'unused', 'shape'])
def test_weights_that_do_not_fit_are_named(folder, change):
  tensors = tensors_of(folder)
  name = 'model.layers.0.mlp.up_proj.weight'
  if change == 'missing':
    del tensors[name]
  elif change == 'unused':
    name = 'model.layers.9.mlp.up_proj.weight'
    tensors[name] = np.zeros(1, np.float32)
  else:
    tensors[name] = np.ascontiguousarray(tensors[name].T)
  st_numpy.save_file(tensors, folder / weights.WEIGHTS)
  with pytest.raises(ValueError, match=name.replace('.', r'\.')):
    pretrained.load_pretrained(folder)


def test_a_truncated_file_is_named(folder):
  path = folder / weights.WEIGHTS
  path.write_bytes(path.read_bytes()[:-100])
  with pytest.raises(ValueError, match=f'{weights.WEIGHTS} cannot be read'):
    pretrained.load_pretrained(folder)


def test_a_file_that_the_index_names_and_is_not_there_is_named(folder):
  index = {'weight_map': {'model.norm.weight': 'model-00001.safetensors'}}
  (folder / weights.INDEX).write_text(json.dumps(index))
  with pytest.raises(FileNotFoundError, match='model-00001'):
    pretrained.load_pretrained(folder)


@pytest.mark.parametrize(
  ('field', 'value', 'message'),
  [
    ('num_hidden_layers', None, 'lacks num_hidden_layers'),
    ('model_type', 'mamba', "model_type='mamba'"),
    ('hidden_act', 'relu', "hidden_act='relu'"),
    ('rope_scaling', {'rope_type': 'yarn', 'factor': 2.0}, "'yarn'"),
    ('vocab_size', 200, 'tokens, more than the 200'),
  ],
)
def test_a_config_that_cannot_be_met_says_what_and_where(
  folder, field, value, message
):
  path = folder / pretrained.CONFIG
  values = json.loads(path.read_text())
  values[field] = value
  path.write_text(json.dumps(values))
  if field == 'vocab_size':
    tensors = tensors_of(folder)
    name = 'model.embed_tokens.weight'
    tensors[name] = np.ascontiguousarray(tensors[name][:200])
    st_numpy.save_file(tensors, folder / weights.WEIGHTS)
  with pytest.raises(ValueError, match=message) as caught:
    pretrained.load_pretrained(folder)
  assert str(folder) in str(caught.value)


def test_an_empty_folder_is_no_model(tmp_path):
  with pytest.raises(FileNotFoundError, match=r'config\.json'):
    pretrained.load_pretrained(tmp_path)


@pytest.mark.parametrize(
  ('error', 'message'),
  [
    ('OfflineModeIsEnabled', 'give a folder'),
    ('LocalEntryNotFoundError', 'was not fetched before'),
    ('GatedRepoError', 'its licence has to be accepted.* HF_TOKEN'),
    ('RepositoryNotFoundError', 'the hub knows no such model'),
    ('RevisionNotFoundError', "has no revision 'v2'"),
  ],
)
def test_a_model_that_cannot_be_fetched_says_what_to_do(
  error, message, monkeypatch
):
  import httpx
  import huggingface_hub
  from huggingface_hub import errors

  kind = getattr(errors, error)
  of_server = issubclass(kind, errors.HfHubHTTPError)
  request = httpx.Request('GET', 'https://hub.example/someone/model')
  response = {'response': httpx.Response(403, request=request)}

  def refuse(*_, **__):
    raise kind('refused', **(response if of_server else {}))

  monkeypatch.setattr(huggingface_hub, 'snapshot_download', refuse)
  with pytest.raises(FileNotFoundError, match=f"'someone/model': .*{message}"):
    pretrained.load_pretrained('someone/model', revision='v2')


@pytest.mark.parametrize('name', ['absent.gguf', 'folder/absent.gguf'])
def test_a_gguf_file_that_is_absent_is_not_looked_for_on_the_hub(name):
  with pytest.raises(FileNotFoundError, match=f"'{name}': no such file; expec"):
    pretrained.find(name)


def test_a_name_that_no_hub_can_have_is_told():
  with pytest.raises(FileNotFoundError, match='no such folder, and the hub'):
    pretrained.load_pretrained('no/such/model')


@pytest.mark.parametrize('has_safetensors', [True, False])
def test_files_of_torch_are_fetched_if_there_is_nothing_else(
  has_safetensors, tmp_path, monkeypatch
):
  import huggingface_hub

  on_the_hub = [weights.WEIGHTS] if has_safetensors else []
  on_the_hub += ['pytorch_model.bin', 'config.json', 'merges.txt']

  def download(source, revision, allow_patterns):
    assert (source, revision) == ('someone/model', 'main')
    for name in on_the_hub:
      if any(fnmatch.fnmatch(name, pattern) for pattern in allow_patterns):
        (tmp_path / name).touch()
    return str(tmp_path)

  monkeypatch.setattr(huggingface_hub, 'snapshot_download', download)
  assert pretrained.find('someone/model', 'main') == tmp_path
  actual = {path.name for path in tmp_path.iterdir()}
  missing = {'pytorch_model.bin'} if has_safetensors else set()
  assert actual == {*on_the_hub} - missing


def test_the_digest_is_of_all_files_that_make_the_model(tmp_path):
  shutil.copy(torch_file.PATH, tmp_path)
  before = pretrained.digest(tmp_path)
  (tmp_path / 'merges.txt').write_text('a b')
  merged = pretrained.digest(tmp_path)
  (tmp_path / 'README.md').write_text('a b')
  assert before != merged == pretrained.digest(tmp_path)
  content = bytearray(torch_file.PATH.read_bytes())
  content[1500] ^= 1
  (tmp_path / torch_file.PATH.name).write_bytes(content)
  assert pretrained.digest(tmp_path) not in (before, merged)


def test_the_same_weights_with_another_tokenizer_are_another_model(tmp_path):
  shutil.copy(torch_file.PATH, tmp_path)
  pretrained.tokenizer_lib.save(tmp_path, tiny.tokenizer())
  before = pretrained.digest(tmp_path)
  path = tmp_path / 'tokenizer.json'
  path.write_text(path.read_text().replace('"Ġa"', '"Ġæ"', 1))
  assert pretrained.digest(tmp_path) != before


def test_the_digest_changes_with_a_weight(folder):
  before = pretrained.digest(folder)
  save(folder, seed=1)
  assert pretrained.digest(folder) != before


def test_every_setting_of_a_config_is_written_and_read():
  of = pretrained.family('llama')
  config = dataclasses.replace(
    tiny.CONFIG,
    eos_token_ids=(2, 5),
    tie_embeddings=False,
    qkv_bias=True,
    out_bias=True,
    mlp_bias=True,
  )
  assert of.from_hf(json.loads(json.dumps(of.to_hf(config)))) == config
