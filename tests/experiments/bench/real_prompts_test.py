"""How rates on real prompts are compared with peers, without any of them."""

from experiments.bench.ratios import ratios


def line(rate, dtype='bfloat16', at_once=64, beside=0, sampler='promptrl_jax'):
  return {
    'sampler': sampler,
    'dtype': dtype,
    'at_once': at_once,
    'beside': beside,
    'tokens_per_s': rate,
  }


def test_the_best_of_each_is_compared_and_busy_rates_are_not():
  mine = [
    line(300.0),
    line(400.0, 'int8'),
    line(80.0, at_once=1),
    line(900.0, beside=1),
    line(150.0, beside=2),
  ]
  theirs = [
    line(200.0, 'BF16', 32, sampler='llama.cpp'),
    line(100.0, 'F16', 32, sampler='llama.cpp'),
    line(40.0, 'BF16', 1, sampler='llama.cpp'),
    line(64.0, 'F16', 1, sampler='llama.cpp'),
    line(160.0, 'bfloat16', 32, sampler='vllm'),
  ]
  assert list(ratios(mine, theirs)) == [
    {'over_llama.cpp_at_once': 2.0},
    {'over_vllm_at_once': 2.5},
    {'over_llama.cpp_one_by_one_BF16': 1.25},
    {'beside_1_busy_over_quiet': 3.0},
    {'beside_2_busy_over_quiet': 0.5},
  ]
