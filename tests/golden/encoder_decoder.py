"""Tiny random encoder-decoders by transformers, and what they answer.

  python -m tests.golden.encoder_decoder   writes encoder_decoder/* beside it

Each folder holds a checkpoint that transformers has saved and, for `prompts`,
its log-probs, its greedy text and the results of its beam search.
"""

from __future__ import annotations

import pathlib

import numpy as np

NEW, BEAM_NEW = 64, 20
FOLDER = pathlib.Path(__file__).parent / 'encoder_decoder'
_SHAPE = {
  'vocab_size': 96,
  'd_model': 24,
  'd_kv': 6,  # Not d_model / num_heads, as in T5 3B.
  'd_ff': 40,
  'num_layers': 3,
  'num_decoder_layers': 2,
  'num_heads': 3,
  'relative_attention_num_buckets': 8,
  'relative_attention_max_distance': 20,
  'decoder_start_token_id': 0,
  'pad_token_id': 0,
}
# name: settings beside the shape
CASES = {
  'codet5p': {'feed_forward_proj': 'relu', 'eos_token_id': 2},
  'flan_t5': {
    'feed_forward_proj': 'gated-gelu',
    'eos_token_id': 1,
    'tie_word_embeddings': False,
  },
}
_FACTORS = {
  'shared.weight': 0.5,
  'lm_head.weight': 0.12,
  'decoder.final_layer_norm.weight': 4.0,
}
# Width, length penalty, and how many stop tokens `stop_tokens` gives.
BEAMS = ((3, 1.0, 1), (4, -0.5, 2))


def reference(name: str):
  """The model, in float32; weights large enough for peaked distributions."""
  import torch
  import transformers

  config = transformers.T5Config(**_SHAPE, **CASES[name])
  torch.manual_seed(0)
  model = transformers.T5ForConditionalGeneration(config).float().eval()
  if not config.scale_decoder_outputs:  # transformers 5 ties them at first.
    head = torch.randn(_SHAPE['vocab_size'], _SHAPE['d_model'])
    model.lm_head.weight = torch.nn.Parameter(head)
  with torch.no_grad():
    for key, tensor in model.named_parameters():
      if tensor.ndim == 1:  # Norms that are not ones.
        tensor.add_(0.2 * torch.randn_like(tensor))
      # A token must not just predict itself, as a tied embedding would.
      # Queries, keys and position tables stay small: sharp attention amplifies
      # the rounding error of float32.
      tensor.mul_(_FACTORS.get(key, 1.0 if key[-8] in 'qkt' else 1.5))
      tensor.copy_(tensor.half())  # So that half the bytes hold all of it.
  return model


def prompts() -> tuple[np.ndarray, np.ndarray]:
  """Tokens [4, 30], padded on the left, on the right or not, and their mask."""
  rng = np.random.default_rng(0)
  places = np.arange(30)
  mask = np.stack([places >= 0, places >= 22, places < 13, places < 1])
  tokens = np.where(mask, rng.integers(3, _SHAPE['vocab_size'], mask.shape), 0)
  return tokens.astype(np.int32), mask


def decoder_tokens() -> np.ndarray:
  """What the decoder reads for the log-probs, [4, 25]."""
  tokens = np.random.default_rng(1).integers(3, _SHAPE['vocab_size'], (4, 25))
  tokens[:, 0] = _SHAPE['decoder_start_token_id']
  return tokens.astype(np.int32)


def stop_tokens(greedy: np.ndarray, count: int) -> tuple[int, ...]:
  """Tokens that occur in greedy texts: beams end early, and not all."""
  return tuple(int(token) for token in greedy[:count, 6])


def log_probs(model, tokens: np.ndarray, mask: np.ndarray) -> np.ndarray:
  """Log-probs [B, T, V] after each of `decoder_tokens`."""
  import torch

  with torch.no_grad():
    logits = model(
      input_ids=_long(tokens),
      attention_mask=_long(mask),
      decoder_input_ids=_long(decoder_tokens()[: len(tokens)]),
    ).logits
  return torch.log_softmax(logits.float(), -1).numpy()


def greedy(
  model, tokens: np.ndarray, mask: np.ndarray, count: int = NEW
) -> np.ndarray:
  """The likeliest answer of `count` tokens, [B, count]."""
  out = model.generate(
    input_ids=_long(tokens),
    attention_mask=_long(mask),
    max_new_tokens=count,
    do_sample=False,
    eos_token_id=_nothing(model),
  )
  return out[:, 1:].numpy()


def beams(
  model,
  tokens: np.ndarray,
  mask: np.ndarray,
  width: int,
  length_penalty: float,
  stops: tuple[int, ...],
) -> tuple[np.ndarray, np.ndarray]:
  """Answers [B, BEAM_NEW] of beam search, padded with 0, and scores [B]."""
  out = model.generate(
    input_ids=_long(tokens),
    attention_mask=_long(mask),
    max_new_tokens=BEAM_NEW,
    do_sample=False,
    num_beams=width,
    length_penalty=length_penalty,
    early_stopping=True,
    eos_token_id=[*stops] or _nothing(model),
    return_dict_in_generate=True,
    output_scores=True,
  )
  answers = np.zeros((len(tokens), BEAM_NEW), np.int32)
  answers[:, : out.sequences.shape[1] - 1] = out.sequences[:, 1:].numpy()
  # transformers pads with a stop token where the pad token is 0.
  ended = np.isin(answers, stops)
  answers[np.cumsum(ended, axis=-1) - ended > 0] = 0
  return answers, out.sequences_scores.numpy()


def _nothing(model) -> int:
  """A token that never comes: `None` would mean the config's."""
  return model.config.vocab_size


def _long(x: np.ndarray):
  import torch

  return torch.tensor(x, dtype=torch.long)


def main() -> None:
  for name in CASES:
    model, folder = reference(name), FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    tokens, mask = prompts()
    expected = {
      'log_probs': log_probs(model, tokens, mask),
      'greedy': greedy(model, tokens, mask).astype(np.int16),
    }
    for i, (width, length_penalty, count) in enumerate(BEAMS):
      stops = stop_tokens(expected['greedy'], count)
      answers, scores = beams(model, tokens, mask, width, length_penalty, stops)
      expected[f'beams_{i}'] = answers.astype(np.int16)
      expected[f'scores_{i}'] = scores
    np.savez_compressed(folder / 'expected.npz', **expected)
    model.half().save_pretrained(folder)  # Last: it rounds buffers, too.
    (folder / 'generation_config.json').unlink(missing_ok=True)


if __name__ == '__main__':
  main()
