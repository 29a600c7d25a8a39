"""The main job walks whole with models that transformers has saved."""

import json

import pytest

from promptrl_jax.llm.load import ASSETS
from tests.experiments.mbpp_ppo_test import run

pytest.importorskip('torch', reason='parity extra is not installed')

SHAPES = {
  'llama': {
    'hidden_size': 64,
    'intermediate_size': 128,
    'num_hidden_layers': 2,
    'num_attention_heads': 4,
    'num_key_value_heads': 2,
    'max_position_embeddings': 1024,
  },
  'codet5p': {
    'd_model': 64,
    'd_kv': 16,
    'd_ff': 128,
    'num_layers': 2,
    'num_heads': 4,
    'decoder_start_token_id': 0,
  },
}


def save(name, folder):
  import transformers

  tokenizer = transformers.PreTrainedTokenizerFast(
    tokenizer_file=str(ASSETS / 'minicode_coder' / 'tokenizer.json'),
    eos_token='<eos>',
    pad_token='<pad>',
  )
  tokens = {
    'vocab_size': len(tokenizer),
    'eos_token_id': tokenizer.eos_token_id,
    'pad_token_id': tokenizer.pad_token_id,
  }
  if name == 'llama':
    config = transformers.LlamaConfig(**SHAPES[name], **tokens)
    model = transformers.LlamaForCausalLM(config)
  else:
    config = transformers.T5Config(**SHAPES[name], **tokens)
    model = transformers.T5ForConditionalGeneration(config)
  model.save_pretrained(folder)
  tokenizer.save_pretrained(folder)


@pytest.mark.parametrize('name', SHAPES)
def test_the_walk_is_whole(name, tmp_path):
  model, workdir = tmp_path / name, tmp_path / 'run'
  save(name, model)
  done = run(
    workdir,
    f'--config.coder.model={model}',
    f'--config.rewriter.model={model}',
  )
  assert done.returncode == 0, done.stderr
  results = json.loads((workdir / 'results.json').read_text())
  hashes = results['header']['model_hashes']
  assert [hashes[who].split('@')[0] for who in hashes] == [name, name]
  trace = (workdir / 'trace.jsonl').read_text().splitlines()
  assert trace and all(json.loads(line) for line in trace)
