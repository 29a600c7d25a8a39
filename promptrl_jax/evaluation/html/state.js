// What is shown, and who redraws when that changes.

const DATA = JSON.parse(byId('report-data').textContent);

const state = {
  protocol: Object.keys(DATA.protocols)[0],
  metric: 'pass', // or 'soft'
  budget: 0,
  shown: new Set(),
};
const listeners = [];

const table = () => DATA.protocols[state.protocol];
const strategies = () => unique(table().cells.map((cell) => cell.strategy));
const budgets = () =>
  unique(table().cells.map((cell) => cell.budget)).sort(ascending);
const cellsOf = (strategy) =>
  table()
    .cells.filter((cell) => cell.strategy === strategy)
    .sort((a, b) => a.budget - b.budget);
const cellAt = (strategy, budget) =>
  table().cells.find(
    (cell) => cell.strategy === strategy && cell.budget === budget,
  );
const metricName = () => (state.metric === 'pass' ? 'pass@1' : 'soft-pass@1');
const budgetName = (budget) =>
  table().label ? `at most ${budget} tries` : `B=${budget}`;

function update(changes) {
  const isOther = changes.protocol && changes.protocol !== state.protocol;
  Object.assign(state, changes);
  if (isOther) reset();
  for (const listener of listeners) listener();
}

function reset() {
  state.budget = budgets().at(-1);
  state.shown = fewBest();
}

// The subject, one greedy call, and the best at the largest budget.
function fewBest() {
  const subject = table().subject;
  const ranked = table()
    .cells.filter((cell) => cell.budget === budgets().at(-1))
    .sort((a, b) => b.pass.mean - a.pass.mean)
    .map((cell) => cell.strategy);
  const first = [subject, 'direct'].filter((name) => ranked.includes(name));
  return new Set(unique([...first, ...ranked]).slice(0, 6));
}

// Colour, dash and marker of a strategy: of its place, so that they never change.
const COLOURS = 8; // --series-0 to --series-7
const DASHES = ['', '7 4', '2 3'];
function style(strategy) {
  const others = strategies().filter((name) => name !== table().subject);
  const place = others.indexOf(strategy);
  if (place < 0) return { colour: 'var(--subject)', dash: '', width: 3 };
  return {
    colour: `var(--series-${place % COLOURS})`,
    dash: DASHES[Math.floor(place / COLOURS) % DASHES.length],
    width: 2,
  };
}

// A row of a table, of which that of the subject stands out.
const strategyRow = (name, ...cells) =>
  el(
    'tr',
    { class: name === table().subject ? 'subject' : null },
    el('th', { scope: 'row' }, name),
    cells,
  );

function swatch(name) {
  const { colour, dash, width } = style(name);
  return svg(
    'svg',
    { width: 26, height: 10, 'aria-hidden': 'true' },
    svg('line', {
      x1: 1,
      x2: 25,
      y1: 5,
      y2: 5,
      stroke: colour,
      'stroke-width': width,
      'stroke-dasharray': dash || null,
    }),
  );
}

const [ALL, FEW] = ['(all)', '(best)']; // No strategies, but buttons as well.
function legend(redraw) {
  const toggle = (name) => {
    const has = state.shown.has(name);
    if (has) state.shown.delete(name);
    else state.shown.add(name);
    redraw(name);
  };
  return el(
    'div',
    { class: 'legend', role: 'group', 'aria-label': 'Curves' },
    strategies().map((name) =>
      el(
        'button',
        {
          type: 'button',
          'aria-pressed': String(state.shown.has(name)),
          'data-name': name,
          onclick: () => toggle(name),
        },
        swatch(name),
        name,
      ),
    ),
    el(
      'button',
      {
        type: 'button',
        class: 'quiet',
        'data-name': ALL,
        onclick: () => {
          state.shown = new Set(strategies());
          redraw(ALL);
        },
      },
      'all',
    ),
    el(
      'button',
      {
        type: 'button',
        class: 'quiet',
        'data-name': FEW,
        onclick: () => {
          state.shown = fewBest();
          redraw(FEW);
        },
      },
      'the best',
    ),
  );
}
