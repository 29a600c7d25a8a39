"""Files and models that the installed torch saves are read."""

import json

import jax
import numpy as np
import pytest

from promptrl_jax.models import pretrained
from promptrl_jax.models.tensor_files import TORCH_INDEX, TORCH_WEIGHTS
from promptrl_jax.models.torch_file import TorchFile
from tests.golden import encoder_decoder
from tests.golden.torch_file import make as golden

torch = pytest.importorskip('torch', reason='parity extra is not installed')


def test_tensors_are_those_that_torch_was_given(tmp_path):
  path = tmp_path / TORCH_WEIGHTS
  torch.save(golden.as_torch(), path)
  file, expected = TorchFile(path), golden.tensors()
  assert file.names() == expected.keys()
  for name, tensor in expected.items():
    np.testing.assert_array_equal(file.read(name), tensor, err_msg=name)
    assert file.read(name).dtype == tensor.dtype


def test_the_older_format_is_refused_with_what_to_do(tmp_path):
  path = tmp_path / TORCH_WEIGHTS
  torch.save(golden.as_torch(), path, _use_new_zipfile_serialization=False)
  with pytest.raises(ValueError, match='before 1.6'):
    TorchFile(path)


@pytest.mark.parametrize('count', [1, 3])
def test_a_tied_model_in_half_precision_is_the_same_model(count, tmp_path):
  reference = encoder_decoder.reference('codet5p')
  theirs, ours = tmp_path / 'safetensors', tmp_path / 'torch'
  reference.save_pretrained(theirs)
  reference.config.save_pretrained(ours)
  state = reference.half().state_dict()  # An OrderedDict with metadata.
  assert 'lm_head.weight' in state and hasattr(state, '_metadata')
  if count == 1:
    torch.save(state, ours / TORCH_WEIGHTS)
  else:
    files = {}
    for i in range(count):
      part = dict(list(state.items())[i::count])
      torch.save(part, ours / f'pytorch_model-{i}.bin')
      files |= dict.fromkeys(part, f'pytorch_model-{i}.bin')
    text = json.dumps({'weight_map': files})
    (ours / TORCH_INDEX).write_text(text)
  config, params = pretrained.load_model(ours)
  expected = pretrained.load_model(theirs)
  assert config == expected[0] and config.tie_embeddings
  jax.tree.map(np.testing.assert_array_equal, params, expected[1])
