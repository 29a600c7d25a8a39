"""Text in, samples out."""

import pathlib
import re

import numpy as np
import pytest

from promptrl_jax.llm.backend import Message, Request
from promptrl_jax.llm.jax_lm import JaxLM
from promptrl_jax.parallel.mesh import make_data_mesh
from promptrl_jax.sampling import EngineConfig, Sampler
from promptrl_jax.testing import tiny

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope='module')
def sampler():
  return Sampler(
    tiny.CONFIG,
    tiny.params(),
    tiny.tokenizer(),
    make_data_mesh(),
    EngineConfig(4, (16, 48), 8),
  )


def test_samples_are_the_completions_of_the_backend(sampler):
  texts = ['add', 'add two', 'add']
  samples = sampler.sample(texts, max_new_tokens=6, temperature=0.9, seed=3)
  completions = JaxLM('tiny', sampler).complete(
    [
      Request((Message('user', text),), 0.9, seed=3 + i, max_tokens=6)
      for i, text in enumerate(texts)
    ]
  )
  assert [s.text for s in samples] == [c.text for c in completions]
  assert [s.prompt_tokens for s in samples] == [
    c.prompt_tokens for c in completions
  ]
  assert samples[0].text != samples[2].text


def test_log_probs_at_temperature_one_are_those_of_the_scorer(sampler):
  texts = ['add', 'add two']
  samples = sampler.sample(texts, temperature=1.0)
  prompts = [sampler.tokenizer.render([('user', text)]) for text in texts]
  scored = sampler.score(prompts, [s.tokens.tolist() for s in samples])
  for sample, logps in zip(samples, scored, strict=True):
    assert 0 < len(sample.tokens) <= 8
    np.testing.assert_allclose(sample.logps, logps, atol=1e-4)


def test_no_texts_give_no_samples(sampler):
  assert sampler.sample([]) == []


def test_more_tokens_than_the_shapes_have_are_refused(sampler):
  with pytest.raises(ValueError, match='max_tokens=9, expected 0 to'):
    sampler.sample(['add'], max_new_tokens=9)
  with pytest.raises(ValueError, match='expected 1 to 48'):
    sampler.sample(['word ' * 60])


def test_the_example_of_the_documentation_runs(monkeypatch, capsys):
  text = (ROOT / 'docs' / 'models.md').read_text(encoding='utf-8')
  (code,) = re.findall(r'```python\n(.*?)```', text, re.DOTALL)
  monkeypatch.chdir(ROOT)
  exec(compile(code, 'docs/models.md', 'exec'), {})
  printed = capsys.readouterr().out
  assert 'def ' in printed and re.search(r'-?\d+\.\d\d', printed)
