// The tables of the page. Each function returns an element for what is shown.

const order = { column: 'file', down: true };

function headline() {
  const value = (strategy) => (order.column === 'name' ? strategy
    : cellAt(strategy, order.column)?.[state.metric].mean ?? -1);
  const rows = strategies();
  if (order.column !== 'file') {
    rows.sort((a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0));
    if (order.down) rows.reverse();
  }
  const best = new Map(budgets().map((budget) => [budget, Math.max(
    ...rows.map((name) => cellAt(name, budget)?.[state.metric].mean ?? -1))]));
  const head = (column, text) => {
    const sorted = order.column === column;
    return el('th', {
      scope: 'col', class: column === 'name' ? null : 'number',
      'aria-sort': sorted ? (order.down ? 'descending' : 'ascending') : 'none',
    }, el('button', {
      type: 'button', 'data-column': column,
      onclick: () => {
        order.down = sorted ? !order.down : column !== 'name';
        order.column = column;
        update({});
        document.querySelector(`[data-column="${column}"]`).focus();
      },
    }, text, el('span', { 'aria-hidden': 'true', class: 'arrow' },
      sorted ? (order.down ? '▼' : '▲') : '↕')));
  };
  const score = (strategy, budget) => {
    const found = cellAt(strategy, budget)?.[state.metric];
    if (!found) return el('td', { class: 'number' });
    const isBest = found.mean === best.get(budget);
    return el('td', { class: `number${isBest ? ' best' : ''}` },
      isBest && el('span', { class: 'sr-only' }, 'best '),
      isBest && el('span', { 'aria-hidden': 'true' }, '★ '),
      el('b', {}, percent(found.mean)),
      el('small', {}, interval(found.low, found.high),
        found.seed_sd !== null && ` ± ${percent(found.seed_sd)}`));
  };
  return scrolling('Scores', el('table', { class: 'headline' },
    el('caption', {}, `${metricName()} on hidden tests in %, [95 % interval] over `,
      'problems and seeds, ± standard deviation over seeds. ★: best of its column.'),
    el('thead', {}, el('tr', {}, head('name', 'strategy'),
      budgets().map((budget) => head(budget, budgetName(budget))))),
    el('tbody', {}, rows.map((name) => el('tr', {
      class: name === table().subject ? 'subject' : null,
    }, el('th', { scope: 'row' }, name),
    budgets().map((budget) => score(name, budget)))))));
}

function costTable() {
  const columns = [
    ['B', (c) => c.budget], ['seeds', (c) => c.seeds],
    ['calls', (c) => c.calls.toFixed(2)], ['programs run', (c) => c.attempts.toFixed(2)],
    ['tokens in', (c) => c.prompt_tokens.toFixed(0)],
    ['tokens out', (c) => c.completion_tokens.toFixed(0)],
    ['calls paid once', (c) => c.optimisation_calls.toLocaleString('en', { maximumFractionDigits: 0 })],
  ];
  return el('details', {},
    el('summary', {}, 'All costs as a table'),
    scrolling('Costs', el('table', {},
      el('caption', {}, 'Means per problem; calls paid once are those of training or search, before the first test problem.'),
      el('thead', {}, el('tr', {}, el('th', { scope: 'col' }, 'strategy'),
        columns.map(([name]) => el('th', { scope: 'col', class: 'number' }, name)))),
      el('tbody', {}, strategies().flatMap(cellsOf).map((cell) => el('tr', {},
        el('th', { scope: 'row' }, cell.strategy),
        columns.map(([, get]) => el('td', { class: 'number' }, get(cell)))))))));
}

const FEW_GROUPS = 14;  // More are rows, and the strategies columns.
let grouping = '';

function groups() {
  const kinds = Object.keys(table().groups);
  if (!kinds.includes(grouping)) grouping = kinds[0];
  const { groups: names, cells } = table().groups[grouping];
  const chosen = cells.filter((cell) => cell.budget === state.budget);
  const label = (group) => [group.name, el('small', {}, `n=${group.problems}`)];
  const rate = (share) => {
    const cell = el('td', { class: 'number heat' }, percent(share));
    cell.style.setProperty('--share', share);
    return cell;
  };
  const across = names.length <= FEW_GROUPS;
  const columns = across ? names.map(label) : chosen.map((cell) => cell.strategy);
  const rows = across
    ? chosen.map((cell) => [cell.strategy, cell.rates])
    : names.map((group, i) => [label(group), chosen.map((cell) => cell.rates[i])]);
  return [
    segments('by', kinds.map((kind) => [kind, kind]), grouping, (kind) => {
      grouping = kind;
      update({});
    }),
    scrolling('Breakdown', el('table', { class: 'heatmap' },
      el('caption', {}, `pass@1 in % at ${budgetName(state.budget)} by ${grouping}, n problems each`),
      el('thead', {}, el('tr', {}, el('td', {}),
        columns.map((name) => el('th', { scope: 'col', class: 'number' }, name)))),
      el('tbody', {}, rows.map(([name, rates]) => el('tr', {
        class: name === table().subject ? 'subject' : null,
      }, el('th', { scope: 'row' }, name), rates.map(rate))))), 'tall'),
  ];
}

function alone() {
  const rows = table().alone.filter((row) => row.budget === state.budget);
  const note = el('p', { class: 'note' },
    'Problems that a strategy solves in at least half of its seeds and no other strategy in any seed. ',
    'Strategies with equal outcomes throughout count as one.');
  if (!rows.length) return [note, el('p', {}, 'There is no such problem at this budget.')];
  const link = (row, task) => {
    const game = row.strategies.map((name) => findGame(state.protocol, name, state.budget)).find(Boolean);
    return el('li', {}, game ? el('a', { href: hashOf(game, task) }, task) : task);
  };
  return [note, scrolling('Solved by one strategy alone', el('table', {},
    el('thead', {}, el('tr', {}, ['strategy', 'problems', ''].map((text) =>
      el('th', { scope: 'col' }, text)))),
    el('tbody', {}, rows.map((row) => el('tr', {},
      el('th', { scope: 'row' }, row.strategies.join(' = ')),
      el('td', { class: 'number' }, row.problems.length),
      el('td', {}, el('ul', { class: 'chips' }, row.problems.map((task) => link(row, task)))))))), 'tall')];
}

function provenance() {
  const facts = [
    ['protocol', state.protocol + (table().label ? ` (${table().label})` : '')],
    ['budgets', `${budgets().join(', ')} model calls per problem`],
    ['problems', table().problems],
    ['bootstrap', `${table().resamples.toLocaleString('en')} resamples, seed ${table().seed}`],
    ...DATA.header,
  ];
  return el('dl', { class: 'facts' }, facts.map(([name, text]) =>
    [el('dt', {}, name), el('dd', {}, String(text))]));
}

function references() {
  const columns = ['strategy', 'model', 'data', 'strict', 'soft', 'source', 'note'];
  return scrolling('Published numbers', el('table', { class: 'published' },
    el('caption', {}, 'Percent, as reported; no intervals were given. Another protocol: not to be compared with the tables above.'),
    el('thead', {}, el('tr', {}, columns.map((name) =>
      el('th', { scope: 'col' }, { strict: 'solved', note: 'protocol there' }[name] ?? name)))),
    el('tbody', {}, DATA.references.rows.map((row) => el('tr', {}, columns.map((name) =>
      el('td', { class: ['strict', 'soft'].includes(name) ? 'number' : null },
        typeof row[name] === 'number' ? row[name].toFixed(2) : row[name])))))));
}
