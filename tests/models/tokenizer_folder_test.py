"""Tokenizer folders of Hugging Face, compared to transformers."""

import json
import logging

import pytest
import tokenizers
import transformers
from tokenizers import (
  decoders,
  models,
  normalizers,
  pre_tokenizers,
  processors,
  trainers,
)

from promptrl_jax.models import tokenizer as tokenizer_lib

TEXTS = [
  'def add(a, b):\n    return a + b\n',
  'Write a function to add two numbers, please. Ünïcode 你好',
]
SENTENCES = ['return a', '  return a', 'a\n    b', ' ', 'Zoë 你好 🙂', 'x']
CHATML = (
  '{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n'
  '{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}'
)
LLAMA = (
  "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}"
  "{{ raise_exception('no system role') }}{% endif %}"
  "{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
  '{% else %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}'
)
CHAT = [
  ('system', 'Be brief. '),
  ('user', 'add two'),
  ('assistant', ' ok'),
  ('user', 'again'),
]


def byte_level():
  """Like Qwen's: no leading special token, <|im_end|> ends a turn."""
  backend = tokenizers.Tokenizer(models.BPE())
  backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
  backend.decoder = decoders.ByteLevel()
  trainer = trainers.BpeTrainer(
    vocab_size=320,
    special_tokens=['<|endoftext|>', '<|im_start|>', '<|im_end|>'],
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    show_progress=False,
  )
  backend.train_from_iterator(TEXTS, trainer)
  return backend


def sentence_piece():
  """Like Llama's: words are marked, other characters are bytes, <s> leads."""
  alphabet = sorted({c for text in TEXTS[:1] for c in text} - {' ', '\n'})
  pieces = ['<unk>', '<s>', '</s>', *(f'<0x{i:02X}>' for i in range(256))]
  pieces += [
    '▁',
    *alphabet,
    're',
    'tu',
    'rn',
    'retu',
    'return',
    '▁return',
    '▁a',
  ]
  vocab = {piece: i for i, piece in enumerate(pieces)}
  merges = [('r', 'e'), ('t', 'u'), ('r', 'n'), ('re', 'tu'), ('retu', 'rn')]
  merges += [('▁', 'return'), ('▁', 'a')]
  backend = tokenizers.Tokenizer(
    models.BPE(vocab, merges, unk_token='<unk>', byte_fallback=True)
  )
  backend.normalizer = normalizers.Sequence(
    [normalizers.Prepend('▁'), normalizers.Replace(' ', '▁')]
  )
  backend.decoder = decoders.Sequence(
    [
      decoders.Replace('▁', ' '),
      decoders.ByteFallback(),
      decoders.Fuse(),
      decoders.Strip(' ', 1, 0),
    ]
  )
  backend.add_special_tokens(['<unk>', '<s>', '</s>'])
  backend.post_processor = processors.TemplateProcessing(
    single='<s> $A', special_tokens=[('<s>', 1)]
  )
  return backend


@pytest.fixture
def write(tmp_path):
  """Writes a folder; values that are dicts become JSON."""

  def write(backend=None, **files):
    if backend is not None:
      backend.save(str(tmp_path / 'tokenizer.json'))
    for name, content in files.items():
      is_text = isinstance(content, str)
      path = tmp_path / f'{name}.{"jinja" if is_text else "json"}'
      path.write_text(content if is_text else json.dumps(content))
    return tmp_path

  return write


QWEN = {'eos_token': '<|im_end|>', 'pad_token': '<|endoftext|>'}
LLAMA_CONFIG = {
  'bos_token': {'__type': 'AddedToken', 'content': '<s>', 'lstrip': False},
  'eos_token': '</s>',
  'unk_token': '<unk>',
}


def reference(folder):
  return transformers.PreTrainedTokenizerFast.from_pretrained(folder)


@pytest.mark.parametrize(
  ('make', 'config'), [(byte_level, QWEN), (sentence_piece, LLAMA_CONFIG)]
)
def test_texts_go_to_ids_as_in_transformers_and_come_back(write, make, config):
  folder = write(make(), tokenizer_config=config)
  ours, theirs = tokenizer_lib.load(folder), reference(folder)
  for text in SENTENCES:
    assert ours.render([('user', text)]) == theirs(text).input_ids
    (ids,) = ours.encode([text])
    assert ours.decode([ids]) == [text]


@pytest.mark.parametrize(
  ('make', 'config', 'template', 'chat'),
  [
    (byte_level, QWEN, CHATML, CHAT),
    (byte_level, QWEN, CHATML, CHAT[:2]),
    (sentence_piece, LLAMA_CONFIG, LLAMA, CHAT[1:]),
  ],
)
@pytest.mark.parametrize('place', ['file', 'config', 'named'])
def test_a_conversation_is_rendered_as_by_transformers(
  write, make, config, template, chat, place
):
  named = [{'name': 'tool_use', 'template': ''}]
  named += [{'name': 'default', 'template': template}]
  inside = {'config': template, 'named': named}
  values = {**config, 'chat_template': inside.get(place)}
  files = {'chat_template': template} if place == 'file' else {}
  folder = write(make(), tokenizer_config=values, **files)
  expected = reference(folder).apply_chat_template(
    [{'role': role, 'content': content} for role, content in chat],
    add_generation_prompt=True,
  )['input_ids']
  ids = tokenizer_lib.load(folder).render(chat)
  assert ids == expected
  assert ids.count(1) == (1 if make is sentence_piece else len(chat) + 1)


def test_a_turn_of_the_assistant_is_gone_on_with(write):
  folder = write(byte_level(), tokenizer_config=QWEN, chat_template=CHATML)
  tokenizer = tokenizer_lib.load(folder)
  ids = tokenizer.render([('user', 'add'), ('assistant', 'def')])
  text = tokenizer.backend.decode(ids, skip_special_tokens=False)
  assert text.endswith('<|im_start|>assistant\ndef')


def test_a_template_that_refuses_a_system_text_says_what_to_do(write):
  folder = write(
    sentence_piece(), tokenizer_config=LLAMA_CONFIG, chat_template=LLAMA
  )
  with pytest.raises(ValueError, match='system, user.*no system role.*first'):
    tokenizer_lib.load(folder).render(CHAT[:2])


def test_a_template_that_drops_the_system_text_is_refused(write):
  template = CHATML.replace('messages %}', "messages if m.role != 'system' %}")
  folder = write(byte_level(), tokenizer_config=QWEN, chat_template=template)
  with pytest.raises(ValueError, match=r"leaves out .*'Be brief\. '.*first"):
    tokenizer_lib.load(folder).render(CHAT)


def test_a_completion_keeps_its_leading_space(write):
  folder = write(sentence_piece(), tokenizer_config=LLAMA_CONFIG)
  tokenizer = tokenizer_lib.load(folder)
  completion, prompt = '  return a', 'a'
  ids = tokenizer.encode([prompt + completion])[0][1:]
  assert tokenizer.decode_after([ids]) == [completion]
  assert tokenizer.decode([ids]) == [completion[1:]]  # `decode` drops the space


def test_without_a_pad_token_eos_pads_and_the_log_says_so_once(write, caplog):
  folder = write(sentence_piece(), tokenizer_config=LLAMA_CONFIG)
  with caplog.at_level(logging.WARNING):
    for _ in range(2):
      tokenizer = tokenizer_lib.load(folder)
  assert tokenizer.pad_id == tokenizer.eos_id == 2
  warnings = [r for r in caplog.records if 'no pad token' in r.getMessage()]
  assert len(warnings) == 1


def test_all_tokens_that_end_a_text_are_found(write):
  folder = write(
    byte_level(),
    tokenizer_config=QWEN,
    generation_config={'eos_token_id': [0, 2], 'pad_token_id': None},
    config={'eos_token_id': 7, 'pad_token_id': -1},
  )
  tokenizer = tokenizer_lib.load(folder)
  assert (tokenizer.eos_id, tokenizer.eos_ids) == (2, (2, 0))
  assert (tokenizer.pad_id, tokenizer.bos_id, tokenizer.start) == (0, None, ())


def test_special_tokens_may_stand_in_the_map_or_in_the_model_config(write):
  folder = write(byte_level(), special_tokens_map=QWEN)
  assert tokenizer_lib.load(folder).eos_ids == (2,)
  (folder / 'special_tokens_map.json').unlink()
  (folder / 'config.json').write_text('{"eos_token_id": 0}')
  assert tokenizer_lib.load(folder).eos_ids == (0,)


@pytest.mark.parametrize(('add', 'start'), [(True, (1,)), (False, ())])
def test_the_config_decides_about_the_leading_token(
  write, tmp_path, add, start
):
  values = {**LLAMA_CONFIG, 'add_bos_token': add}
  folder = write(sentence_piece(), tokenizer_config=values)
  tokenizer = tokenizer_lib.load(folder)
  assert tokenizer.start == start
  (tmp_path / 'saved').mkdir()
  tokenizer_lib.save(tmp_path / 'saved', tokenizer)
  assert tokenizer_lib.load(tmp_path / 'saved').start == start


def test_an_encoder_has_tokens_on_both_sides(write):
  backend = byte_level()
  backend.post_processor = processors.TemplateProcessing(
    single='<|im_start|> $A <|im_end|>',
    special_tokens=[('<|im_start|>', 1), ('<|im_end|>', 2)],
  )
  names = {'cls_token': '<|im_start|>', 'sep_token': '<|im_end|>'}
  tokenizer = tokenizer_lib.load(write(backend, tokenizer_config=names))
  assert (tokenizer.start, tokenizer.end) == ((1,), (2,))
  assert (tokenizer.bos_id, tokenizer.eos_id) == (1, 2)


def test_what_a_file_says_of_cutting_and_padding_is_ignored(write):
  backend = byte_level()
  backend.enable_truncation(2)
  backend.enable_padding(length=9)
  tokenizer = tokenizer_lib.load(write(backend, tokenizer_config=QWEN))
  (ids,) = tokenizer.encode(['x y z'])
  assert tokenizer.decode([ids]) == ['x y z'] and len(ids) == 5


def test_tokens_that_the_config_alone_lists_are_added(write):
  backend = byte_level()
  size = backend.get_vocab_size()
  listed = {str(size): {'content': '<|new|>', 'special': True}}
  values = {**QWEN, 'added_tokens_decoder': listed}
  tokenizer = tokenizer_lib.load(write(backend, tokenizer_config=values))
  assert tokenizer.encode(['<|new|>']) == [[size]]
  values['added_tokens_decoder'] = {'9': listed[str(size)]}
  with pytest.raises(ValueError, match=f"'<|new|>' the id 9.* {size}"):
    tokenizer_lib.load(write(byte_level(), tokenizer_config=values))


def test_a_folder_with_vocabulary_and_merges_is_converted(tmp_path):
  byte_level().model.save(str(tmp_path))
  vocab = json.loads((tmp_path / 'vocab.json').read_text())
  assert vocab['<|endoftext|>'] == 0
  values = {'tokenizer_class': 'GPT2Tokenizer', 'eos_token': '<|endoftext|>'}
  (tmp_path / 'tokenizer_config.json').write_text(json.dumps(values))
  tokenizer = tokenizer_lib.load(tmp_path)
  theirs = transformers.GPT2Tokenizer.from_pretrained(tmp_path)
  assert tokenizer.eos_id == 0
  for text in SENTENCES:
    (ids,) = tokenizer.encode([text])
    assert ids == theirs(text).input_ids
    assert tokenizer.decode([ids]) == [text]


@pytest.mark.parametrize(
  ('make', 'config', 'template', 'chat'),
  [
    (byte_level, QWEN, CHATML, CHAT),
    (sentence_piece, LLAMA_CONFIG, LLAMA, CHAT[1:]),
  ],
)
def test_what_is_saved_is_read_back_here_and_by_transformers(
  write, tmp_path, make, config, template, chat
):
  folder = write(make(), tokenizer_config=config, chat_template=template)
  before = tokenizer_lib.load(folder)
  (tmp_path / 'saved').mkdir()
  tokenizer_lib.save(tmp_path / 'saved', before)
  after = tokenizer_lib.load(tmp_path / 'saved')
  assert after.render(chat) == before.render(chat)
  fields = lambda t: (t.pad_id, t.bos_id, t.eos_id, t.start, t.end)
  assert fields(after) == fields(before)
  theirs = reference(tmp_path / 'saved').apply_chat_template(
    [{'role': role, 'content': content} for role, content in chat],
    add_generation_prompt=True,
  )['input_ids']
  assert after.render(chat) == theirs


def test_an_empty_folder_has_no_tokenizer(tmp_path):
  with pytest.raises(FileNotFoundError, match='lacks tokenizer.json'):
    tokenizer_lib.load(tmp_path)


def test_a_broken_file_is_named(write):
  folder = write(byte_level(), tokenizer_config=QWEN)
  (folder / 'tokenizer_config.json').write_text('{')
  with pytest.raises(ValueError, match=r'tokenizer_config\.json is no JSON'):
    tokenizer_lib.load(folder)
  (folder / 'tokenizer.json').write_text('{')
  (folder / 'tokenizer_config.json').unlink()
  with pytest.raises(ValueError, match=r'tokenizer\.json cannot be read'):
    tokenizer_lib.load(folder)


def test_a_folder_that_cannot_be_converted_says_what_to_do(tmp_path):
  (tmp_path / 'tokenizer_config.json').write_text('{"tokenizer_class": "No"}')
  with pytest.raises(ValueError, match='cannot make one.*save_pretrained'):
    tokenizer_lib.load(tmp_path)


def test_without_a_token_that_ends_a_text_there_is_no_tokenizer(write):
  folder = write(byte_level(), tokenizer_config={'pad_token': '<|im_end|>'})
  with pytest.raises(ValueError, match='no token ends a text: set eos_token'):
    tokenizer_lib.load(folder)


def test_a_special_token_that_is_not_in_the_vocabulary_is_named(write):
  folder = write(byte_level(), tokenizer_config={'eos_token': '</s>'})
  with pytest.raises(ValueError, match="eos_token='</s>'.*not in the vocab"):
    tokenizer_lib.load(folder)


def test_chat_templates_without_a_default_are_named(write):
  named = [{'name': 'tool_use', 'template': ''}]
  values = {**QWEN, 'chat_template': named}
  with pytest.raises(ValueError, match='tool_use.*chat_template.jinja'):
    tokenizer_lib.load(write(byte_level(), tokenizer_config=values))
