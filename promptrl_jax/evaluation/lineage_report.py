"""Where the prompts of a population come from: a page and a figure.

  population, history, usage ──> trace ──> members at their places
                                              ├──> write: one HTML file
                                              └──> draw: a PNG file

Generations stand in columns. A prompt hangs at the main one of its parents, and
the branch with the best prompt is the uppermost. Prompts without parents and
children stand apart.
"""

from __future__ import annotations

import dataclasses
import math
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from promptrl_jax.evaluation import canvas, html_page
from promptrl_jax.evolution.population import (
  Individual,
  Population,
  draw_lineage,
  nodes,
)
from promptrl_jax.files import write_atomically
from promptrl_jax.prompts import lineage

_STYLES = ('page', 'tables', 'charts', 'trace', 'media', 'lineage/lineage')
_SCRIPTS = (
  *('dom', 'text', 'lineage/data', 'lineage/tree', 'lineage/prompt'),
  'lineage/main',
)


@dataclasses.dataclass(frozen=True)
class Usage:
  """What people saw of a prompt.

  Attributes:
    shown: answers of it that were shown.
    heard: what was said of them, each from 0 to 1.
  """

  shown: int = 0
  heard: tuple[float, ...] = ()


@dataclasses.dataclass(frozen=True)
class Place:
  """Where a prompt stands.

  Attributes:
    column: number of its generation among those that are drawn; -1: it has
      neither parents nor children there.
    row: place among the leaves, or among those that stand apart, from 0.
  """

  column: int
  row: float


@dataclasses.dataclass(frozen=True)
class Member:
  """A prompt of the drawing.

  Attributes:
    individual: the prompt, with its last fitness.
    operator: what made it, in words.
    is_alive: whether it is in the population.
    usage: what people saw of it.
    place: among all prompts.
    few: among those that live, that people saw, and their ancestors; None: it
      is none of them.
  """

  individual: Individual
  operator: str
  is_alive: bool
  usage: Usage
  place: Place
  few: Place | None


def trace(
  population: Population,
  history: Iterable[Individual],
  usage: Mapping[str, Usage],
) -> list[Member]:
  """Returns all prompts that there were, from the uppermost branch down.

  Args:
    population: those that live.
    history: all that there were.
    usage: by the ids of prompts; others were not shown.

  Raises:
    ValueError: a prompt is its own ancestor.
  """
  known = {one.id: one for one in (*history, *population.individuals)}
  living = {one.id for one in population.individuals}
  wanted = [name for name in known if name in living or name in usage]
  kin = {node.id for node in lineage.ancestors(nodes(known.values()), wanted)}
  everywhere = _places(list(known.values()))
  among_few = _places([one for one in known.values() if one.id in kin])
  return [
    Member(
      known[name],
      operator(
        known[name], [known[p] for p in known[name].parents if p in known]
      ),
      name in living,
      usage.get(name, Usage()),
      place,
      among_few.get(name),
    )
    for name, place in everywhere.items()
  ]


def operator(child: Individual, parents: Sequence[Individual]) -> str:
  """Returns what made a prompt, which its sections show.

  A section that no parent has like that was changed, by a guided mutation if a
  hint was to change it.
  """
  if not parents:
    return 'drawn at the beginning'
  changed = [
    name
    for name in child.genome.filled
    if not any(
      child.genome.sections[name].strip()
      == parent.genome.sections.get(name, '').strip()
      for parent in parents
    )
  ]
  made = ['crossover'] if len(parents) > 1 else []
  if child.guided in changed:
    made.append(f'guided mutation of {child.guided}')
    changed.remove(child.guided)
  if changed:
    made.append(f'mutation of {", ".join(changed)}')
  return ' and '.join(made) or 'copy'


def report(
  folder: pathlib.Path,
  population: Population,
  history: Sequence[Individual],
  usage: Mapping[str, Usage],
  title: str,
) -> list[Member]:
  """Writes `lineage.txt` and `lineage.html` of `trace`, which is returned.

  Raises:
    ValueError: there are no prompts, or one is its own ancestor.
  """
  drawn = draw_lineage(population, history)
  write_atomically(folder / 'lineage.txt', f'{drawn}\n'.encode())
  members = trace(population, history, usage)
  write(folder / 'lineage.html', members, title)
  return members


def write(
  path: str | os.PathLike[str], members: Sequence[Member], title: str
) -> pathlib.Path:
  """Writes a page that shows the lineage; returns its path.

  Args:
    members: of `trace`.
    title: of the page.

  Raises:
    ValueError: there are no prompts.
  """
  _check(members)
  data = {'members': [_plain(member) for member in members]}
  page = html_page.render(
    'lineage/lineage.html', title, styles=_STYLES, scripts=_SCRIPTS, data=data
  )
  return write_atomically(path, page.encode())


def draw(
  path: str | os.PathLike[str], members: Sequence[Member], title: str
) -> pathlib.Path:
  """Draws those that live, that people saw, and their ancestors, as PNG.

  Raises:
    ValueError: there are no prompts.
  """
  from matplotlib import colormaps
  from matplotlib.cm import ScalarMappable
  from matplotlib.colors import Normalize

  _check(members)
  few = {m.individual.id: m for m in members if m.few and m.few.column >= 0}
  at = {
    name: (m.individual.generation, -m.few.row)
    for name, m in few.items()
    if m.few
  }
  rows = 1 - min((y for _, y in at.values()), default=0.0)
  figure = canvas.new_figure(7.5, min(1.6 + 0.13 * rows, 30.0))
  axes = figure.subplots()
  for name, member in few.items():
    for i, parent in enumerate(p for p in member.individual.parents if p in at):
      xs, ys = zip(at[parent], at[name], strict=True)
      style = '--' if i else '-'
      axes.plot(xs, ys, style, color=canvas.GREY, linewidth=0.8, zorder=1)
  fitness = np.array([m.individual.fitness for m in few.values()], np.float64)
  if np.isnan(fitness).all():
    low, high = 0.0, 1.0
  else:
    low, high = float(np.nanmin(fitness)), float(np.nanmax(fitness))
  scale = ScalarMappable(
    Normalize(low, high), colormaps['viridis'].with_extremes(bad='white')
  )
  axes.scatter(
    [x for x, _ in at.values()],
    [y for _, y in at.values()],
    s=26,
    c=scale.to_rgba(np.ma.masked_invalid(fitness)),
    edgecolors=[canvas.INK if m.is_alive else '#999999' for m in few.values()],
    linewidths=[1.4 if m.is_alive else 0.5 for m in few.values()],
    zorder=2,
  )
  canvas.clean(axes, 'x')
  axes.spines['left'].set_visible(False)
  axes.set_yticks([])
  axes.set_xlabel('generation (ringed: in the population)', color=canvas.INK)
  figure.colorbar(scale, ax=axes, label='fitness', fraction=0.05, aspect=25)
  canvas.title(axes, title)
  return canvas.save(figure, path)


def _check(members: Sequence[Member]) -> None:
  if not members:
    raise ValueError('no prompts: expected at least one')


def _places(individuals: Sequence[Individual]) -> dict[str, Place]:
  """Where they stand, by id, from the uppermost branch down."""
  table = {one.id: one for one in individuals}
  bred = {one.id for one in individuals if any(p in table for p in one.parents)}
  kin = bred | {p for one in individuals for p in one.parents}
  best: dict[str, float] = {}  # of the branch
  for row in reversed(lineage.forest(nodes(individuals))):
    name, fitness = row.node.id, row.node.score
    mine = -math.inf if fitness is None else fitness
    best[name] = max(best.get(name, -math.inf), mine)
    parent = next((p for p in row.node.parents if p in table), None)
    if parent is not None:
      best[parent] = max(best.get(parent, -math.inf), best[name])
  order = sorted(individuals, key=lambda one: -best[one.id])
  rows = lineage.forest(nodes(one for one in order if one.id in kin))
  columns = np.unique([one.generation for one in order if one.id in kin])
  places = {
    row.node.id: Place(
      int(np.searchsorted(columns, table[row.node.id].generation)), beside
    )
    for row, beside in zip(rows, lineage.places(rows), strict=True)
  }
  alone = [one.id for one in order if one.id not in kin]
  return places | {name: Place(-1, float(i)) for i, name in enumerate(alone)}


def _plain(member: Member) -> dict[str, Any]:
  one, heard = member.individual, member.usage.heard
  return {
    'id': one.id,
    'parents': one.parents,
    'generation': one.generation,
    'fitness': one.fitness,
    'text': one.genome.render(),
    'operator': member.operator,
    'alive': member.is_alive,
    'shown': member.usage.shown,
    'heard': len(heard),
    'liked': math.fsum(heard) / len(heard) if heard else None,
    'all': dataclasses.astuple(member.place),
    'few': member.few and dataclasses.astuple(member.few),
  }
