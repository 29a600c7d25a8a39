// The tables of the page. Each function returns an element for what is shown.

const order = { column: 'file', down: true };

function headline() {
  const value = (strategy) =>
    order.column === 'name'
      ? strategy
      : (cellAt(strategy, order.column)?.[state.metric].mean ?? -1);
  const rows = strategies();
  if (order.column !== 'file') {
    rows.sort((a, b) =>
      value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0,
    );
    if (order.down) rows.reverse();
  }
  const best = new Map(
    budgets().map((budget) => [
      budget,
      Math.max(
        ...rows.map((name) => cellAt(name, budget)?.[state.metric].mean ?? -1),
      ),
    ]),
  );
  const head = (column, text) => {
    const sorted = order.column === column;
    return el(
      'th',
      {
        scope: 'col',
        class: column === 'name' ? null : 'number',
        'aria-sort': sorted
          ? order.down
            ? 'descending'
            : 'ascending'
          : 'none',
      },
      el(
        'button',
        {
          type: 'button',
          'data-column': column,
          onclick: () => {
            order.down = sorted ? !order.down : column !== 'name';
            order.column = column;
            update({});
            document.querySelector(`[data-column="${column}"]`).focus();
          },
        },
        text,
        el(
          'span',
          { 'aria-hidden': 'true', class: 'arrow' },
          sorted ? (order.down ? '▼' : '▲') : '↕',
        ),
      ),
    );
  };
  const score = (strategy, budget) => {
    const found = cellAt(strategy, budget)?.[state.metric];
    if (!found) return el('td', { class: 'number' });
    const isBest = found.mean === best.get(budget);
    return el(
      'td',
      { class: `number${isBest ? ' best' : ''}` },
      isBest && el('span', { class: 'sr-only' }, 'best '),
      isBest && el('span', { 'aria-hidden': 'true' }, '★ '),
      el('b', {}, percent(found.mean)),
      el(
        'small',
        {},
        interval(found.low, found.high),
        found.seed_sd !== null && ` ± ${percent(found.seed_sd)}`,
      ),
    );
  };
  const caption =
    `${metricName()} on hidden tests in %, [95 % interval] over ` +
    'problems and seeds, ± standard deviation over seeds. ★: best of its column.';
  return scrolling(
    'Scores',
    caption,
    grid(
      [
        head('name', 'strategy'),
        budgets().map((budget) => head(budget, budgetName(budget))),
      ],
      rows.map((name) =>
        strategyRow(
          name,
          budgets().map((budget) => score(name, budget)),
        ),
      ),
      { class: 'headline' },
    ),
  );
}

function costTable() {
  const columns = [
    ['B', (c) => c.budget],
    ['seeds', (c) => c.seeds],
    [metricName(), (c) => percent(c[state.metric].mean)],
    ['calls', (c) => c.calls.toFixed(2)],
    ['programs run', (c) => c.attempts.toFixed(2)],
    ['tokens in', (c) => c.prompt_tokens.toFixed(0)],
    ['tokens out', (c) => c.completion_tokens.toFixed(0)],
    ['seconds', (c) => c.seconds?.toFixed(3) ?? 'unknown'],
    ['dollars', (c) => c.dollars?.toFixed(6) ?? 'unknown'],
    [
      'calls paid once',
      (c) =>
        c.optimisation_calls?.toLocaleString('en', {
          maximumFractionDigits: 0,
        }) ?? 'unknown',
    ],
  ];
  return el(
    'details',
    {},
    el('summary', {}, 'All costs as a table'),
    scrolling(
      'Costs',
      'Means per problem; seconds are wall time of this run, in which answers ' +
        'from a cache take none; calls paid once are those of training or ' +
        'search, before the first test problem.',
      grid(
        [
          columnHead('strategy', ''),
          columns.map(([name]) => columnHead(name)),
        ],
        strategies()
          .flatMap(cellsOf)
          .map((cell) =>
            el(
              'tr',
              {},
              el('th', { scope: 'row' }, cell.strategy),
              columns.map(([, get]) =>
                el('td', { class: 'number' }, get(cell)),
              ),
            ),
          ),
      ),
    ),
  );
}

function provenance() {
  const facts = [
    ['protocol', state.protocol + (table().label ? ` (${table().label})` : '')],
    ['budgets', `${budgets().join(', ')} model calls per problem`],
    ['problems', table().problems],
    [
      'bootstrap',
      `${table().resamples.toLocaleString('en')} resamples, seed ${table().seed}`,
    ],
    ...DATA.header,
  ];
  return el(
    'dl',
    { class: 'facts' },
    facts.map(([name, text]) => [
      el('dt', {}, name),
      el('dd', {}, String(text)),
    ]),
  );
}

function references() {
  const columns = [
    'strategy',
    'model',
    'data',
    'strict',
    'soft',
    'source',
    'note',
  ];
  const caption =
    'Percent, as reported; no intervals were given. Another ' +
    'protocol: not to be compared with the tables above.';
  return scrolling(
    'Published numbers',
    caption,
    grid(
      columns.map((name) =>
        columnHead(
          { strict: 'solved', note: 'protocol there' }[name] ?? name,
          '',
        ),
      ),
      DATA.references.rows.map((row) =>
        el(
          'tr',
          {},
          columns.map((name) =>
            el(
              'td',
              { class: ['strict', 'soft'].includes(name) ? 'number' : null },
              typeof row[name] === 'number' ? row[name].toFixed(2) : row[name],
            ),
          ),
        ),
      ),
      { class: 'published' },
    ),
  );
}
