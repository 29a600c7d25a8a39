"""Tensors of T5 checkpoints, our leaves for them, and their sharding."""

from __future__ import annotations

from collections.abc import Iterator

from jax.sharding import PartitionSpec as P

from promptrl_jax.models import weights
from promptrl_jax.models.encoder_decoder_config import EncoderDecoderConfig

HEAD = 'lm_head.weight'
EMBEDDING = 'shared.weight'

PARTITION: tuple[tuple[str, P], ...] = (
  (r'embedding', P('tensor', 'fsdp')),
  (r'lm_head', P('fsdp', 'tensor')),
  (r'(encoder|decoder)/(qkv|cross_query|cross_kv)', P(None, 'fsdp', 'tensor')),
  (r'(encoder|decoder)/gate_up', P(None, 'fsdp', None, 'tensor')),
  (r'(encoder|decoder)/(out|cross_out|down)', P(None, 'tensor', 'fsdp')),
  (r'.*(norm|bias)', P()),
)

_DUPLICATES = r'(encoder|decoder)\.embed_tokens\.weight'
# The first T5 checkpoints hold this bias, which cross-attention does not use.
_UNUSED = r'decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_.*'


def table(config: EncoderDecoderConfig) -> weights.Table:
  """Returns the table of `T5ForConditionalGeneration` checkpoints.

  Copies of tied matrices are optional: older files hold the embedding up to
  four times.
  """
  rules = [
    weights.Rule(EMBEDDING, 'embedding'),
    *_stack('encoder', config),
    *_stack('decoder', config),
  ]
  ignored = (_DUPLICATES, _UNUSED)
  if config.tie_embeddings:
    ignored += (HEAD.replace('.', r'\.'),)
  else:
    rules.append(weights.linear(HEAD, 'lm_head'))
  return weights.Table(tuple(rules), ignored=ignored)


def _stack(side: str, config: EncoderDecoderConfig) -> Iterator[weights.Rule]:
  """Yields the rules of the encoder or the decoder."""
  bias = 'layer.0.SelfAttention.relative_attention_bias.weight'
  yield weights.Rule(f'{side}.block.0.{bias}', f'{side}_bias')
  yield weights.Rule(f'{side}.final_layer_norm.weight', f'{side}_norm')
  block = side + '.block.{layer}.layer'
  own = f'{block}.0.SelfAttention'
  for i, name in enumerate('qkv'):
    yield _heads(f'{own}.{name}.weight', f'{side}/qkv', i, config)
  yield weights.linear(f'{own}.o.weight', f'{side}/out')
  norms = ['attention_norm', 'mlp_norm']
  if side == 'decoder':
    norms.insert(1, 'cross_norm')
    cross = f'{block}.1.EncDecAttention'
    yield _heads(f'{cross}.q.weight', f'{side}/cross_query', None, config)
    for i, name in enumerate('kv'):
      yield _heads(f'{cross}.{name}.weight', f'{side}/cross_kv', i, config)
    yield weights.linear(f'{cross}.o.weight', f'{side}/cross_out')
  for i, norm in enumerate(norms):
    yield weights.Rule(f'{block}.{i}.layer_norm.weight', f'{side}/{norm}')
  mlp = f'{block}.{len(norms) - 1}.DenseReluDense'
  for i, name in enumerate(('wi_0', 'wi_1') if config.is_gated else ('wi',)):
    index = (None, i)
    yield weights.linear(f'{mlp}.{name}.weight', f'{side}/gate_up', index=index)
  yield weights.linear(f'{mlp}.wo.weight', f'{side}/down')


def _heads(
  name: str, leaf: str, part: int | None, config: EncoderDecoderConfig
) -> weights.Rule:
  """Returns the rule of a projection [Q * H, D], part `part` of its leaf."""
  heads = (config.num_heads, config.head_size)
  return weights.Rule(
    name,
    leaf,
    lambda x: x.T.reshape(-1, *heads),
    lambda x: x.reshape(x.shape[0], -1).T,
    () if part is None else (None, None, part),
  )
