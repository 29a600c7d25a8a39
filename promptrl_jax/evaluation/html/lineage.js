// From what a text comes: parents of statements that evolve and of searched texts.

// The statements that a strategy made in an episode, by text, with their parents.
function statementsOf(episode) {
  const known = new Map();
  const rows = episode.rows.flatMap((row) => row.candidates ?? [row]);
  for (const one of rows) {
    // A refused child is its parent again.
    if (one?.parents && !one.parents.includes(one.statement))
      known.set(one.statement, known.get(one.statement) ?? one);
  }
  return known;
}

// The longest known statement in a request: a child may hold its parent whole.
function statementIn(request, known) {
  const text = request.messages.map((message) => message.content).join('\n');
  return [...known.keys()]
    .filter((statement) => text.includes(statement))
    .reduce((a, b) => (b.length > a.length ? b : a), '');
}

// The requests with the parents of what a request holds: {request, step}, the
// first parent first. Null where no statement of the request has parents.
function parentRequests(episode, at, index) {
  const known = statementsOf(episode);
  const request = episode.rows[at].sent[index];
  const parents = known.get(statementIn(request, known))?.parents;
  if (!parents?.length) return null;
  const earlier = requestsBefore(episode, at, index).filter(
    (each) => each.request.role === request.role && isOfProgram(each.row),
  );
  return unique(parents)
    .map((parent) =>
      earlier.findLast((each) => statementIn(each.request, known) === parent),
    )
    .filter(Boolean);
}

// Requests for new words name their parents in their row.
const isOfProgram = (row) => !row.parents;

function requestsBefore(episode, at, index) {
  return episode.rows.slice(0, at + 1).flatMap((row, step) =>
    (step < at ? row.sent : row.sent.slice(0, index)).map((request) => ({
      request,
      row,
      step,
    })),
  );
}

// What became of the first parent of a statement that a step made.
function newStatement(row) {
  if (!row.parents?.length || row.statement === undefined) return null;
  const [parent, ...others] = row.parents;
  return [
    el('h4', {}, 'Statement, and what changed since its parent'),
    row.refused &&
      el('p', { class: 'note' }, `The reply was refused: ${row.refused}`),
    el(
      'pre',
      { class: 'prompt', tabindex: 0, 'aria-label': 'Statement' },
      diffNodes(parent, row.statement),
    ),
    others.map((other) => [
      el('p', { class: 'note' }, 'The other parent'),
      el('pre', { class: 'prompt', tabindex: 0 }, other),
    ]),
  ];
}

// The texts that a search before the first problem proposed, by descent.
function searchedTexts() {
  const searches = Object.entries(DATA.searches);
  if (!searches.length) return null;
  return searches.map(([name, steps]) => {
    const taken = new Map(
      steps
        .filter((each) => each.candidate !== null)
        .map((each) => [each.candidate, each.text]),
    );
    const written = steps.filter((each) => each.text);
    return [
      el(
        'p',
        { class: 'note' },
        `${name}: ${count(written.length, 'text')}, with what changed since ` +
          'the first parent of each. Numbers are those of candidates.',
      ),
      el(
        'ol',
        { class: 'searched' },
        written.map((each) => searchedText(each, taken)),
      ),
    ];
  });
}

function searchedText(one, taken) {
  const [parent] = one.parents;
  const named =
    one.candidate === null ? 'not taken' : `candidate ${one.candidate}`;
  const from = one.parents.length ? ` of ${one.parents.join(' and ')}` : '';
  return el(
    'li',
    {},
    el(
      'details',
      { open: one.candidate !== null },
      el('summary', {}, `${named}: ${one.kind}${from}`),
      el('p', { class: 'note' }, one.why),
      el(
        'pre',
        { class: 'prompt', tabindex: 0, 'aria-label': `Text, ${named}` },
        taken.has(parent) ? diffNodes(taken.get(parent), one.text) : one.text,
      ),
    ),
  );
}
