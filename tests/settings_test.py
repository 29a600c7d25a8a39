"""Settings go through plain data and back, and errors name the field."""

import dataclasses
import json
from collections.abc import Mapping

import pytest

from promptrl_jax import settings


@dataclasses.dataclass(frozen=True)
class Inner:
  rate: float = 0.5
  names: tuple[str, ...] = ('a', 'b')
  limit: int | None = None


@dataclasses.dataclass(frozen=True)
class Outer:
  count: int
  inner: Inner = Inner()
  pairs: tuple[tuple[int, Inner], ...] = ()
  options: Mapping[str, float] = dataclasses.field(default_factory=dict)
  flag: bool = False
  steps: int = settings.derived(1)


@pytest.mark.parametrize(
  'value',
  [
    Outer(1),
    Outer(2, Inner(1.0, (), 3), ((4, Inner()),), {'clip': 0.2}, True),
  ],
)
def test_settings_go_through_json_and_back(value):
  plain = json.loads(json.dumps(settings.to_mapping(value)))
  assert settings.from_mapping(Outer, plain) == value


@pytest.mark.parametrize(
  ('plain', 'message'),
  [
    ({'count': 1, 'cuont': 2}, 'cuont: no such setting, expected one of count'),
    ({}, 'count: the setting has no default'),
    ({'count': 1.5}, 'count=1.5: expected a value of type int'),
    ({'count': True}, 'count=True'),
    ({'count': 1, 'flag': 1}, 'flag=1: expected a value of type bool'),
    ({'count': 1, 'inner': {'rtae': 1}}, 'inner.rtae: no such setting'),
    ({'count': 1, 'inner': 3}, 'inner=3: expected settings by name'),
    ({'count': 1, 'inner': {'names': 'ab'}}, "inner.names='ab': expected a"),
    ({'count': 1, 'inner': {'names': [1]}}, r'inner.names\[0\]=1'),
  ],
)
def test_what_does_not_fit_is_named(plain, message):
  with pytest.raises(ValueError, match=message):
    settings.from_mapping(Outer, plain)


def test_whole_numbers_are_floats_where_floats_are_expected():
  made = settings.from_mapping(Outer, {'count': 1, 'inner': {'rate': 2}})
  assert made.inner.rate == 2.0 and isinstance(made.inner.rate, float)


def test_flags_may_override_all_but_what_is_derived():
  config = settings.to_config_dict(Outer(1)).lock()
  assert 'steps' not in config
  config.inner.limit = 3  # A placeholder knows its type.
  config.options = (('clip', 0.2),)
  with pytest.raises(AttributeError):
    config.inner.rtae = 1.0
  with pytest.raises(TypeError):
    config.inner.limit = 'three'
  read = settings.from_mapping(Outer, config.to_dict())
  assert read == Outer(1, Inner(limit=3), options={'clip': 0.2})
  with pytest.raises(ValueError, match=r'options=\(1,\): expected values by'):
    settings.from_mapping(Outer, {'count': 1, 'options': (1,)})


def test_an_override_changes_fields_and_leaves_the_rest():
  base = Outer(1, Inner(0.25), options={'clip': 0.2})
  changed = settings.override(base, {'inner': {'limit': 2}, 'flag': True})
  assert changed == Outer(1, Inner(0.25, limit=2), (), {'clip': 0.2}, True)
  with pytest.raises(ValueError, match='inner.rtae: no such setting'):
    settings.override(base, {'inner': {'rtae': 1}})
