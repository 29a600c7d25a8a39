// What the operators of searches over words brought, in numbers, how different
// their candidates are, what was refused of all that models wrote, and attempts
// in which the strategy itself failed.

const ofProtocol = (rows) =>
  rows.filter((row) => row.protocol === state.protocol);
const atBudget = (rows) =>
  ofProtocol(rows).filter(
    (row) => row.budget === null || row.budget === state.budget,
  );
const isRefused = (row) => Object.keys(row.refused).length > 0;
const hasOperators = () =>
  ofProtocol([...DATA.operators, ...DATA.replies.filter(isRefused)]).length > 0;

const refusedCell = (refused) =>
  el(
    'td',
    { class: 'number' },
    Object.values(refused).reduce((a, b) => a + b, 0),
    Object.entries(refused)
      .sort((a, b) => b[1] - a[1])
      .map(([reason, number]) => el('small', {}, `${number} ${reason}`)),
  );

function operatorTables() {
  const tables = [operatorTable(), islandTable(), replyTable()];
  const shown = tables.filter((one) => one !== null);
  if (shown.length) return shown;
  const text = 'No strategy proposed a candidate at this budget.';
  return [el('p', { class: 'note' }, text)];
}

function operatorTable() {
  const rows = atBudget(DATA.operators);
  if (!rows.length) return null;
  const number = numberCell;
  return scrolling(
    'Candidates by operator',
    'Texts that operators proposed, in all populations together: one of each ' +
      'problem and seed, or one of a search before the first problem. ' +
      'Distinct: not in the population before. Improved: distinct, and better ' +
      'than every parent on what both were scored on. Kept: distinct, and a ' +
      'parent or survivor later on, or what closed the problem; in a search, ' +
      'taken into the pool.',
    grid(
      [
        columnHead('strategy', ''),
        columnHead('operator', ''),
        [
          'populations',
          'proposed',
          'refused',
          'distinct',
          'improved',
          'kept',
        ].map((name) => columnHead(name)),
      ],
      rows.map((row) =>
        strategyRow(
          row.strategy,
          el(
            'td',
            {},
            row.operator,
            row.budget === null && el('small', {}, 'in a search before'),
          ),
          number(row.populations),
          number(row.proposed),
          refusedCell(row.refused),
          number(row.distinct),
          number(row.improved),
          number(row.kept),
        ),
      ),
    ),
  );
}

function islandTable() {
  const rows = atBudget(DATA.islands);
  if (!rows.length) return null;
  return scrolling(
    'Diversity by island',
    'Means over the generations of all problems and seeds; of a search, its ' +
      'pool at the end. Jaccard: mean over pairs of texts of the share of ' +
      'their words that only one of both has.',
    grid(
      [
        columnHead('strategy', ''),
        ['island', 'generations', 'candidates', 'distinct', 'Jaccard'].map(
          (name) => columnHead(name),
        ),
      ],
      rows.map((row) =>
        strategyRow(
          row.strategy,
          numberCell(row.island + 1),
          numberCell(row.generations),
          numberCell(row.candidates.toFixed(1)),
          numberCell(row.distinct.toFixed(1)),
          numberCell(row.jaccard.toFixed(2)),
        ),
      ),
    ),
  );
}

function failureTable() {
  const rows = ofProtocol(DATA.failures);
  if (!rows.length) return null;
  return scrolling(
    'Attempts that failed',
    'The strategy itself raised an error, asked for what it may not have or ' +
      'submitted nothing; the attempt counts as not solved.',
    grid(
      [
        columnHead('strategy', ''),
        ['B', 'attempts', 'failed'].map((name) => columnHead(name)),
      ],
      rows.map((row) =>
        strategyRow(
          row.strategy,
          numberCell(row.budget),
          numberCell(row.attempts),
          refusedCell(row.failed),
        ),
      ),
    ),
  );
}

function replyTable() {
  const rows = atBudget(DATA.replies).filter(isRefused);
  if (!rows.length) return null;
  return scrolling(
    'Replies that were refused or cut',
    'A text that the limit of tokens cut, that nothing can be read from or ' +
      'that repeats its instruction is refused. A program that was cut is run ' +
      'and scored all the same.',
    grid(
      [
        columnHead('strategy', ''),
        columnHead('asked for', ''),
        ['replies', 'refused or cut'].map((name) => columnHead(name)),
      ],
      rows.map((row) =>
        strategyRow(
          row.strategy,
          el('td', {}, row.kind),
          numberCell(row.replies),
          refusedCell(row.refused),
        ),
      ),
    ),
  );
}
