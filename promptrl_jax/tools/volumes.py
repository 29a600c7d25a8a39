"""How many bytes a training step sends, by the arithmetic of its sharding.

What `communication.read` finds in a compiled step should be these. Each is for
one device and ring algorithms, which move the least (Patarasuk and Yuan, 2009);
n is the number of devices along an axis.
"""

from __future__ import annotations


def all_gather(size: int, n: int) -> float:
  """(n - 1) / n * S: each part passes every other device. S: the result."""
  return size * (n - 1) / n


def reduce_scatter(size: int, n: int) -> float:
  """(n - 1) / n * S, S: the argument."""
  return size * (n - 1) / n


def all_reduce(size: int, n: int) -> float:
  """2 (n - 1) / n * S: a reduce-scatter and an all-gather."""
  return 2 * size * (n - 1) / n


def data(gradients: int, n: int, *, micro_batches: int = 1) -> float:
  """Data parallelism: gradients are summed over the devices.

  2 (n - 1) / n * gradients: nearly constant, so a step scales as long as it
  computes longer than that takes.

  Args:
    gradients: bytes of all gradients.
    n: devices.
    micro_batches: how many a step has: XLA sums over the devices within the
      loop over them, and not once after it.
  """
  return micro_batches * all_reduce(gradients, n)


def fsdp(
  params: int,
  gradients: int,
  n: int,
  *,
  gathers: int = 2,
  scatters: bool = True,
) -> float:
  """Fully sharded data parallelism (ZeRO 3, arXiv 1910.02054, section 7).

  (n - 1) / n * (gathers * params + gradients): one and a half times what data
  parallelism sends, for a n-th of the memory.

  Args:
    params: bytes of the parameters that are split.
    gradients: bytes of their gradients.
    n: devices.
    gathers: how often parameters are fetched for one micro-batch: forward and,
      where layers are computed again, backward. Where they are not, one fetch
      is enough, and all layers' whole parameters stay until backward.
    scatters: whether the compiler knows reduce-scatter. For CPU devices it does
      not: an all-reduce, of which each device keeps its part, sends twice that.
  """
  reduce = reduce_scatter if scatters else all_reduce
  return gathers * all_gather(params, n) + reduce(gradients, n)


def tensor(
  activations: int, layers: int, n: int, *, remat: bool = False
) -> float:
  """Tensor parallelism of a block's two halves (arXiv 1909.08053, section 3).

  Attention and MLP each end in a product whose terms lie on all devices: one
  all-reduce of the activations. Backward the same holds for their inputs. So
  each layer sends 4 * 2 (n - 1) / n * activations; nearly constant in n, while
  the work of a device shrinks: keep n within a machine.

  Args:
    activations: bytes of one [B, T, D] of the rows of one device.
    layers: L.
    n: devices.
    remat: layers are computed again: the first half's sum is needed again,
      nobody reads the second's.
  """
  return layers * (5 if remat else 4) * all_reduce(activations, n)
