"""Writes small GGUF files as llama.cpp's converter writes them."""

import json
import math

import gguf
import numpy as np
from safetensors import numpy as st_numpy

from promptrl_jax.models import tokenizer as tokenizer_lib

ARCHITECTURES = {
  'codellama': 'llama',
  'deepseek_coder': 'llama',
  'llama_biases': 'llama',
  'mistral': 'mistral',
  'qwen2': 'qwen2',
  'qwen3': 'qwen3',
  'gemma3': 'gemma3',
}


def write(path, architecture='llama', tensors=(), **fields):
  """Writes a file; a tensor is an array, or (bytes of its rows, type).

  A field that is None is left out.
  """
  writer = gguf.GGUFWriter(path, architecture)
  for name, value in fields.items():
    name = name.replace('__', '.')
    if value is None:
      continue
    if isinstance(value, bool):
      writer.add_bool(name, value)
    elif isinstance(value, int):
      writer.add_uint32(name, value)
    elif isinstance(value, float):
      writer.add_float32(name, value)
    elif isinstance(value, str):
      writer.add_string(name, value)
    else:
      writer.add_array(name, value)
  for name, value in dict(tensors).items():
    data, kind = value if isinstance(value, tuple) else (value, None)
    writer.add_tensor(name, data, raw_dtype=kind)
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()
  return path


def rotated(weight, heads):
  """Weights or biases of queries or keys as llama.cpp has them for Llama."""
  halves = weight.reshape(heads, 2, -1, *weight.shape[1:])
  return halves.swapaxes(1, 2).reshape(weight.shape)


def convert(folder, path, without=(), **more):
  """Writes a checkpoint of transformers as a file, as the converter does.

  Tensors whose name in the file ends with one of `without` are left out.
  """
  values = json.loads((folder / 'config.json').read_text())
  name = ARCHITECTURES[folder.name]
  known = 'LLAMA' if name == 'mistral' else name.upper()
  names = gguf.get_tensor_name_map(
    gguf.MODEL_ARCH[known], values['num_hidden_layers']
  )
  tensors = {}
  for theirs, tensor in st_numpy.load_file(
    folder / 'model.safetensors'
  ).items():
    tensor = tensor.astype(np.float32)
    ours = names.get_name(theirs, ('.weight', '.bias'))
    if name in ('llama', 'mistral') and '.attn_q.' in ours:
      tensor = rotated(tensor, values['num_attention_heads'])
    if name in ('llama', 'mistral') and '.attn_k.' in ours:
      tensor = rotated(tensor, values['num_key_value_heads'])
    if name == 'gemma3' and theirs.endswith('norm.weight'):
      tensor = tensor + 1
    if name == 'gemma3' and '.attn_q_norm.' in ours:
      # A file has no other scale of queries than that of the head size.
      scalar = values['query_pre_attn_scalar']
      tensor = tensor * math.sqrt(values['head_dim'] / scalar)
    if not ours.endswith(tuple(without)):
      tensors[ours] = tensor
  rope = values['rope_parameters']
  rope = rope.get('full_attention', rope)
  fields = {
    'embedding_length': values['hidden_size'],
    'block_count': values['num_hidden_layers'],
    'attention__head_count': values['num_attention_heads'],
    'attention__head_count_kv': values['num_key_value_heads'],
    'feed_forward_length': values['intermediate_size'],
    'context_length': values['max_position_embeddings'],
    'attention__layer_norm_rms_epsilon': values['rms_norm_eps'],
    'rope__freq_base': rope['rope_theta'],
  }
  if rope['rope_type'] != 'default':
    fields['rope__scaling__type'] = rope['rope_type']
    fields['rope__scaling__factor'] = rope['factor']
  if values.get('head_dim'):
    fields['attention__key_length'] = values['head_dim']
  if values.get('sliding_window'):
    fields['attention__sliding_window'] = values['sliding_window']
  fields = {f'{name}__{key}': value for key, value in fields.items()}
  fields |= {
    'tokenizer__ggml__bos_token_id': values['bos_token_id'],
    'tokenizer__ggml__padding_token_id': values['pad_token_id'],
  }
  return write(path, name, tensors, **(fields | more))


BYTES = list(tokenizer_lib.pre_tokenizers.ByteLevel.alphabet())


def byte_level(pre, merges=('a b', 'Ġ 1', '1 2'), **more):
  tokens = ['<|start|>', '<|end|>', '<tool>', *sorted(BYTES)]
  tokens += [merge.replace(' ', '') for merge in merges]
  fields = {
    'model': 'gpt2',
    'pre': pre,
    'tokens': tokens,
    'token_type': [3, 3, 4] + [1] * (len(tokens) - 3),
    'merges': list(merges),
    'bos_token_id': 0,
    'eos_token_id': 1,
  } | more
  return {f'tokenizer__ggml__{key}': value for key, value in fields.items()}


def sentence_piece(**more):
  pieces = {
    '<unk>': (2, 0.0),
    '<s>': (3, 0.0),
    '</s>': (3, 0.0),
    **{f'<0x{i:02X}>': (6, 0.0) for i in range(256)},
    '▁': (1, -10.0),
    'a': (1, -11.0),
    'b': (1, -12.0),
    'c': (1, -13.0),
    'ab': (1, -5.0),
    'bc': (1, -4.0),
    '▁a': (1, -6.0),
  }
  fields = {
    'model': 'llama',
    'tokens': list(pieces),
    'token_type': [kind for kind, _ in pieces.values()],
    'scores': [score for _, score in pieces.values()],
    'bos_token_id': 1,
    'eos_token_id': 2,
    'unknown_token_id': 0,
  } | more
  return {f'tokenizer__ggml__{key}': value for key, value in fields.items()}


def encoded(values, kind):
  """Rows in a type; random ones in Q4_K and Q6_K, which `gguf` only reads."""
  if not kind.name.endswith('_K'):
    return gguf.quants.quantize(values, kind)
  block, size = gguf.GGML_QUANT_SIZES[kind]
  rng = np.random.default_rng(values.size)
  data = rng.integers(0, 256, (values.size // block, size), dtype=np.uint8)
  # Two halves in front scale Q4_K, one at the end Q6_K.
  place = slice(0, 4) if kind.name == 'Q4_K' else slice(-2, None)
  halves = np.full((len(data), 2), 2e-4, np.float16).view(np.uint8)
  data[:, place] = halves[:, place]
  return data.reshape(len(values), -1)


def quantized(path, kinds, other='Q4_1', scale=1):
  """A small Llama with random weights.

  `kinds` are the types of some tensors by their part of the name, `other` is
  that of the rest. Rows have a multiple of 32 * `scale` weights.
  """
  rng = np.random.default_rng(0)
  heads, size, width, hidden = 4, 16 * scale, 64 * scale, 96 * scale
  shapes = {
    'attn_q': (heads * size, width),
    'attn_k': (2 * size, width),
    'attn_v': (2 * size, width),
    'attn_output': (width, heads * size),
    'ffn_gate': (hidden, width),
    'ffn_up': (hidden, width),
    'ffn_down': (width, hidden),
  }
  tensors = {'token_embd.weight': (64, width), 'output_norm.weight': (width,)}
  for layer in range(2):
    for name, shape in shapes.items():
      tensors[f'blk.{layer}.{name}.weight'] = shape
    for norm in ('attn_norm', 'ffn_norm'):
      tensors[f'blk.{layer}.{norm}.weight'] = (width,)
  for name, shape in tensors.items():
    values = rng.normal(scale=0.3, size=shape).astype(np.float32)
    if len(shape) == 1:
      tensors[name] = values
      continue
    kind = gguf.GGMLQuantizationType[kinds.get(name.split('.')[-2], other)]
    tensors[name] = encoded(values, kind), kind
  fields = {
    'embedding_length': width,
    'block_count': 2,
    'attention__head_count': heads,
    'attention__head_count_kv': 2,
    'feed_forward_length': hidden,
    'context_length': 128,
    'attention__layer_norm_rms_epsilon': 1e-5,
  }
  fields = {f'llama__{key}': value for key, value in fields.items()}
  fields |= byte_level('smollm')
  fields['tokenizer__ggml__tokens'] = fields['tokenizer__ggml__tokens'][:64]
  return write(path, 'llama', tensors, **fields)
