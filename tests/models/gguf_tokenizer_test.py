"""The tokenizer that a GGUF file describes."""

import functools

import pytest
import transformers

from promptrl_jax.models import tokenizer as tokenizer_lib
from promptrl_jax.models.gguf_tokenizer import PRE_TOKENIZERS
from promptrl_jax.models.torch_file import CheckpointError
from tests.models.gguf_files import byte_level, sentence_piece, write

MERGES = 'tokenizer__ggml__merges'


@pytest.fixture
def path(tmp_path):
  return tmp_path / 'model.gguf'


@pytest.mark.parametrize('pre', PRE_TOKENIZERS)
def test_byte_level_texts_come_back(pre, path):
  tokenizer = tokenizer_lib.load(write(path, **byte_level(pre)))
  text = 'ab 12\n\n  it\'s ünï<tool>\t"x"\r\n'
  (ids,) = tokenizer.encode([text])
  assert tokenizer.decode([ids]) == [text]
  assert tokenizer.backend.token_to_id('<tool>') in ids
  (ids,) = tokenizer.encode(['<|start|>ab<|end|>'])
  assert (ids[0], ids[-1], len(ids)) == (0, 1, 3)
  assert tokenizer.decode([ids]) == ['ab']  # Special tokens are left out.
  assert tokenizer.eos_ids == (1,)


@pytest.mark.parametrize(
  ('pre', 'expected'),
  [('gpt-2', ['Ġ1', '2']), ('smollm', ['Ġ', '1', '2']), ('qwen2', None)],
)
def test_digits_are_split_as_the_vocabulary_was_made(pre, expected, path):
  tokenizer = tokenizer_lib.load(write(path, **byte_level(pre)))
  tokens = tokenizer.backend.encode(' 12', add_special_tokens=False).tokens
  assert tokens == (expected or ['Ġ', '1', '2'])


@pytest.mark.parametrize('pre', ['qwen2', 'gpt-2'])
def test_accents_are_composed_as_the_vocabulary_was_made(pre, path):
  tokenizer = tokenizer_lib.load(write(path, **byte_level(pre)))
  one, two = tokenizer.encode(['\u00fc', 'u\u0308'])
  assert (one == two) == (pre == 'qwen2')


def test_sentence_piece_merges_by_score_and_falls_back_to_bytes(path):
  tokenizer = tokenizer_lib.load(write(path, **sentence_piece()))
  encode = lambda text: (
    tokenizer.backend.encode(text, add_special_tokens=False).tokens
  )
  assert encode('abc') == ['▁a', 'bc']  # 'bc' has the best score.
  assert encode('é') == ['▁', '<0xC3>', '<0xA9>']
  for text in ('abc a\n b', '  é'):
    assert tokenizer.decode(tokenizer.encode([text])) == [text]
  assert (tokenizer.start, tokenizer.end) == ((1,), ())


def test_a_prefix_space_is_added_unless_the_file_says_no(path):
  fields = sentence_piece(add_space_prefix=False, add_bos_token=False)
  tokenizer = tokenizer_lib.load(write(path, **fields))
  assert tokenizer.backend.encode('abc', add_special_tokens=False).tokens == [
    'a',
    'bc',
  ]
  assert tokenizer.start == ()


def test_gemma_merges_in_the_order_of_its_tokens(path):
  fields = sentence_piece(add_space_prefix=False)
  tokenizer = tokenizer_lib.load(write(path, 'gemma3', **fields))
  assert tokenizer.backend.encode('abc', add_special_tokens=False).tokens == [
    'ab',
    'c',
  ]


def test_a_chat_is_rendered_by_the_template_of_the_file(path):
  template = (
    "{{ bos_token }}{% for m in messages %}[{{ m['content'] }}]{% endfor %}"
  )
  fields = byte_level('gpt-2') | {'tokenizer__chat_template': template}
  tokenizer = tokenizer_lib.load(write(path, **fields))
  ids = tokenizer.render([('user', 'ab')])
  assert tokenizer.backend.decode(ids, skip_special_tokens=False) == (
    '<|start|>[ab]'
  )


@pytest.mark.parametrize(
  'special',
  [
    None,
    ('<pad>', '<bos>', '<eos>'),  # those of our own tokenizers
    ('<|pad:0|>', '<|a:1|>', '$B'),  # signs that a template reads
  ],
)
@pytest.mark.parametrize('adds_bos', [None, True, False])
@pytest.mark.parametrize(
  ('fields', 'ids'),
  [
    (sentence_piece, (0, 1, 2)),
    (functools.partial(byte_level, 'llama-bpe'), (2, 0, 1)),
  ],
)
def test_a_saved_tokenizer_starts_texts_as_before(
  fields, ids, adds_bos, special, path, tmp_path
):
  values = fields(add_bos_token=adds_bos, padding_token_id=ids[0])
  for i, token in zip(ids, special or (), strict=False):
    values['tokenizer__ggml__tokens'][i] = token
  before = tokenizer_lib.load(write(path, **values))
  tokenizer_lib.save(tmp_path, before)
  after = tokenizer_lib.load(tmp_path)
  assert (after.start, after.end) == (before.start, before.end)
  assert bool(after.start) == (adds_bos is not False)
  theirs = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
  expected = before.render([('text', 'ab 12')])
  assert after.render([('text', 'ab 12')]) == expected
  assert theirs('ab 12').input_ids == expected


TURNS = {'tokenizer__chat_template': "{{ messages[0]['content'] }}<|im_end|>"}


@pytest.mark.parametrize(
  ('kind', 'more', 'expected'),
  [
    (3, TURNS, (1, 2)),
    (4, TURNS, (1, 2)),
    (3, TURNS | {'tokenizer__ggml__eos_token_id': None}, (2,)),
    (1, TURNS, (1,)),  # A word of the vocabulary that looks like one.
    (3, {}, (1,)),  # Without a template there are no turns.
    (3, {'tokenizer__ggml__eos_token_ids': [0, 1, -1, 9999]}, (1, 0)),
  ],
)
def test_all_tokens_that_end_a_turn_are_found(kind, more, expected, path):
  fields = byte_level('gpt-2')
  fields['tokenizer__ggml__tokens'][2] = '<|im_end|>'
  fields['tokenizer__ggml__token_type'][2] = kind
  write(path, **(fields | more))
  assert tokenizer_lib.load(path).eos_ids == expected


@pytest.mark.parametrize(
  ('fields', 'message'),
  [
    (byte_level('falcon'), "rules 'falcon'.*smollm"),
    (byte_level('gpt-2') | {MERGES: None}, 'lacks tokenizer.ggml.merges'),
    (byte_level('gpt-2') | {MERGES: ['a']}, 'ggml.merges: expected two'),
    (byte_level('gpt-2') | {MERGES: [1, 2]}, 'ggml.merges: expected two'),
    (byte_level('gpt-2', ['a nobody']), 'ggml.merges: .*`nobody` out of voc'),
    (byte_level('gpt-2', model='bert'), "kind 'bert'.*gpt2, llama"),
    ({}, 'with 0 tokens'),
    (byte_level('gpt-2', eos_token_id=9999), 'eos_token_id=9999: expected one'),
    (byte_level('gpt-2', token_type=[1, 2]), '2 numbers in .*token_type'),
    (sentence_piece(scores=None), 'lacks tokenizer.ggml.scores'),
    (sentence_piece(scores=[0.0, 1.0]), '2 numbers in .*scores'),
    (sentence_piece(bos_token_id=None), 'expected tokenizer.ggml.bos_token_id'),
  ],
)
def test_a_tokenizer_that_cannot_be_built_says_why(fields, message, path):
  with pytest.raises(CheckpointError, match=message) as caught:
    tokenizer_lib.load(write(path, **fields))
  assert str(path) in str(caught.value)


@pytest.mark.parametrize(
  ('fields', 'warns'),
  [
    (byte_level(None), True),
    (byte_level('gpt-2'), False),
    (sentence_piece(), False),
  ],
)
def test_a_vocabulary_without_rules_is_split_as_by_gpt2_and_the_log_says_so(
  fields, warns, path, caplog
):
  tokenizer_lib.load(write(path, **fields))
  warnings = [r for r in caplog.records if 'ggml.pre' in r.getMessage()]
  assert len(warnings) == warns
