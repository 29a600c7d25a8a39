// How the shares of hidden tests that pass are distributed.

function softScores() {
  const { bins, cells } = table().soft_scores;
  const rows = cells.filter((cell) => cell.budget === state.budget);
  return scrolling(
    'Share of tests passed',
    'Submissions in %, by the share of hidden tests that they pass, in %, at ' +
      budgetName(state.budget),
    grid(
      [columnHead('strategy', ''), bins.map((name) => columnHead(name))],
      rows.map((row) => strategyRow(row.strategy, row.shares.map(rate))),
      { class: 'heatmap' },
    ),
  );
}
