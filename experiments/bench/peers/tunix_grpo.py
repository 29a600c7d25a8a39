"""Times GRPO of Tunix; `iterations` defines input and output.

It runs on one device, where XLA uses all cores for each product, and with
weights split over two devices.
"""

from __future__ import annotations

import itertools

import iterations
import jax
import tunix_rl
from tunix.rl.grpo.grpo_learner import GRPOConfig, GRPOLearner


def main() -> None:
  work = iterations.read()
  jax.config.update('jax_platforms', 'cpu')
  jax.config.update('jax_num_cpu_devices', 2)
  for dtype, devices in itertools.product(work.dtypes, (1, 2)):
    cluster = tunix_rl.make_cluster(work, dtype, devices, critic=False)
    learner = GRPOLearner(
      rl_cluster=cluster,
      reward_fns=tunix_rl.make_reward_fn(work),
      algo_config=GRPOConfig(
        num_generations=work.group,
        num_iterations=1,
        beta=work.beta,
        kl_loss_mode='low_var_kl',
      ),
    )
    clock = tunix_rl.train(work, learner, 1, [cluster.actor_trainer.model])
    iterations.report(
      clock.line(
        'tunix', 'grpo', dtype=dtype, devices=devices, models='policy+reference'
      )
    )


if __name__ == '__main__':
  main()
