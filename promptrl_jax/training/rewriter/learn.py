"""What a rewriter learns from one rollout: score, advantages, one update.

  Rollout ─► pack ─► score (policy, reference) ─► advantages ─► update

Where several processes share a run, each brings the rollout of its own tasks;
arrays are exchanged, and all of them update on one mesh.
"""

from __future__ import annotations

import dataclasses
import time

import jax
import jax.numpy as jnp
import numpy as np

from promptrl_jax.parallel import exchange
from promptrl_jax.training.rewriter import advantages as lm_advantages
from promptrl_jax.training.rewriter import packing, reference
from promptrl_jax.training.rewriter import update as lm_update
from promptrl_jax.training.rewriter.config import RewriterConfig
from promptrl_jax.training.rewriter.learner import Rewriter, RewriterState, Row
from promptrl_jax.training.rewriter.rollout import Rollout


def learn(
  made: Rewriter, state: RewriterState, rollout: Rollout
) -> tuple[RewriterState, Row]:
  """One update; `state` is donated. Without a completion, only a step.

  Args:
    made: the learner.
    state: the same on all processes.
    rollout: of this process.
  """
  started = time.perf_counter()
  phase = made.config.phase(int(state.step))
  config = made.config.phases[phase]
  rows = packing.pack(
    rollout.prompts, rollout.completions, rollout.owners, config.packing
  )
  # All processes give as many, or none of them learns.
  most, num_rows = exchange.gather_rows(
    np.asarray([[len(rollout.completions), len(rows.tokens)]])
  ).max(axis=0)
  if not most:
    learner = dataclasses.replace(state.learner, step=state.step + 1)
    waiting = {'time/score': 0.0, 'time/update': 0.0}
    return RewriterState(learner, state.reference, state.kl), waiting
  batch, sampler_logps = _gathered(config, rollout, most)
  first = jax.process_index() * (len(batch.rewards) // jax.process_count())
  rows = packing.part_of(rows, num_rows, first)
  on_mesh = exchange.global_rows(rows, made.mesh)
  all_rows = exchange.gather_rows(rows)
  batch, ref_hidden = _scored(made, config, state, batch, all_rows, on_mesh)
  advantages, returns = lm_advantages.advantages(
    config.advantage, batch, float(state.kl.coef)
  )
  spread = lambda x: None if x is None else packing.spread(rows, x)
  data = {
    'advantages': spread(advantages),
    'sampler_logps': spread(sampler_logps),
    'old_logps': None if config.update.is_one_step else spread(batch.logps),
    'ref_logps': spread(batch.ref_logps),
    'returns': spread(returns),
    'old_values': spread(batch.values),
  }
  scored = time.perf_counter()
  in_loss = config.exact_kl_in_loss
  learner, metrics = made.updates[phase](
    state.learner, made.fixed,
    lm_update.LMBatch(
      on_mesh, **exchange.global_rows(data, made.mesh),
      ref_hidden=ref_hidden if in_loss else None,
    ),
    state.kl.coef * config.advantage.kl_in_loss,
    made.reference_params(state) if in_loss else None,
  )  # fmt: skip
  step = int(learner.step)
  state = RewriterState(
    learner,
    reference.follow(config.reference, state.reference, learner.params, step),
    reference.steer(
      config.reference, state.kl, metrics.get('train/kl', jnp.zeros(()))
    ),
  )
  row = {name: float(value) for name, value in metrics.items()}
  there = all_rows.mask.any((1, 2))
  return state, row | {
    'rollout/trained_reward': float(
      np.mean(batch.rewards[batch.mask.any(1)], dtype=np.float64)
    ),
    'train/kl_coef': float(state.kl.coef),
    'train/packed': float(np.mean(all_rows.segments[there] > 0)),
    'time/score': scored - started,
    'time/update': time.perf_counter() - scored,
  }


def _gathered(
  config: RewriterConfig, rollout: Rollout, most: int
) -> tuple[lm_advantages.Scored, np.ndarray]:
  """Completions of all processes [N], and the sampler's log-probs [N, C].

  Groups stay within a process. N is that of a full batch, so that what follows
  is compiled once.

  Args:
    config: says how many that is.
    rollout: of this process.
    most: completions that any process has.
  """
  share = exchange.my_rows(config.rollout.prompts * config.rollout.group)
  count = max(share.stop - share.start, int(most))
  fill = [0] * (count - len(rollout.completions))
  mask = np.zeros((count, config.packing.lane_size), bool)
  sampler_logps = np.zeros(mask.shape, np.float32)
  for number, logps in enumerate(rollout.sampler_logps):
    mask[number, : len(logps)] = True
    sampler_logps[number, : len(logps)] = logps
  groups = np.asarray([*rollout.owners, *fill], np.int32)
  batch = lm_advantages.Scored(
    rewards=np.asarray([*rollout.rewards, *fill], np.float32),
    groups=groups + jax.process_index() * count,
    mask=mask,
  )
  return exchange.gather_rows((batch, sampler_logps))


def _scored(
  made: Rewriter,
  config: RewriterConfig,
  state: RewriterState,
  batch: lm_advantages.Scored,
  rows: packing.Packed,
  on_mesh: packing.Packed,
) -> tuple[lm_advantages.Scored, jax.Array | None]:
  """Adds log-probs and values, under policy and reference.

  Args:
    made, config, state: say which are needed.
    batch: N completions, of all processes.
    rows: of all processes.
    on_mesh: the same, split over devices.

  Returns:
    The batch, and the hidden states of the reference, which stay on the mesh;
    None unless they are needed.
  """
  gather = lambda x: packing.gather(
    rows, exchange.to_host(x), len(batch.rewards)
  )
  needs_policy = not config.update.is_one_step or (
    config.value_head or config.advantage.uses_logps
  )
  fields, hidden = {}, None
  compared = made.reference_params(state)
  if compared is not None:
    found = made.score_reference(compared, on_mesh)
    fields['ref_logps'], hidden = gather(found.logps), found.hidden
  if needs_policy:
    exact = (hidden, compared) if config.exact_kl_in_advantages else ()
    found = made.score(made.params(state), on_mesh, *exact)
    fields['logps'] = gather(found.logps)
    if found.values is not None:
      fields['values'] = gather(found.values)
    if found.divergences is not None:
      fields['exact_kl'] = gather(found.divergences)
  return dataclasses.replace(batch, **fields), hidden
