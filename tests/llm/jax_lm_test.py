"""The in-process model behind the backend protocol."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest

from promptrl_jax.llm import load
from promptrl_jax.llm.backend import Message, Request
from promptrl_jax.llm.cache import CachedBackend
from promptrl_jax.llm.http_config import HttpConfig
from promptrl_jax.llm.jax_lm import JaxLM
from promptrl_jax.llm.load import BackendConfig, load_backend
from promptrl_jax.models import encoder, pretrained
from promptrl_jax.models.chat_template import ChatTemplate
from promptrl_jax.models.encoder import EncoderConfig
from promptrl_jax.models.tokenizer import Tokenizer
from promptrl_jax.parallel.mesh import make_data_mesh
from promptrl_jax.sampling import EngineConfig, Sampler, Sampling
from promptrl_jax.sampling.scheduler import Scheduler
from promptrl_jax.testing import tiny, tiny_encoder_decoder
from tests.variants import mostly_slow

CONFIG = EngineConfig(4, (16, 48), 8)
MESH = make_data_mesh()


@pytest.fixture(scope='module')
def model():
  return make_causal()


def request(text='add', **changes):
  fields = {'temperature': 0.9, 'max_tokens': 8} | changes
  return Request((Message('user', text),), **fields)


def test_three_prompts_give_three_answers_with_usage(model):
  out = model.complete([request('a'), request('add two'), request('x' * 20)])
  assert len(out) == 3
  assert all(0 < c.completion_tokens <= 8 for c in out)
  sizes = [model.count_tokens(t) for t in ('a', 'add two', 'x' * 20)]
  assert [c.prompt_tokens for c in out] == sizes


def test_a_completion_does_not_depend_on_its_neighbours(model):
  requests = [request('add ' * (i % 4 + 1), seed=i) for i in range(11)]
  together = model.complete(requests)
  assert together == [model.complete([r])[0] for r in requests]
  assert len({c.text for c in together}) > 1


def test_an_interrupt_loses_no_answer_that_had_ended(
  model, tmp_path, monkeypatch
):
  asked = [request('add ' * (i % 4 + 1), seed=i) for i in range(12)]
  decoded = []

  def record(scheduler, completions):
    decoded.append(completions)
    if len(decoded) == 4:
      raise KeyboardInterrupt
    recorded(scheduler, completions)

  recorded = Scheduler.record
  with monkeypatch.context() as patch:
    patch.setattr(Scheduler, 'record', record)
    with pytest.raises(KeyboardInterrupt):
      CachedBackend(model, tmp_path / 'cache.sqlite').complete(asked)
  again = CachedBackend(model, tmp_path / 'cache.sqlite')
  assert again.complete(asked) == model.complete(asked)
  assert 0 < again.hits < len(asked) == again.hits + again.misses


def test_no_compilation_after_warm_up(model):
  for size in (5, 30):
    model.complete([request('x' * size)])
  warm = model.compiled_shapes()
  for rows in range(1, 10):
    model.complete(
      [
        request('y' * (7 * rows % 40), seed=i, top_p=1 - i / 10)
        for i in range(rows)
      ]
    )
  assert model.compiled_shapes() == warm


def test_a_prompt_beyond_the_limit_is_refused_with_the_number(model):
  assert not model.fits(request('word ' * 60))
  with pytest.raises(ValueError, match='takes 48'):
    model.complete([request('word ' * 60)])


def test_more_new_tokens_than_compiled_are_refused(model):
  assert not model.fits(request(max_tokens=9))
  with pytest.raises(ValueError, match='at most 8'):
    model.complete([request(max_tokens=9)])


def test_stop_strings_are_cut_off(model):
  requests = [request(seed=seed) for seed in range(4)]
  texts = [completion.text for completion in model.complete(requests)]
  text, asked = max(zip(texts, requests, strict=True), key=lambda x: len(x[0]))
  middle = text[len(text) // 2]
  stopped = model.complete([dataclasses.replace(asked, stop=(middle,))])
  assert stopped[0].text == text.split(middle)[0]
  assert stopped[0].finish_reason == 'stop'


def test_a_stop_string_of_several_tokens_ends_the_generation(model):
  tried = [request('add', seed=seed) for seed in range(40)]
  ends = lambda asked: [
    dataclasses.replace(asked, max_tokens=count) for count in range(1, 9)
  ]
  found = model.complete(
    [shorter for asked in tried for shorter in ends(asked)]
  )
  texts_of = [[c.text for c in found[i : i + 8]] for i in range(0, 320, 8)]
  # Two characters, of which token `count` brings the second.
  asked, texts, count = next(
    (asked, texts, count)
    for asked, texts in zip(tried, texts_of, strict=True)
    for count in range(2, 8)
    if texts[count - 1].isascii() and len(texts[count - 2]) > 0
    if len(texts[count - 1]) > len(texts[count - 2])
  )
  place = len(texts[count - 2]) - 1
  stop = texts[count - 1][place : place + 2]
  assert stop not in texts[count - 2]
  (found,) = model.complete([dataclasses.replace(asked, stop=('#' * 9, stop))])
  assert found.text == texts[-1][:place]
  assert (found.completion_tokens, found.finish_reason) == (count, 'stop')
  (other,) = model.complete([dataclasses.replace(asked, stop=('#' * 9,))])
  assert other == model.complete([asked])[0]


def test_samples_of_a_prompt_differ_in_all_but_the_prompt(model):
  requests = [
    request(seed=1),
    request(seed=2),
    request(temperature=0.0),
    request(seed=1, top_p=0.2),
    request(seed=1, max_tokens=3),
  ]
  together = model.complete(requests)
  assert together == [model.complete([r])[0] for r in requests]
  assert len({c.text for c in together}) >= 4


def test_a_chat_model_is_asked_through_its_template():
  template = (
    '{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}'
    '{% if add_generation_prompt %}<assistant>{% endif %}'
  )
  tokenizer = dataclasses.replace(
    tiny.tokenizer(), chat=ChatTemplate(template, {})
  )
  sampler = Sampler(tiny.CONFIG, tiny.params(), tokenizer, MESH, CONFIG)
  chat = JaxLM('chat', sampler)
  asked = Request(
    (Message('system', 'Be brief'), Message('user', 'add')), max_tokens=8
  )
  (ids,) = tokenizer.encode(['<system>Be brief<user>add<assistant>'])
  assert chat.complete([asked])[0].prompt_tokens == len(ids)
  (ids,) = tokenizer.encode(['<user>add<assistant>'])
  assert chat.count_tokens('add') == len(ids)
  long = Message('system', 'x' * 30)
  assert not chat.fits(dataclasses.replace(asked, messages=(long,)))
  assert chat.fits(asked)


def test_a_prompt_becomes_tokens_once_until_it_is_forgotten(monkeypatch):
  rendered = []
  render = Tokenizer.render
  monkeypatch.setattr(
    Tokenizer,
    'render',
    lambda tokenizer, turns: rendered.append(turns) or render(tokenizer, turns),
  )
  model = make_causal()
  model.fits(request('add'))
  first = model.complete([request('add'), request('add')])
  assert len(rendered) == 1
  model.forget_prompts()
  assert model.complete([request('add'), request('add')]) == first
  assert len(rendered) == 2


def test_every_token_that_ends_a_turn_ends_the_completion():
  ends = tuple(range(2, tiny.CONFIG.vocab_size))
  tokenizer = dataclasses.replace(tiny.tokenizer(), eos_ids=ends)
  sampler = Sampler(tiny.CONFIG, tiny.params(), tokenizer, MESH, CONFIG)
  model = JaxLM('ends', sampler)
  (completion,) = model.complete([request(temperature=0.0)])
  assert (completion.completion_tokens, completion.finish_reason) == (1, 'stop')


def test_shapes_beyond_the_context_are_refused():
  shapes = EngineConfig(2, (128,), 8)
  with pytest.raises(ValueError, match='exceed the context of 128'):
    Sampler(tiny.CONFIG, tiny.params(), tiny.tokenizer(), MESH, shapes)


def test_an_unknown_model_names_those_there_are():
  with pytest.raises(FileNotFoundError, match='minicode_coder'):
    load_backend(BackendConfig('jax', 'gpt-7'), MESH)


def test_a_model_that_writes_no_text_is_named(tmp_path):
  config = EncoderConfig(300, 8, 1, 2, 8)
  shapes = encoder.shapes(config)
  params = jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), shapes)
  pretrained.save_pretrained(tmp_path, config, params, tiny.tokenizer())
  with pytest.raises(ValueError, match='is a bert model, which writes no text'):
    load_backend(BackendConfig('jax', str(tmp_path)), MESH)


def test_http_needs_an_address():
  with pytest.raises(ValueError, match='base_url'):
    load_backend(BackendConfig('http', 'm'), MESH)


def test_a_preset_and_an_id_are_looked_for_on_the_hub(monkeypatch):
  asked = []

  def find(source):
    asked.append(str(source))
    raise FileNotFoundError(f'{source} cannot be reached')

  monkeypatch.setattr(load.pretrained, 'find', find)
  named = {
    'codellama_7b_instruct': 'codellama/CodeLlama-7b-Instruct-hf',
    'llama-3.2-3b-instruct': 'meta-llama/Llama-3.2-3B-Instruct',
    'someone/model': 'someone/model',
  }
  for name in named:
    with pytest.raises(FileNotFoundError, match='cannot be reached'):
      load_backend(BackendConfig('jax', name), MESH)
  assert asked == list(named.values())


@pytest.mark.parametrize('name', ['', 'gpt5', 'codet5p'])
def test_a_name_that_means_nothing_is_told_what_there_is(name):
  with pytest.raises(FileNotFoundError, match='expected a folder.*coder'):
    load.find(name)


def test_an_unknown_backend_is_refused():
  with pytest.raises(ValueError, match='carrier-pigeon'):
    load_backend(BackendConfig('carrier-pigeon', 'm'), MESH)


@pytest.mark.parametrize(
  ('limit', 'lengths'),
  [
    (400, (64, 96, 160, 256, 400)),
    (100, (64, 96, 100)),
    (50, (50,)),
    (1000, (64, 80, 112, 144, 192, 240, 304, 384, 480, 608, 768, 960, 1000)),
  ],
)
def test_prompts_may_be_as_long_as_the_settings_say(
  monkeypatch, limit, lengths
):
  shapes = []
  monkeypatch.setattr(
    JaxLM, 'from_folder', lambda *args, **_: shapes.append(args[3])
  )
  load_backend(
    BackendConfig('jax', 'minicode_coder', prompt_tokens=limit, new_tokens=30),
    MESH,
  )
  assert (shapes[0].prompt_lengths, shapes[0].new_tokens) == (lengths, 30)


def test_a_limit_of_no_tokens_is_refused():
  with pytest.raises(ValueError, match='prompt_tokens=0'):
    BackendConfig('jax', 'minicode_coder', prompt_tokens=0)


def test_settings_that_change_answers_change_the_identity():
  config = BackendConfig('http', 'm', http=HttpConfig('http://a/v1'))
  same = dataclasses.replace(
    config, http=HttpConfig('http://a/v1', timeout_s=1.0)
  )
  assert same.identity == config.identity
  for change in ({'dtype': 'int8'}, {'http': HttpConfig('http://b/v1')}):
    assert dataclasses.replace(config, **change).identity != config.identity
  config = BackendConfig('jax', 'm')
  changes = (
    {'top_k': 5},
    {'min_p': 0.1},
    {'repetition_penalty': 1.2},
    {'filters': 'epsilon=0.1'},
    {'beams': 2},
  )
  for change in changes:
    assert dataclasses.replace(config, **change).identity != config.identity


def test_settings_that_are_new_and_off_leave_the_keys_of_a_cache_as_they_were():
  assert BackendConfig('jax', 'm').identity == (
    '{"backend": "jax", "dtype": "float32", "kv_cache": "plain", '
    '"base_url": "", "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}'
  )


def make_encoder_decoder(**settings):
  size = tiny.CONFIG.vocab_size  # that of the tokenizer
  config = dataclasses.replace(tiny_encoder_decoder.CONFIG, vocab_size=size)
  tokenizer = dataclasses.replace(tiny.tokenizer(), end=(2,))
  params = tiny_encoder_decoder.params(config)
  sampler = Sampler(config, params, tokenizer, MESH, CONFIG, **settings)
  return JaxLM('tiny', sampler)


def make_causal(**settings):
  sampler = Sampler(
    tiny.CONFIG, tiny.params(), tiny.tokenizer(), MESH, CONFIG, **settings
  )
  return JaxLM('tiny', sampler)


TOP, LEAST = Sampling(top_k=1), Sampling(min_p=1.0)
PENALTY = Sampling(repetition_penalty=50.0)


@pytest.mark.parametrize(
  ('make', 'method'),
  mostly_slow(
    itertools.product(
      (make_causal, make_encoder_decoder), (TOP, LEAST, PENALTY)
    ),
    [(make_causal, TOP)],
  ),
)
def test_filters_reach_the_sampler(make, method):
  drawn = lambda model, temperature: model.complete(
    [request('add two', seed=i, temperature=temperature) for i in range(4)]
  )
  plain, filtered = make(), make(method=method)
  assert drawn(filtered, 0.9) != drawn(plain, 0.9)
  if method.repetition_penalty == 1:
    assert drawn(filtered, 0.9) == drawn(plain, 0.0)


def test_filters_of_the_settings_reach_the_sampler():
  asked = lambda temperature: [request('add two', temperature=temperature)]
  load_model = lambda **settings: load_backend(
    BackendConfig('jax', 'minicode_rewriter', **settings), MESH
  )
  found = load_model(top_k=1).complete(asked(1.0))
  assert found == load_model().complete(asked(0.0))
  assert found != load_model().complete(asked(1.0))


def test_a_server_is_not_told_to_filter():
  with pytest.raises(ValueError, match=r'top_k=5.*a server chooses'):
    BackendConfig('http', 'm', http=HttpConfig('http://a/v1'), top_k=5)


def test_an_encoder_decoder_answers_the_same_alone_and_among_others():
  model = make_encoder_decoder()
  requests = [request('add ' * (i % 3 + 1), seed=i) for i in range(5)]
  together = model.complete(requests)
  assert together == [model.complete([r])[0] for r in requests]
  assert all(0 < c.completion_tokens <= 8 for c in together)
  assert model.count_tokens('add') == together[0].prompt_tokens - 1


@pytest.mark.slow
def test_beams_answer_greedy_requests_and_leave_the_others_alone():
  greedy, beams = make_encoder_decoder(), make_encoder_decoder(beams=4)
  requests = [
    request('add ' * (i % 3 + 1), seed=i, temperature=t, max_tokens=m)
    for i, (t, m) in enumerate([(0.0, 8), (0.9, 8), (0.0, 3), (0.0, 8)] * 3)
  ]
  expected, answers = greedy.complete(requests), beams.complete(requests)
  searched = [i for i, r in enumerate(requests) if r.temperature == 0]
  for i, asked in enumerate(requests):
    if i not in searched:
      assert answers[i] == expected[i]
    assert answers[i].completion_tokens <= asked.max_tokens
  assert [answers[i] for i in searched] != [expected[i] for i in searched]
  assert answers == [beams.complete([r])[0] for r in requests]


@pytest.mark.slow
def test_beams_compile_one_program_per_prompt_length():
  model = make_encoder_decoder(beams=2)
  for size in (5, 30):
    model.complete([request('x' * size, temperature=0.0)])
  assert model.compiled_shapes() == 2
  for rows in range(1, 7):
    model.complete([request('y' * (5 * rows), temperature=0.0)] * rows)
  assert model.compiled_shapes() == 2


def test_stop_strings_cut_a_text_that_was_searched_for():
  model = make_encoder_decoder(beams=3)
  (whole,) = model.complete([request('add two', temperature=0.0)])
  middle = whole.text[len(whole.text) // 2]
  (cut,) = model.complete([request('add two', temperature=0.0, stop=(middle,))])
  assert (cut.text, cut.finish_reason) == (whole.text.split(middle)[0], 'stop')


def test_beams_of_the_settings_need_an_encoder_decoder():
  with pytest.raises(ValueError, match=r'beams=3.*causal model'):
    load_backend(BackendConfig('jax', 'minicode_coder', beams=3), MESH)
  with pytest.raises(ValueError, match='beams=0'):
    BackendConfig('jax', 'm', beams=0)
  with pytest.raises(ValueError, match='beams=2'):
    BackendConfig('http', 'm', http=HttpConfig('http://a/v1'), beams=2)


def test_a_filter_of_the_registry_reaches_the_sampler_by_name():
  asked = lambda temperature: [request('add two', temperature=temperature)]
  load_model = lambda **settings: load_backend(
    BackendConfig('jax', 'minicode_rewriter', **settings), MESH
  )
  # Above one half, no more than one token is left.
  greedy = load_model().complete(asked(0.0))
  assert load_model(filters='epsilon=0.6').complete(asked(1.0)) == greedy


def test_a_filter_that_is_not_known_is_told_which_are():
  config = BackendConfig('jax', 'minicode_coder', filters='magic=1')
  with pytest.raises(ValueError, match=r"filter 'magic'.*epsilon"):
    load_backend(config, MESH)
