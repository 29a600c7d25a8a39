"""Files of torch.save are read without torch; unsafe ones are refused."""

import json
import os
import pickle
import re
import shutil
import zipfile

import ml_dtypes
import numpy as np
import pytest

from promptrl_jax.models import tensor_files, weights
from promptrl_jax.models.tensor_files import TORCH_INDEX, TORCH_WEIGHTS
from promptrl_jax.models.torch_file import TorchFile
from tests.golden.torch_file import make as golden

EXPECTED = golden.tensors()


def assert_same(actual, expected):
  assert actual.dtype == expected.dtype and actual.shape == expected.shape
  np.testing.assert_array_equal(actual, expected)


def value(x):
  """The opcodes that put `x` on the stack."""
  return pickle.dumps(x, 2)[2:-1]


def tensor(offset=0, shape=(2, 3), strides=(3, 1), size=6, after=b''):
  """The pickle of {'w': a float32 tensor of storage 0}."""
  return (
    b'\x80\x02}'
    + value('w')
    + b'ctorch._utils\n_rebuild_tensor_v2\n(('
    + value('storage')
    + b'ctorch\nFloatStorage\n'
    + value('0')
    + value('cpu')
    + value(size)
    + b'tQ'
    + value(offset)
    + value(shape)
    + value(strides)
    + value(False)
    + value({})
    + b'tR'
    + after
    + b's.'
  )


def write(path, pickled, **entries):
  """An archive as torch writes it; its storage 0 holds the numbers 0 to 5."""
  entries = {
    'data.pkl': pickled,
    'data/0': np.arange(6, dtype=np.float32).tobytes(),
    **entries,
  }
  with zipfile.ZipFile(path, 'w') as archive:
    for name, content in entries.items():
      archive.writestr(f'model/{name}', content)
  return path


@pytest.fixture
def path(tmp_path):
  return tmp_path / TORCH_WEIGHTS


@pytest.mark.parametrize('name', EXPECTED)
def test_a_tensor_of_every_kind_is_what_torch_wrote(name):
  file = TorchFile(golden.PATH)
  assert file.shape(name) == EXPECTED[name].shape
  assert_same(file.read(name), EXPECTED[name])


def test_names_are_those_of_the_file():
  assert TorchFile(golden.PATH).names() == EXPECTED.keys()


def test_what_is_read_is_a_view_of_the_file():
  read = TorchFile(golden.PATH).read('float32')
  assert not read.flags.writeable and not read.flags.owndata


def test_the_writer_of_these_tests_writes_what_is_read(path):
  actual = TorchFile(write(path, tensor())).read('w')
  assert_same(actual, np.arange(6, dtype=np.float32).reshape(2, 3))


def test_several_files_with_an_index_are_one_checkpoint(tmp_path):
  shutil.copy(golden.PATH, tmp_path / 'a.bin')
  write(tmp_path / 'b.bin', tensor())
  files = dict.fromkeys(EXPECTED, 'a.bin') | {'w': 'b.bin'}
  index = tmp_path / TORCH_INDEX
  index.write_text(json.dumps({'weight_map': files}))
  tensors = weights.Tensors(tmp_path)
  assert tensors.names() == files.keys()
  assert tensors.shape('w') == (2, 3)
  assert_same(tensors.read('float16'), EXPECTED['float16'])
  names = [path.name for path in tensor_files.paths(tmp_path)]
  assert names == ['a.bin', 'b.bin']
  index.write_text(json.dumps({'weight_map': files | {'v': 'b.bin'}}))
  with pytest.raises(
    weights.CheckpointError, match=f"'v', which {TORCH_INDEX}"
  ):
    weights.Tensors(tmp_path)
  (tmp_path / 'b.bin').unlink()
  with pytest.raises(FileNotFoundError, match='b.bin is missing'):
    weights.Tensors(tmp_path)


def test_safetensors_come_first(tmp_path):
  write(tmp_path / TORCH_WEIGHTS, tensor())
  assert not tensor_files.has_safetensors(tmp_path)
  assert weights.Tensors(tmp_path).names() == {'w'}
  from safetensors import numpy as st_numpy

  st_numpy.save_file({'v': np.zeros(2)}, tmp_path / weights.WEIGHTS)
  assert tensor_files.has_safetensors(tmp_path)
  assert weights.Tensors(tmp_path).names() == {'v'}


def test_a_folder_without_weights_says_what_is_looked_for(tmp_path):
  with pytest.raises(FileNotFoundError, match=TORCH_WEIGHTS):
    weights.Tensors(tmp_path)


class MakesFolder:
  """Makes a folder when it is unpickled by a reader that trusts it."""

  def __init__(self, path):
    self.path = path

  def __reduce__(self):
    return os.mkdir, (str(self.path),)


def test_a_pickle_that_would_run_something_is_refused(path, tmp_path):
  proof = tmp_path / 'proof'
  pickled = pickle.dumps({'w': MakesFolder(proof)}, 2)
  with pytest.raises(weights.CheckpointError, match='asks for posix.mkdir'):
    TorchFile(write(path, pickled))
  assert not proof.exists()
  pickle.loads(pickled)
  assert proof.exists()


@pytest.mark.parametrize(
  'name',
  [
    b'os\nsystem',
    b'builtins\neval',
    b'torch\nload',
    b'torch\nComplexFloatStorage',
    b'torch._utils\n_rebuild_parameter',
    b'collections\nCounter',
    b'collections\nOrderedDict.fromkeys',
  ],
)
def test_every_other_global_is_refused_and_named(path, name):
  pickled = b'\x80\x02c' + name + b'\n' + value(('true',)) + b'R.'
  global_name = re.escape(name.decode().replace('\n', '.'))
  with pytest.raises(
    weights.CheckpointError, match=f'asks for {global_name}, which'
  ):
    TorchFile(write(path, pickled))


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'offset': 1}, 'w reaches to element 6 of a storage of 6'),
    ({'strides': (3, 2)}, 'w reaches to element 7'),
    ({'strides': (-3, 1)}, '-3 stands where a size'),
    ({'offset': -1}, '-1 stands where a size'),
    ({'shape': (2, 'x')}, "'x' stands where a size"),
    ({'shape': (2, 3, 4)}, 'a tensor of '),
    ({'size': 7}, 'w needs 28 bytes of data/0'),
    # Fields that are set once the tensor was found to be in order.
    ({'after': value({'strides': (-3, 1)}) + b'b'}, 'data.pkl cannot'),
    (
      {'after': value((None, {'offset': -9})) + b'b'},
      'data.pkl cannot be read',
    ),
  ],
)
def test_a_tensor_that_reaches_beyond_its_storage_is_refused(
  path, changes, message
):
  with pytest.raises(weights.CheckpointError, match=message):
    TorchFile(write(path, tensor(**changes)))


def test_a_dictionary_that_hides_its_items_is_seen_through(path):
  ordered = b'ccollections\nOrderedDict\n'
  # OrderedDict(), one tensor in it, and then `items` is OrderedDict itself.
  pickled = tensor(offset=1).replace(b'}', ordered + b')R', 1)[:-1]
  pickled += b'}' + value('items') + ordered + b'sb.'
  with pytest.raises(weights.CheckpointError, match='w reaches to element 6'):
    TorchFile(write(path, pickled))


@pytest.mark.parametrize(
  ('content', 'message'),
  [
    ([1, 2], 'holds a list: expected tensors'),
    ({'epoch': 3}, "has a int under 'epoch'"),
    ({'state_dict': {}}, "has a dict under 'state_dict'"),
  ],
)
def test_other_content_is_named(path, content, message):
  with pytest.raises(weights.CheckpointError, match=message):
    TorchFile(write(path, pickle.dumps(content, 2)))


def test_bytes_that_are_no_pickle_are_told(path):
  with pytest.raises(weights.CheckpointError, match='data.pkl cannot be read'):
    TorchFile(write(path, b'\x80\x02}]'))


@pytest.mark.parametrize('kept', [0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_refused(path, kept):
  content = golden.PATH.read_bytes()
  path.write_bytes(content[: int(kept * len(content))])
  with pytest.raises(weights.CheckpointError, match='truncated'):
    TorchFile(path)


def test_a_file_of_an_older_torch_says_how_to_convert_it(path):
  path.write_bytes(
    pickle.dumps(0x1950A86A20F9469CFC6C, 2) + b'\x80\x02M\xe9\x03.'
  )
  with pytest.raises(
    weights.CheckpointError, match='before 1.6.*safetensors.torch.save_file'
  ):
    TorchFile(path)


def test_a_pointer_instead_of_a_file_is_shown(path):
  path.write_bytes(b'version https://git-lfs.github.com/spec/v1\noid')
  with pytest.raises(weights.CheckpointError, match='version https.*pointer'):
    TorchFile(path)


def test_bytes_of_the_other_order_are_refused(path):
  with pytest.raises(weights.CheckpointError, match="b'big': expected little"):
    TorchFile(write(path, tensor(), byteorder=b'big'))


def test_bfloat16_is_a_type_of_numpy():
  assert TorchFile(golden.PATH).read('bfloat16').dtype == ml_dtypes.bfloat16
