// What the operators of searches over words brought, in numbers.

const operatorsShown = () =>
  DATA.operators.filter((row) => row.protocol === state.protocol);
const hasOperators = () => operatorsShown().length > 0;

function operatorTable() {
  const rows = operatorsShown().filter(
    (row) => row.budget === null || row.budget === state.budget,
  );
  if (!rows.length)
    return el(
      'p',
      { class: 'note' },
      'No strategy proposed a candidate at this budget.',
    );
  const reasons = (refused) =>
    Object.entries(refused)
      .sort((a, b) => b[1] - a[1])
      .map(([reason, number]) => el('small', {}, `${number} ${reason}`));
  const number = (value) =>
    el('td', { class: 'number' }, value.toLocaleString('en'));
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
          el(
            'td',
            { class: 'number' },
            Object.values(row.refused).reduce((a, b) => a + b, 0),
            reasons(row.refused),
          ),
          number(row.distinct),
          number(row.improved),
          number(row.kept),
        ),
      ),
    ),
  );
}
