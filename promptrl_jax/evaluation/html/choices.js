// What choosing is worth: scores by which something was chosen beside those on
// test, and what a perfect choice among samples would solve.

const numberOf = (share) =>
  el('td', { class: 'number' }, share === null ? '' : percent(share));

function selectionTable() {
  if (!DATA.selection.length) return null;
  return scrolling(
    'Selection score beside test score',
    'Solved in %: on validation, where it was chosen by this score; there ' +
      'again with fresh draws; on test. Several budgets: the mean over them. ' +
      'A score by which something was chosen is no estimate of what it is worth.',
    grid(
      [
        columnHead('strategy', ''),
        [
          'B',
          'chosen on validation',
          'validation, again',
          'test',
          'test − chosen',
        ].map((name) => columnHead(name)),
      ],
      DATA.selection.map((row) =>
        strategyRow(
          row.strategy,
          el('td', { class: 'number' }, row.budgets.join(', ')),
          [row.chosen, row.again, row.test].map(numberOf),
          el('td', { class: 'number' }, signed(row.test - row.chosen)),
        ),
      ),
    ),
  );
}

function perfectChoiceTable() {
  if (!DATA.coverage.length) return null;
  return scrolling(
    'A perfect choice among samples',
    'Solved in %. oracle@B: some of B samples of the first prompt, the first ' +
      'one greedy, passes the hidden tests. Another prompt may solve more.',
    grid(
      ['B', 'best of B', 'oracle@B', table().subject, 'gap closed']
        .concat(`${table().subject} − middle of the gap`)
        .map((name) => columnHead(name)),
      DATA.coverage.map((row) =>
        el(
          'tr',
          {},
          el('th', { scope: 'row', class: 'number' }, row.budget),
          [row.best_of_n, row.oracle, row.subject].map(numberOf),
          el(
            'td',
            { class: 'number' },
            row.closed === null ? '' : `${(100 * row.closed).toFixed(0)} %`,
          ),
          el(
            'td',
            { class: 'number' },
            signed(row.above_half),
            el('small', {}, interval(row.low, row.high, signed)),
          ),
        ),
      ),
    ),
  );
}

function samplesTable() {
  if (!DATA.pass_at_k.length) return null;
  return scrolling(
    'pass@k of independent samples',
    'Whether one of k independent samples of the first prompt is right, in %; ' +
      'nobody chooses among them.',
    grid(
      ['k', 'pass@k', 'samples of a problem'].map((name) => columnHead(name)),
      DATA.pass_at_k.map((row) =>
        el(
          'tr',
          {},
          el('th', { scope: 'row', class: 'number' }, row.k),
          el(
            'td',
            { class: 'number' },
            percent(row.mean),
            el('small', {}, interval(row.low, row.high)),
          ),
          el('td', { class: 'number' }, row.samples),
        ),
      ),
    ),
  );
}

// The tables that there are; null without any.
function choiceTables() {
  const shown = [selectionTable(), perfectChoiceTable(), samplesTable()].filter(
    (one) => one !== null,
  );
  return shown.length ? shown : null;
}
