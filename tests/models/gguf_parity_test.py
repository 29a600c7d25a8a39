"""Public models equal transformers reading the same GGUF file."""

import dataclasses
import functools

import numpy as np
import pytest

from promptrl_jax.llm import load
from promptrl_jax.models import pretrained
from promptrl_jax.models import tokenizer as tokenizer_lib
from tests.golden import causal
from tests.models.causal_families_test import greedy, log_probs

torch = pytest.importorskip('torch', reason='parity extra is not installed')
MODELS = ('smollm2_135m_instruct', 'gemma3_270m')
TEXTS = (
  'def add(a, b):\n    """Returns the sum of a and b."""\n',
  'Write a Python function that removes all digits from a text, such as "a1".',
  'The capital of France is',
)
# Not digits after line ends: transformers reads no rules of splitting from a
# GGUF file, and splits these otherwise than SmolLM2 was trained.
OTHER_TEXTS = (
  'naïve café: 数字 🙂\n\tx',
  '<|im_start|>user\nHello<|im_end|>\n<start_of_turn>model\n',
  'def f(x):\n        return x  # ≥ é\r\n\r\n\r\n',
)


@pytest.fixture(scope='module', params=MODELS)
def path(request):
  try:
    return load.find(request.param)
  except FileNotFoundError as error:
    pytest.skip(str(error))


def theirs(path, kind, **settings):
  import transformers

  return getattr(transformers, kind).from_pretrained(
    path.parent, gguf_file=path.name, **settings
  )


def in_float64(model):
  """Computes all of a model in float64, as transformers does but for norms."""

  def forward(norm, x):
    eps = getattr(norm, 'variance_epsilon', None) or norm.eps
    scale = norm.weight + ('Gemma' in type(norm).__name__)
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * scale

  for module in model.double().modules():
    if type(module).__name__.endswith('RMSNorm'):
      module.forward = functools.partial(forward, module)
  return model


def test_log_probs_and_greedy_text_equal_those_of_transformers(path):
  config, params, tokenizer = pretrained.load_pretrained(path)
  tokens, mask = tokenizer_lib.pad_left(
    [[*tokenizer.start, *ids] for ids in tokenizer.encode(TEXTS)],
    40,
    tokenizer.pad_id,
  )
  reference = theirs(path, 'AutoModelForCausalLM', dtype=torch.float32).eval()
  reference.generation_config.eos_token_id = None  # Both are to write on.
  config = dataclasses.replace(config, eos_token_ids=())
  expected = causal.log_probs(reference, tokens, mask)
  actual = np.asarray(log_probs(config, params, tokens, mask))
  np.testing.assert_array_equal(
    greedy(config, params, tokens, mask),
    causal.greedy(reference, tokens, mask),
  )
  # The order of sums in the products of torch depends on the processor: with
  # AVX2 alone its log-probs are 1.7 times as far from those in float64, which
  # both are therefore compared with.
  exact = causal.log_probs(in_float64(reference), tokens, mask)
  errors, their_errors = (np.abs(x - exact)[mask] for x in (actual, expected))
  assert errors.max() <= 1.5e-4
  assert errors.mean() <= 1.5 * their_errors.mean()


def test_texts_have_the_tokens_of_transformers(path):
  tokenizer = tokenizer_lib.load(path)
  reference = theirs(path, 'AutoTokenizer')
  texts = (*TEXTS, *OTHER_TEXTS)
  for text, ids in zip(texts, tokenizer.encode(texts), strict=True):
    assert ids == reference(text, add_special_tokens=False).input_ids
  assert tokenizer.decode(tokenizer.encode(TEXTS)) == list(TEXTS)


def test_a_conversation_has_the_tokens_of_transformers(path):
  tokenizer = tokenizer_lib.load(path)
  if tokenizer.chat is None:
    pytest.skip(f'{path.name} has no chat template')
  reference = theirs(path, 'AutoTokenizer')
  messages = (
    *(('system', 'Answer in code.'), ('user', 'Add two numbers: é + 数')),
    *(('assistant', 'a + b'), ('user', TEXTS[0])),
  )
  for some in (messages, messages[1:]):  # The template adds a system message.
    asked = [{'role': role, 'content': text} for role, text in some]
    encoded = reference.apply_chat_template(asked, add_generation_prompt=True)
    assert tokenizer.render(some) == encoded.input_ids
