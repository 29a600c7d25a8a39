"""Times PPO of Tunix; `iterations` defines input and output.

The critic is a model of the policy's size, as in TRL. It runs on one device,
where XLA uses all cores for each product, and with weights split over two
devices.
"""

from __future__ import annotations

import itertools

import iterations
import jax
import tunix_rl
from tunix.rl.ppo.ppo_learner import PPOConfig, PPOLearner


def main() -> None:
  work = iterations.read()
  jax.config.update('jax_platforms', 'cpu')
  jax.config.update('jax_num_cpu_devices', 2)
  for dtype, devices in itertools.product(work.dtypes, (1, 2)):
    cluster = tunix_rl.make_cluster(work, dtype, devices, critic=True)
    learner = PPOLearner(
      rl_cluster=cluster,
      reward_fns=tunix_rl.make_reward_fn(work),
      ppo_config=PPOConfig(num_iterations=1, beta=work.beta, kl_method='kl'),
    )
    trained = [cluster.actor_trainer.model, cluster.critic_trainer.model]
    clock = tunix_rl.train(work, learner, work.group, trained)
    iterations.report(
      clock.line(
        'tunix',
        'ppo',
        dtype=dtype,
        devices=devices,
        models='policy+reference+critic',
      )
    )


if __name__ == '__main__':
  main()
