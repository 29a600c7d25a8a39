// What choosing is worth: scores by which something was chosen beside those on
// test, what samples solve at the calls that the subject used, and what a
// perfect choice among samples would.

function selectionTable() {
  if (!DATA.selection.length) return null;
  return scrolling(
    'Selection score beside test score',
    'Solved in %: on validation, where it was chosen by this score; there ' +
      'again with fresh draws, if it was played so; on test. Several budgets: ' +
      'the mean over them. A score by which something was chosen is no ' +
      'estimate of what it is worth.',
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
          numberCell(row.budgets.join(', ')),
          [row.chosen, row.again, row.test].map((x) =>
            numberCell(x === null ? '' : percent(x)),
          ),
          numberCell(signed(row.test - row.chosen)),
        ),
      ),
    ),
  );
}

function equalCallsTable() {
  const rows = DATA.equal_calls;
  if (!rows.length) return null;
  const mine = rows[0].strategy;
  return scrolling(
    'Samples at equal calls',
    `Solved in %. On each problem of each run the coder may be sampled as ` +
      `often as ${mine} asked its models there; the first program that passes ` +
      'the visible tests is submitted and ends the sampling.',
    grid(
      [
        'B',
        'calls',
        'used by samples',
        mine,
        'samples',
        `${mine} − samples`,
      ].map((name) => columnHead(name)),
      rows.map((row) =>
        numberedRow(
          row.budget,
          [row.calls, row.control_calls].map((x) => numberCell(x.toFixed(2))),
          [row.subject, row.control].map((x) => numberCell(percent(x))),
          numberCell(signed(row.gain), interval(row.low, row.high, signed)),
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
        numberedRow(
          row.budget,
          [row.best_of_n, row.oracle, row.subject].map((x) =>
            numberCell(percent(x)),
          ),
          numberCell(
            row.closed === null ? '' : `${(100 * row.closed).toFixed(0)} %`,
          ),
          numberCell(
            signed(row.above_half),
            interval(row.low, row.high, signed),
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
        numberedRow(
          row.k,
          numberCell(percent(row.mean), interval(row.low, row.high)),
          numberCell(row.samples),
        ),
      ),
    ),
  );
}
