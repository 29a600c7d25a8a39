// What became of the programs at a budget, by the class of their failure, and
// of the tests that models wrote.

const MOST_CLASSES = 8; // Columns; the rest are one.
const OTHERS = 'others';

// The most frequent classes of all strategies together.
function verdictClasses(rows) {
  const totals = new Map();
  for (const { verdicts } of rows)
    for (const [name, number] of Object.entries(verdicts))
      totals.set(name, (totals.get(name) ?? 0) + number);
  const names = [...totals.keys()].sort(
    (a, b) => totals.get(b) - totals.get(a),
  );
  return names.length > MOST_CLASSES
    ? [...names.slice(0, MOST_CLASSES - 1), OTHERS]
    : names;
}

function verdictTable() {
  const rows = atBudget(DATA.programs);
  if (!rows.length) return null;
  const names = verdictClasses(rows);
  const known = names.filter((name) => name !== OTHERS);
  const share = (row, name) => {
    const number =
      name === OTHERS
        ? row.programs -
          known.reduce((sum, each) => sum + (row.verdicts[each] ?? 0), 0)
        : (row.verdicts[name] ?? 0);
    return rate(number / row.programs);
  };
  return scrolling(
    'Programs by verdict',
    `All programs written at ${budgetName(state.budget)}, submitted or not, ` +
      'by the visible tests, in % of them. A failed assertion is a wrong ' +
      'value, an exception is called by its name.',
    grid(
      [
        columnHead('strategy', ''),
        ['programs', ...names].map((name) => columnHead(name)),
      ],
      rows.map((row) =>
        strategyRow(
          row.strategy,
          numberCell(row.programs),
          names.map((name) => share(row, name)),
        ),
      ),
      { class: 'heatmap' },
    ),
  );
}

function writtenTestsTable() {
  const rows = atBudget(DATA.tests);
  if (!rows.length) return null;
  return scrolling(
    'Tests that the model wrote',
    'A test is right if the reference program passes it. No strategy knows ' +
      'which are.',
    grid(
      [
        columnHead('strategy', ''),
        ['attempts', 'without a test', 'tests', 'right, in %'].map((name) =>
          columnHead(name),
        ),
      ],
      rows.map((row) =>
        strategyRow(
          row.strategy,
          numberCell(row.tasks),
          numberCell(row.tasks_without_tests),
          numberCell(row.tests),
          numberCell(row.tests ? percent(row.tests_passed / row.tests) : '–'),
        ),
      ),
    ),
  );
}
