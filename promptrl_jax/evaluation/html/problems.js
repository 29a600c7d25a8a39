// The trace viewer: problems on one side, the steps of one of them on the other.
// Keys: up and down choose a problem, left and right a step, Esc goes back.

const OUTCOMES = {
  s: ['✓', 'solved'],
  u: ['✗', 'not solved'],
  m: ['✗', 'not solved, although the visible tests passed'],
  '?': ['?', 'hidden result not known'],
};
const FILTERS = [
  ['all', 'all', () => true],
  ['solved', 'solved', (outcome) => outcome === 's'],
  ['unsolved', 'not solved', (outcome) => outcome === 'u' || outcome === 'm'],
  ['misled', 'visible tests passed, not solved', (outcome) => outcome === 'm'],
];
const MOST_LISTED = 500;

const view = {
  game: null,
  place: -1,
  step: 0,
  filter: 'all',
  words: '',
  changes: true,
  listed: [],
  texts: new Map(),
  ticket: 0,
  linked: false, // The address follows what is shown, but for the first look.
};

// The part of all names of problems that says nothing in a list: `mbpp/`.
const shared = TASKS.reduce(
  (start, { id }) => {
    while (!id.startsWith(start)) start = start.replace(/[^/]*\/$/, '');
    return start;
  },
  (TASKS[0]?.id ?? '').replace(/[^/]*$/, ''),
).length;

function select(label, id, change) {
  const box = el('select', { id, onchange: () => change(box.value) });
  return [el('label', { for: id }, label, box), box];
}

const [strategyLabel, strategyBox] = select(
  'strategy',
  'choose-strategy',
  (name) => openGame(closest({ strategy: name })),
);
const [budgetLabel, budgetBox] = select('budget', 'choose-budget', (budget) =>
  openGame(closest({ budget: Number(budget) })),
);
const [seedLabel, seedBox] = select('seed', 'choose-seed', (seed) =>
  openGame(closest({ seed: Number(seed) })),
);
const [filterLabel, filterBox] = select('problems', 'choose-filter', (name) => {
  view.filter = name;
  list();
});
filterBox.append(
  ...FILTERS.map(([value, text]) => el('option', { value }, text)),
);
const searchBox = el('input', {
  id: 'search',
  type: 'search',
  autocomplete: 'off',
  spellcheck: 'false',
  placeholder: 'names, prompts, programs, feedback',
  onkeydown: (event) => {
    if (event.key === 'ArrowDown') {
      event.preventDefault();
      problemList.focus();
    }
  },
});
let waiting;
searchBox.addEventListener('input', () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    view.words = searchBox.value.trim().toLowerCase();
    list();
  }, 150);
});
const found = el('p', { class: 'note', role: 'status' });
const problemList = el('div', {
  class: 'problems',
  role: 'listbox',
  tabindex: 0,
  'aria-label': 'Problems',
  onkeydown: onListKey,
});
const episodeBox = el('article', { class: 'episode', 'aria-label': 'Episode' });

// The game that is like the present one but for the changes, which count most.
function closest(changes) {
  const wanted = { ...view.game, ...changes };
  const distance = (game) =>
    (changes.strategy && game.strategy !== wanted.strategy ? 1e9 : 0) +
    (game.strategy === wanted.strategy ? 0 : 1e8) +
    Math.abs(game.budget - wanted.budget) * 1e3 +
    Math.abs(game.seed - wanted.seed);
  return GAMES.filter((game) => game.protocol === state.protocol).reduce(
    (a, b) => (distance(b) < distance(a) ? b : a),
  );
}

// Without a place, the same problem; without a step, the first of another game.
function openGame(game, place, step) {
  const task =
    view.game && view.place >= 0 ? view.game.tasks[view.place] : null;
  const isOther = game !== view.game;
  view.game = game;
  if (isOther) {
    view.texts = new Map();
    const near = GAMES.filter((each) => each.protocol === game.protocol);
    const own = near.filter((each) => each.strategy === game.strategy);
    const options = (box, values, chosen) => {
      box.replaceChildren(
        ...unique(values).map((value) =>
          el('option', { value }, String(value)),
        ),
      );
      box.value = String(chosen);
    };
    options(
      strategyBox,
      near.map((each) => each.strategy),
      game.strategy,
    );
    options(
      budgetBox,
      own.map((each) => each.budget).sort(ascending),
      game.budget,
    );
    options(
      seedBox,
      own
        .filter((each) => each.budget === game.budget)
        .map((each) => each.seed)
        .sort(ascending),
      game.seed,
    );
  }
  const same = task === null ? -1 : game.tasks.indexOf(task);
  view.place = place ?? Math.max(same, 0);
  view.step = step ?? (isOther ? 0 : view.step);
  return Promise.all([list(), showEpisode()]);
}

async function matches() {
  const [, , fits] = FILTERS.find(([name]) => name === view.filter);
  const places = view.game.tasks
    .map((_, place) => place)
    .filter((place) => fits(view.game.outcomes[place]));
  if (!view.words) return places;
  const { game, words } = view;
  const kept = [];
  for (const place of places) {
    const { id, family, statement } = TASKS[game.tasks[place]];
    let has = `${id}\n${family}\n${statement}`.toLowerCase().includes(words);
    if (!has) {
      if (!view.texts.has(place)) {
        const text = searchable(await loadEpisode(game, place));
        if (game !== view.game || words !== view.words) return [];
        view.texts.set(place, text);
      }
      has = view.texts.get(place).includes(words);
    }
    if (has) kept.push(place);
  }
  return kept;
}

async function list() {
  const ticket = ++view.ticket;
  const places = await matches();
  if (ticket !== view.ticket) return;
  view.listed = places.slice(0, MOST_LISTED);
  const { game } = view;
  found.textContent =
    `${count(places.length, 'problem')} of ${game.tasks.length}` +
    (places.length > MOST_LISTED
      ? `, the first ${MOST_LISTED} are listed: search for others`
      : '');
  problemList.replaceChildren(
    ...view.listed.map((place) => {
      const task = TASKS[game.tasks[place]];
      const [mark, words] = OUTCOMES[game.outcomes[place]];
      return el(
        'div',
        {
          role: 'option',
          id: `problem-${place}`,
          class: `problem outcome-${game.outcomes[place]}`,
          'aria-selected': 'false',
          onclick: () => {
            choose(place);
          },
        },
        el(
          'span',
          { class: 'mark', role: 'img', 'aria-label': words, title: words },
          mark,
        ),
        el(
          'span',
          { class: 'name' },
          task.id.slice(shared),
          task.statement && el('small', {}, task.statement),
        ),
        el('span', { class: 'calls' }, count(game.calls[place], 'call')),
      );
    }),
  );
  markChosen();
}

function markChosen() {
  const id = `problem-${view.place}`;
  for (const option of problemList.children) {
    option.setAttribute('aria-selected', String(option.id === id));
  }
  const option = byId(id);
  if (option) {
    problemList.setAttribute('aria-activedescendant', id);
    // Not scrollIntoView, which would move the page as well.
    const top = option.offsetTop - problemList.offsetTop;
    if (top < problemList.scrollTop) problemList.scrollTop = top;
    const under = top + option.offsetHeight - problemList.clientHeight;
    if (under > problemList.scrollTop) problemList.scrollTop = under;
  } else {
    problemList.removeAttribute('aria-activedescendant');
  }
}

function choose(place) {
  view.place = place;
  view.step = 0;
  markChosen();
  showEpisode();
}

function onListKey(event) {
  const at = view.listed.indexOf(view.place);
  const last = view.listed.length - 1;
  const to = {
    ArrowDown: Math.min(at + 1, last),
    ArrowUp: Math.max(at - 1, 0),
    Home: 0,
    End: last,
    PageDown: Math.min(at + 10, last),
    PageUp: Math.max(at - 10, 0),
  }[event.key];
  if (to !== undefined && last >= 0) {
    event.preventDefault();
    choose(view.listed[to]);
  } else if (['ArrowRight', 'Enter'].includes(event.key)) {
    event.preventDefault();
    episodeBox.querySelector('[role=tab][aria-selected=true]')?.focus();
  } else if (event.key === 'Escape') {
    event.preventDefault();
    searchBox.focus();
  }
}
