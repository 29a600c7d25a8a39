"""Plug-ins are found by name and refused if they cannot work."""

import sys

import pytest

from promptrl_jax.registry import Registry, import_plugins


def test_entries_are_found_by_name_in_the_order_of_registration():
  table = Registry('colour')
  table.register('red', 1)
  table.register('blue', 2)
  assert (table['red'], list(table), len(table)) == (1, ['red', 'blue'], 2)
  assert 'green' not in table


def test_an_unknown_name_lists_the_known_ones():
  table = Registry('colour')
  table.register('red', 1)
  with pytest.raises(ValueError, match="colour 'green': expected one of red"):
    table['green']


@pytest.mark.parametrize('name', ['red', 'two words', '', 3])
def test_a_name_that_is_taken_or_is_none_is_refused(name):
  table = Registry('colour')
  table.register('red', 1)
  with pytest.raises(ValueError, match='colour'):
    table.register(name, 2)


def test_the_check_of_the_kind_comes_before_the_entry():
  def check(name, plugin):
    if plugin < 0:
      raise ValueError(f'{name} is negative')

  table = Registry('colour', check)
  with pytest.raises(ValueError, match='red is negative'):
    table.register('red', -1)
  assert 'red' not in table


def test_plugins_are_imported_and_a_missing_one_is_named(tmp_path, monkeypatch):
  (tmp_path / 'own_plugin_for_test.py').write_text('LOADED = True')
  monkeypatch.syspath_prepend(tmp_path)
  import_plugins(['own_plugin_for_test'])
  assert sys.modules.pop('own_plugin_for_test').LOADED
  with pytest.raises(ValueError, match="'no.such' cannot be imported"):
    import_plugins(['no.such'])
