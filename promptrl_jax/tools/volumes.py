"""Bytes that a training step sends, computed from its sharding.

`collectives.read` counts the same bytes in a compiled step. All functions
return the bytes that one device sends with ring algorithms, which send the
least (Patarasuk and Yuan, 2009); n is the number of devices along an axis.
"""

from __future__ import annotations


def all_gather(size: int, n: int) -> float:
  """Returns (n - 1) / n * S, where S are the bytes of the result."""
  return size * (n - 1) / n


def reduce_scatter(size: int, n: int) -> float:
  """Returns (n - 1) / n * S, where S are the bytes of the argument."""
  return size * (n - 1) / n


def all_reduce(size: int, n: int) -> float:
  """Returns 2 (n - 1) / n * S: a reduce-scatter and an all-gather."""
  return 2 * size * (n - 1) / n


def data(gradients: int, n: int, *, micro_batches: int = 1) -> float:
  """Returns the bytes of data parallelism, which sums gradients over devices.

  The volume 2 (n - 1) / n * gradients is nearly constant in n, so a step scales
  as long as computing takes longer than sending.

  Args:
    micro_batches: micro-batches of a step. XLA sums over devices within the
      loop over micro-batches and not once after it.
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
  """Returns the bytes of fully sharded data parallelism for a micro-batch.

  The volume (n - 1) / n * (gathers * params + gradients) is one and a half
  times that of data parallelism, for one n-th of the memory (ZeRO 3, arXiv
  1910.02054, section 7), with sizes in bytes.

  Args:
    gathers: number of all-gathers of the parameters: one in the forward pass
      and, with rematerialised layers, another in the backward pass. Without
      them the gathered parameters of all layers stay in memory.
    scatters: whether XLA uses reduce-scatter. On CPU devices it uses an
      all-reduce, which sends twice as much.
  """
  reduce = reduce_scatter if scatters else all_reduce
  return gathers * all_gather(params, n) + reduce(gradients, n)


def tensor(
  activations: int, layers: int, n: int, *, remat: bool = False
) -> float:
  """Returns the bytes of tensor parallelism of attention and MLP.

  Attention and MLP each end in a product whose terms are on all devices, which
  takes one all-reduce of the activations, and the backward pass takes one for
  the inputs of each (arXiv 1909.08053, section 3). So a layer sends
  4 * 2 (n - 1) / n * activations. That is nearly constant in n while the
  computation per device shrinks, so n should stay within a machine.

  Args:
    activations: bytes of one [B, T, D] for the rows of one device.
    remat: whether layers are rematerialised. The backward pass then repeats the
      all-reduce of the attention; the MLP's output is not needed again.
  """
  return layers * (5 if remat else 4) * all_reduce(activations, n)
