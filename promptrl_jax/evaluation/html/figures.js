// Solved@B, cost against quality, and the forest of differences.

function scoreText(score) {
  const sd = score.seed_sd === null ? '' : ` ± ${percent(score.seed_sd)}`;
  return `${percent(score.mean)} % ${interval(score.low, score.high)}${sd}`;
}

const cost = { by: 'calls' };
// Name of the axis, cost of a cell (0: unknown or none), decimals.
const COSTS = {
  calls: ['model calls per problem', (cell) => cell.calls, 2],
  tokens: [
    'tokens per problem, in and out',
    (cell) => cell.prompt_tokens + cell.completion_tokens,
    0,
  ],
  seconds: [
    'wall seconds of this run per problem',
    (cell) => cell.seconds ?? 0,
    3,
  ],
  dollars: ['dollars per problem', (cell) => cell.dollars ?? 0, 6],
};
// Costs that some cell of this protocol has; one of them is chosen.
function costsKnown() {
  const known = Object.keys(COSTS).filter(
    (name) => name === 'calls' || table().cells.some(COSTS[name][1]),
  );
  if (!known.includes(cost.by)) cost.by = 'calls';
  return known;
}

function seriesOf(x, band) {
  return strategies()
    .filter((name) => state.shown.has(name))
    .map((name) => ({
      name,
      band,
      ...style(name),
      points: cellsOf(name)
        .filter((cell) => x(cell) > 0)
        .map((cell) => ({
          x: x(cell),
          y: cell[state.metric].mean,
          low: cell[state.metric].low,
          high: cell[state.metric].high,
          text:
            `${name}, ${budgetName(cell.budget)}: ${scoreText(cell[state.metric])}` +
            ` with ${cell.calls.toFixed(2)} calls`,
        })),
    }));
}

function curves() {
  return chart(
    seriesOf((cell) => cell.budget, true),
    {
      label: `${metricName()} by budget`,
      xTicks: budgets(),
      xLabel: table().label
        ? 'tries at most'
        : 'budget B: model calls per problem',
      yLabel: `${metricName()} on hidden tests, %`,
    },
  );
}

// Cells that no other cell beats in both: at most the cost, more solved.
function paretoFront(x) {
  const sorted = table()
    .cells.filter((cell) => x(cell) > 0)
    .sort((a, b) => x(a) - x(b) || b[state.metric].mean - a[state.metric].mean);
  let best = -1;
  return sorted.filter((cell) => {
    const better = cell[state.metric].mean > best;
    best = Math.max(best, cell[state.metric].mean);
    return better;
  });
}

function costFigure() {
  const [xLabel, x, decimals] = COSTS[cost.by];
  const front = paretoFront(x);
  return [
    chart(
      seriesOf(x, false).map((s) => ({
        ...s,
        points: s.points.map(({ low, high, ...p }) => p),
      })),
      {
        label: `${metricName()} by ${xLabel}`,
        xLabel,
        yLabel: `${metricName()} on hidden tests, %`,
        front: front.map((cell) => ({
          x: x(cell),
          y: cell[state.metric].mean,
        })),
      },
    ),
    el(
      'p',
      { class: 'note' },
      'On the Pareto front of all strategies (ringed): ',
      front
        .map(
          (cell) =>
            `${cell.strategy} ${budgetName(cell.budget)} (${x(cell).toFixed(
              decimals,
            )} ${cost.by}, ${percent(cell[state.metric].mean)} %)`,
        )
        .join('; '),
      '.',
    ),
  ];
}

function verdict(result) {
  if (result.beats) return ['ahead', '▲ ahead'];
  if (result.p_holm < 0.05 && result.high < 0) return ['behind', '▼ behind'];
  return ['even', '· not told apart'];
}

function forest() {
  const rows = table().comparisons.filter((c) => c.budget === state.budget);
  if (!rows.length)
    return el(
      'p',
      { class: 'note' },
      'No comparison was planned at this budget.',
    );
  const ends = table().comparisons.flatMap((c) => [
    c[state.metric].low,
    c[state.metric].high,
  ]);
  const low = Math.min(0, ...ends);
  const high = Math.max(0, ...ends);
  const width = window.innerWidth < 640 ? 150 : 380;
  const x = (v) => 8 + ((width - 16) * (v - low)) / (high - low || 1);
  const bar = (result, kind) =>
    svg(
      'svg',
      {
        width,
        height: 26,
        class: `forest ${kind}`,
        'aria-hidden': 'true',
      },
      svg('line', { class: 'zero', x1: x(0), x2: x(0), y1: 0, y2: 26 }),
      svg('line', {
        class: 'range',
        x1: x(result.low),
        x2: x(result.high),
        y1: 13,
        y2: 13,
      }),
      [result.low, result.high].map((end) =>
        svg('line', { class: 'range', x1: x(end), x2: x(end), y1: 9, y2: 17 }),
      ),
      svg('circle', { cx: x(result.difference), cy: 13, r: 4.5 }),
    );
  const scale = svg(
    'svg',
    { width, height: 18, class: 'forest', 'aria-hidden': 'true' },
    ticksOf(100 * low, 100 * high, 5).map((t) =>
      svg(
        'text',
        {
          x: x(t / 100),
          y: 13,
          'text-anchor': 'middle',
        },
        t > 0 ? `+${t}` : String(t).replace('-', '−'),
      ),
    ),
  );
  const caption = `${table().subject} minus each rival at ${budgetName(
    state.budget,
  )}, points of ${metricName()} with 95 % intervals`;
  return scrolling(
    'Differences',
    caption,
    grid(
      ['rival', scale, 'difference', 'p (Holm)', ''].map((text) =>
        columnHead(text, ''),
      ),
      rows.map((row) => {
        const result = row[state.metric];
        const [kind, words] = verdict(result);
        return el(
          'tr',
          {},
          el('th', { scope: 'row' }, row.other),
          el('td', {}, bar(result, kind)),
          el(
            'td',
            { class: 'number' },
            el('b', {}, signed(result.difference)),
            ` ${interval(result.low, result.high, signed)}`,
          ),
          el('td', { class: 'number' }, pText(result.p_holm)),
          el('td', { class: `verdict ${kind}` }, words),
        );
      }),
    ),
  );
}
