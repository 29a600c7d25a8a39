// Which problems are solved: by kind, and by one strategy alone.

const FEW_GROUPS = 14; // More are rows, and the strategies columns.
let grouping = '';

// A share as a cell of a table that is darker the larger it is.
function rate(share) {
  const cell = el('td', { class: 'number heat' }, percent(share));
  cell.style.setProperty('--share', share);
  return cell;
}

function groups() {
  const kinds = Object.keys(table().groups);
  if (!kinds.includes(grouping)) grouping = kinds[0];
  const { groups: names, cells } = table().groups[grouping];
  const chosen = cells.filter((cell) => cell.budget === state.budget);
  const label = (group) => [group.name, el('small', {}, `n=${group.problems}`)];
  const across = names.length <= FEW_GROUPS;
  const columns = across
    ? names.map(label)
    : chosen.map((cell) => cell.strategy);
  const rows = across
    ? chosen.map((cell) => [cell.strategy, cell.rates])
    : names.map((group, i) => [
        label(group),
        chosen.map((cell) => cell.rates[i]),
      ]);
  return [
    segments(
      'by',
      kinds.map((kind) => [kind, kind]),
      grouping,
      (kind) => {
        grouping = kind;
        update({});
      },
    ),
    scrolling(
      'Breakdown',
      `pass@1 in % at ${budgetName(state.budget)} by ${
        grouping
      }, n problems each`,
      grid(
        [el('td', {}), columns.map((name) => columnHead(name))],
        rows.map(([name, rates]) => strategyRow(name, rates.map(rate))),
        { class: 'heatmap' },
      ),
      across ? '' : 'tall',
    ),
  ];
}

function alone() {
  const rows = table().alone.filter((row) => row.budget === state.budget);
  const note =
    'Problems that a strategy solves in at least half of its seeds ' +
    'and no other strategy in any seed. Strategies with equal outcomes ' +
    'throughout count as one.';
  if (!rows.length)
    return [
      el('p', { class: 'note' }, note),
      el('p', {}, 'There is no such problem at this budget.'),
    ];
  const link = (row, task) => {
    const game = row.strategies
      .map((name) => findGame(state.protocol, name, state.budget))
      .find(Boolean);
    return el(
      'li',
      {},
      game ? el('a', { href: hashOf(game, task) }, task) : task,
    );
  };
  return scrolling(
    'Solved by one strategy alone',
    note,
    grid(
      [columnHead('strategy', ''), columnHead('problems'), el('td', {})],
      rows.map((row) =>
        el(
          'tr',
          {},
          el('th', { scope: 'row' }, row.strategies.join(' = ')),
          el('td', { class: 'number' }, row.problems.length),
          el(
            'td',
            {},
            el(
              'ul',
              { class: 'chips' },
              row.problems.map((task) => link(row, task)),
            ),
          ),
        ),
      ),
    ),
    'tall',
  );
}
