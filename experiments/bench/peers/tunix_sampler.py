"""Times the sampler of Tunix; `workload` defines input and output.

It runs on one device, where XLA uses all cores for each product, and with
weights split over two devices. Rows are not split over devices: Tunix has no
sharding constraints on CPU devices, so both devices would compute all rows.
"""

from __future__ import annotations

import itertools

import jax
import tunix_qwen2
import workload
from tunix.generate.sampler import CacheConfig, Sampler


class Ids:
  """A tokenizer for prompts of token ids, without end and padding ids."""

  def encode(self, ids):
    return ids

  def decode(self, ids):
    return ''

  def bos_id(self):
    return None

  def eos_id(self):
    return -2

  def pad_id(self):
    return -1


def make_sampler(work: workload.Workload, dtype: str, devices: int) -> Sampler:
  """Returns a sampler with random weights and a cache of minimal size."""
  config = tunix_qwen2.config(work.shape, dtype, dtype, sampling=True)
  model = tunix_qwen2.make_model(config, tunix_qwen2.mesh(devices))
  cache = CacheConfig(
    cache_size=work.prompt + work.new,
    num_layers=config.num_layers,
    num_kv_heads=config.num_kv_heads,
    head_dim=config.head_dim,
  )
  return Sampler(model, Ids(), cache)


def main() -> None:
  work = workload.read()
  jax.config.update('jax_platforms', 'cpu')
  jax.config.update('jax_num_cpu_devices', 2)
  for dtype, devices in itertools.product(work.dtypes, (1, 2)):
    sampler = make_sampler(work, dtype, devices)
    seeds = itertools.count()

    def sample(prompts, sampler=sampler, seeds=seeds):
      return sampler(
        prompts,
        max_generation_steps=work.new,
        max_prompt_length=work.prompt,
        temperature=1.0,
        top_p=1.0,  # without it, Tunix is greedy
        seed=next(seeds),
      ).tokens

    workload.measure(work, 'tunix', sample, dtype=dtype, devices=devices)


if __name__ == '__main__':
  main()
