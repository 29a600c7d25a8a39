"""KL references and the KL coefficient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from promptrl_jax.rl import kl_control
from promptrl_jax.training.rewriter import reference
from promptrl_jax.training.rewriter.reference import ReferenceConfig

START = {'params': {'kernel': jnp.array([0.0, 4.0])}}
FIXED = {'other': {'kernel': jnp.array([9.0])}}


def trained(step):
  return jax.tree.map(lambda x: x + step, START)


def after(config, steps):
  """The kernel of the reference after each of some updates."""
  found, kernels = reference.initial(config, START), []
  for step in range(1, steps + 1):
    found = reference.after_update(config, found, trained(step), step)
    kernels.append(found['params']['kernel'].tolist())
  return kernels


def test_a_frozen_reference_stays():
  assert after(ReferenceConfig('frozen'), 3) == [[0, 4]] * 3


def test_a_copy_follows_every_n_updates():
  found = after(ReferenceConfig('copy', every=2), 5)
  assert found == [[0, 4], [2, 6], [2, 6], [4, 8], [4, 8]]


def test_an_average_follows_slowly():
  found = after(ReferenceConfig('ema', decay=0.75), 2)
  # 0.75 * 0 + 0.25 * 1, then 0.75 * 0.25 + 0.25 * 2.
  np.testing.assert_allclose(found, [[0.25, 4.25], [0.6875, 4.6875]])


@pytest.mark.parametrize('kind', ['none', 'adapter_off', 'model'])
def test_kinds_without_arrays(kind):
  config = ReferenceConfig(kind, model='other' * (kind == 'model'))
  assert reference.initial(config, START) == {}
  assert reference.after_update(config, {}, trained(1), 1) == {}


def test_the_reference_has_arrays_of_its_own():
  # Those of the policy are donated to its update.
  found = reference.initial(ReferenceConfig('frozen'), START)
  kernel = found['params']['kernel']
  assert kernel is not START['params']['kernel']
  pointers = [
    x.unsafe_buffer_pointer() for x in (kernel, START['params']['kernel'])
  ]
  assert pointers[0] != pointers[1]


def test_the_parameters_of_each_kind():
  adapters = {'adapters': {'a': jnp.ones(2)}}
  fixed = {'params': {'kernel': jnp.array([1.0])}}
  of = lambda kind, *trees: reference.parameters(ReferenceConfig(kind), *trees)
  assert of('none', {}, FIXED) is None
  assert of('frozen', START, FIXED) == {**FIXED, **START}
  assert of('frozen', adapters, fixed) == {**fixed, **adapters}
  assert of('adapter_off', {}, fixed) == fixed


def kl_coefs(measured, **settings):
  config = ReferenceConfig(kl_coef=0.1, **settings)
  control, found = kl_control.initial(config.kl_coef), []
  for value in measured:
    control = reference.next_kl_control(config, control, jnp.float32(value))
    found.append(float(control.coef))
  return found


def test_kl_coefficients_by_hand():
  assert kl_coefs([0.0, 9.0], control='fixed') == pytest.approx([0.1, 0.1])
  # Twice the target is an error of 1, which is cut off at 0.2; a tenth of that
  # is added. On target nothing changes, a tenth below takes 1 percent.
  found = kl_coefs([0.1, 0.05, 0.045], control='adaptive', target=0.05)
  assert found == pytest.approx([0.102, 0.102, 0.102 * 0.99])
  found = kl_coefs([0.0] * 5, control='linear', end=0.02, steps=4)
  assert found == pytest.approx([0.08, 0.06, 0.04, 0.02, 0.02])


@pytest.mark.parametrize(
  ('settings', 'message'),
  [
    ({'kind': 'frosen'}, "reference kind='frosen'"),
    ({'control': 'pid'}, "reference control='pid'"),
    ({'kind': 'model'}, "kind='model' with model='': the kind `model` needs"),
    ({'model': 'folder'}, "kind='frozen' with model='folder'"),
  ],
)
def test_unknown_names_are_told(settings, message):
  with pytest.raises(ValueError, match=message):
    ReferenceConfig(**settings)
