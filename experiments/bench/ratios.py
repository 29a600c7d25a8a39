"""How lines of `real_prompts` are compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

# Type of ours -> types of llama.cpp with as many bits.
LLAMA_TYPES = {
  'bfloat16': ('BF16', 'F16'),
  'int8': ('Q8_0',),
  'gguf': ('Q4_1',),
}


def ratios(
  mine: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
  """Our best rate over that of each peer, at once and one by one.

  One by one llama.cpp is compared at equal bits, by the best of its types.
  """
  quiet = [line for line in mine if not line['beside']]
  rates = lambda lines, alone: [
    line['tokens_per_s'] for line in lines if (line['at_once'] == 1) == alone
  ]
  for peer in dict.fromkeys(line['sampler'] for line in theirs):
    of_peer = [line for line in theirs if line['sampler'] == peer]
    ratio = max(rates(quiet, False)) / max(rates(of_peer, False))
    yield {f'over_{peer}_at_once': round(ratio, 2)}
  for dtype, kinds in LLAMA_TYPES.items():
    same = rates([line for line in theirs if line['dtype'] in kinds], True)
    own = rates([line for line in quiet if line['dtype'] == dtype], True)
    if same and own:
      ratio = round(own[0] / max(same), 2)
      yield {f'over_llama.cpp_one_by_one_{kinds[0]}': ratio}
  for busy in (line for line in mine if line['beside']):
    alone = next(
      line['tokens_per_s']
      for line in quiet
      if (line['dtype'], line['at_once']) == (busy['dtype'], busy['at_once'])
    )
    ratio = round(busy['tokens_per_s'] / alone, 2)
    yield {f'beside_{busy["beside"]}_busy_over_quiet': ratio}
