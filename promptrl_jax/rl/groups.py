"""Advantages of a sequence relative to the others that share its prompt.

One row is one sequence, and an index per row gives its group. Groups may thus
differ in size, have their rows in any order and contain invalid rows.
"""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp

from promptrl_jax.rl.masked import keep

SCALES = ('std', 'sample_std', 'none')


def _centered(
  rewards: jax.Array,
  groups: jax.Array,
  num_groups: int,
  valid: jax.Array | None,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
  """Subtracts from each reward the mean of its group.

  Returns:
    `[N]` centered rewards, 0 where invalid; size of each row's group; each
    row's group; valid rows.
  """
  rewards = jnp.asarray(rewards, jnp.result_type(rewards, jnp.float32))
  groups = jnp.asarray(groups)
  if valid is None:
    valid = jnp.ones(rewards.shape, bool)
  chex.assert_rank(rewards, 1)
  chex.assert_equal_shape([rewards, groups, valid])
  if not jnp.issubdtype(groups.dtype, jnp.integer):
    raise ValueError(
      f'groups have the type {groups.dtype}: expected integers in [0, '
      f'{num_groups}), the index of the prompt of each row'
    )
  valid = jnp.asarray(valid, bool)
  inside = (groups >= 0) & (groups < num_groups)
  index = jnp.where(valid & inside, groups, 0)
  # An index out of range cannot raise inside jit; NaN is hard to overlook.
  rewards = jnp.where(inside, rewards, jnp.nan)
  # Equal rewards become exact zeros, which their rounded mean would not.
  low = jax.ops.segment_min(
    jnp.where(valid, rewards, jnp.inf), index, num_groups
  )
  shifted = keep(rewards - low[index], valid)
  count = jax.ops.segment_sum(valid.astype(rewards.dtype), index, num_groups)
  total = jax.ops.segment_sum(shifted, index, num_groups)
  mean = total / jnp.maximum(count, 1)
  return keep(shifted - mean[index], valid), count[index], index, valid


def group_advantages(
  rewards: jax.Array,
  groups: jax.Array,
  num_groups: int,
  valid: jax.Array | None = None,
  *,
  scale: str = 'std',
) -> jax.Array:
  """Returns rewards relative to the mean reward of the same prompt.

    A_i = (r_i - mean_group r) / (std_group r + 1e-6)
    with scale 'none': A_i = r_i - mean_group r

  See "DeepSeekMath", Shao et al., 2024 (https://arxiv.org/abs/2402.03300),
  section 4.1.2 (GRPO), and for the form without a scale, which does not favour
  prompts that are almost always or almost never solved, "Understanding R1-Zero-
  Like Training", Liu et al., 2025 (https://arxiv.org/abs/2503.20783), section
  3 (Dr. GRPO). With one group and scale 'none' this is REINFORCE with the mean
  of the batch as its baseline.

  A group of one, or one whose rewards are all equal, gives exactly 0. A NaN
  among the valid rewards makes its group NaN and no other.

  Args:
    groups: `[N]` int in [0, B), the prompt of each row; a valid row out of that
      range makes the rows of group 0 NaN.
    valid: `[N]` bool, rows that count; None counts all.
    scale: 'std' divides by the population deviation, 'sample_std' by the
      sample deviation (n - 1), 'none' does not divide.

  Returns:
    `[N]` advantages, 0 where invalid.
  """
  if scale not in SCALES:
    raise ValueError(f'scale={scale!r}: expected one of {", ".join(SCALES)}')
  centered, count, index, valid = _centered(rewards, groups, num_groups, valid)
  if scale == 'none':
    return centered
  squares = jax.ops.segment_sum(jnp.square(centered), index, num_groups)[index]
  ddof = 1 if scale == 'sample_std' else 0
  std = jnp.sqrt(squares / jnp.maximum(count - ddof, 1))
  return keep(centered / (std + 1e-6), valid)


def leave_one_out(
  rewards: jax.Array,
  groups: jax.Array,
  num_groups: int,
  valid: jax.Array | None = None,
) -> jax.Array:
  """Returns rewards minus the mean reward of the *other* rows of the prompt.

    A_i = r_i - mean_{j != i} r_j = n / (n - 1) (r_i - mean r)

  See "Back to Basics", Ahmadian et al., 2024
  (https://arxiv.org/abs/2402.14740), RLOO. The baseline does not depend on
  the sequence it is subtracted from, so the gradient is unbiased. A group of
  one gives 0. Arguments are those of `group_advantages`.
  """
  centered, count, _, valid = _centered(rewards, groups, num_groups, valid)
  return keep(centered * count / jnp.maximum(count - 1, 1), valid)
