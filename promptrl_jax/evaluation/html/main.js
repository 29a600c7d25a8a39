// Puts the sections on the page and redraws them when what is shown changes.

const budgetChoice = () =>
  segments(
    'budget',
    budgets().map((budget) => [budget, String(budget)]),
    state.budget,
    (budget) => update({ budget }),
  );

// Legend and chart; the legend keeps the focus when a curve is switched.
function withLegend(draw) {
  const box = el('div', {});
  const redraw = (name) => {
    for (const each of figureBoxes) each();
    if (name) box.querySelector(`[data-name="${CSS.escape(name)}"]`)?.focus();
  };
  const self = () => box.replaceChildren(legend(redraw), ...[draw()].flat());
  figureBoxes.push(self);
  self();
  return box;
}
let figureBoxes = [];

// Id, name in the navigation, title, content: without any it is hidden.
const SECTIONS = [
  ['scores', 'Scores', 'Scores', () => [headline(), failureTable()]],
  [
    'curves',
    'Curves',
    'Solved at each budget',
    () => (budgets().length > 1 ? withLegend(curves) : null),
  ],
  [
    'cost',
    'Cost',
    'Cost and quality',
    () => [
      segments(
        'cost in',
        costsKnown().map((name) => [name, name]),
        cost.by,
        (by) => {
          cost.by = by;
          update({});
        },
      ),
      withLegend(costFigure),
      costTable(),
    ],
  ],
  [
    'differences',
    'Differences',
    'Differences',
    () => (table().comparisons.length ? [budgetChoice(), forest()] : null),
  ],
  [
    'breakdown',
    'Kinds',
    'By kind of problem',
    () =>
      Object.keys(table().groups).length ? [budgetChoice(), groups()] : null,
  ],
  [
    'soft',
    'Soft',
    'Share of tests passed',
    () =>
      table().soft_scores.cells.length ? [budgetChoice(), softScores()] : null,
  ],
  [
    'alone',
    'Alone',
    'Solved by one strategy alone',
    () => (table().alone.length ? [budgetChoice(), alone()] : null),
  ],
  [
    'choices',
    'Choices',
    'What choosing is worth',
    () => [
      selectionTable(),
      equalCallsTable(),
      perfectChoiceTable(),
      samplesTable(),
    ],
  ],
  [
    'programs',
    'Programs',
    'What became of the programs',
    () =>
      ofProtocol(DATA.programs).length
        ? [budgetChoice(), verdictTable(), writtenTestsTable()]
        : null,
  ],
  [
    'operators',
    'Operators',
    'Candidates by operator',
    () => (hasOperators() ? [budgetChoice(), ...operatorTables()] : null),
  ],
  ['searched', 'Searched', 'Texts of the search', () => searchedTexts()],
  [
    'learning',
    'Learning',
    'Learning curves',
    () => (DATA.learning.length ? learningCurves() : null),
  ],
  ['trace', 'Traces', 'Traces', () => viewer],
  [
    'provenance',
    'Provenance',
    'Where the numbers come from',
    () => provenance(),
  ],
  [
    'references',
    'References',
    `References (${DATA.references.label})`,
    () => (DATA.references.rows.length ? references() : null),
  ],
];

function lead() {
  const at = budgets().at(-1);
  const mine = cellAt(table().subject, at);
  const rival = table()
    .cells.filter(
      (cell) => cell.budget === at && cell.strategy !== table().subject,
    )
    .sort((a, b) => b.pass.mean - a.pass.mean)[0];
  const text = (cell) => [
    el('b', {}, cell.strategy),
    ` solves ${percent(cell.pass.mean)} % `,
    interval(cell.pass.low, cell.pass.high),
  ];
  const where = `of ${count(table().problems, 'problem')} at ${budgetName(at)} under protocol ${state.protocol}`;
  byId('lead').replaceChildren(
    ...[
      ...(mine ? [text(mine), ` ${where}`] : [where]),
      rival ? ['; the best of the others, ', text(rival)] : '',
      '.',
    ].flat(Infinity),
  );
}

function settings() {
  const names = Object.keys(DATA.protocols);
  byId('settings').replaceChildren(
    ...(names.length > 1
      ? [
          segments(
            'protocol',
            names.map((name) => [
              name,
              DATA.protocols[name].label
                ? `${name} (${DATA.protocols[name].label})`
                : name,
            ]),
            state.protocol,
            (protocol) => update({ protocol }),
          ),
        ]
      : []),
    segments(
      'measure',
      [
        ['pass', 'pass@1'],
        ['soft', 'soft-pass@1'],
      ],
      state.metric,
      (metric) => update({ metric }),
    ),
  );
}

const boxes = new Map(
  SECTIONS.map(([id, , title]) => [
    id,
    el(
      'section',
      { id, 'aria-labelledby': `${id}-title` },
      el('h2', { id: `${id}-title` }, title),
      el('div', { class: 'content' }),
    ),
  ]),
);
byId('main').append(...boxes.values());

function drawAll() {
  figureBoxes = [];
  // A button that is drawn again would lose the focus: it is found by its text.
  const focused = document.activeElement;
  const around = focused?.closest('section[id], #settings');
  const shown = SECTIONS.filter(([id, , , content]) => {
    const made = [content()].flat(Infinity).filter((node) => node != null);
    boxes.get(id).hidden = !made.length;
    const inside = boxes.get(id).querySelector('.content');
    if (made.length && made[0] !== inside.firstChild)
      inside.replaceChildren(...made);
    return made.length;
  });
  byId('sections').replaceChildren(
    ...shown.map(([id, name]) =>
      el('li', {}, el('a', { href: `#${id}` }, name)),
    ),
  );
  settings();
  lead();
  if (around && !focused.isConnected) {
    [...around.querySelectorAll('button')]
      .find((button) => button.textContent === focused.textContent)
      ?.focus();
  }
  if (viewer && view.game && view.game.protocol !== state.protocol) openFirst();
}

function openFirst() {
  const game =
    GAMES.find(
      (each) =>
        each.protocol === state.protocol &&
        each.strategy === table().subject &&
        each.budget === state.budget,
    ) ?? GAMES.find((each) => each.protocol === state.protocol);
  boxes.get('trace').hidden = !game;
  if (game) openGame(game);
}

listeners.push(drawAll);
reset();
drawAll();
if (viewer && !route()) openFirst();
// The browser has looked for the section before it was there.
if (boxes.has(location.hash.slice(1)))
  byId(location.hash.slice(1)).scrollIntoView();
window.addEventListener('hashchange', route);
document.documentElement.dataset.ready = 'true';
