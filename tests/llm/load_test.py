"""Backends are a table of loaders."""

import pytest

from promptrl_jax.llm import load
from promptrl_jax.testing.scripted import ScriptedBackend


@pytest.fixture
def table(monkeypatch):
  monkeypatch.setattr(load.BACKENDS, '_plugins', dict(load.BACKENDS))
  return load.BACKENDS


def test_an_unknown_backend_lists_the_known_ones():
  config = load.BackendConfig('grpc', 'model')
  with pytest.raises(
    ValueError, match="backend 'grpc': expected one of jax, h"
  ):
    load.load_backend(config)


def test_a_backend_from_outside_is_loaded_with_its_options(table):
  def loader(config, mesh):
    return ScriptedBackend(lambda request: config.options['answer'])

  load.register('fixed', loader)
  config = load.BackendConfig('fixed', 'model', options={'answer': '42'})
  backend = load.load_backend(config)
  assert backend._answer_fn(None) == '42'


def test_a_loader_with_other_arguments_is_refused(table):
  with pytest.raises(TypeError, match=r"'short' must take \(config, mesh\)"):
    load.register('short', lambda config: None)


def test_kept_prompts_leave_memory_to_the_rest(monkeypatch):
  monkeypatch.setattr(load.host_memory, 'total_bytes', lambda: 9 * 2**30)
  assert load._prompt_cache_bytes(8.0) == 3 * 2**30
  assert load._prompt_cache_bytes(1.0) == 2**30
  monkeypatch.setattr(load.jax, 'default_backend', lambda: 'gpu')
  assert load._prompt_cache_bytes(8.0) == 8 * 2**30
