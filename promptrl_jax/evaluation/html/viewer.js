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
  game: null, place: -1, step: 0, filter: 'all', words: '', changes: true,
  listed: [], texts: new Map(), ticket: 0,
};

function select(label, id, change) {
  const box = el('select', { id, onchange: () => change(box.value) });
  return [el('label', { for: id }, label, box), box];
}

const [strategyLabel, strategyBox] = select('strategy', 'choose-strategy', (name) =>
  openGame(closest({ strategy: name })));
const [budgetLabel, budgetBox] = select('budget', 'choose-budget', (budget) =>
  openGame(closest({ budget: Number(budget) })));
const [seedLabel, seedBox] = select('seed', 'choose-seed', (seed) =>
  openGame(closest({ seed: Number(seed) })));
const [filterLabel, filterBox] = select('problems', 'choose-filter', (name) => {
  view.filter = name;
  list();
});
filterBox.append(...FILTERS.map(([value, text]) => el('option', { value }, text)));
const searchBox = el('input', {
  id: 'search', type: 'search', autocomplete: 'off', spellcheck: 'false',
  placeholder: 'names, prompts, programs, feedback',
  onkeydown: (event) => {
    if (event.key === 'ArrowDown') { event.preventDefault(); problemList.focus(); }
  },
});
let waiting;
searchBox.addEventListener('input', () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => { view.words = searchBox.value.trim().toLowerCase(); list(); }, 150);
});
const found = el('p', { class: 'note', role: 'status' });
const problemList = el('div', {
  class: 'problems', role: 'listbox', tabindex: 0, 'aria-label': 'Problems',
  onkeydown: onListKey,
});
const episodeBox = el('article', { class: 'episode', 'aria-label': 'Episode' });

// The game that is like the present one but for the changes, which count most.
function closest(changes) {
  const wanted = { ...view.game, ...changes };
  const distance = (game) =>
    (changes.strategy && game.strategy !== wanted.strategy ? 1e9 : 0) +
    (game.strategy === wanted.strategy ? 0 : 1e8) +
    Math.abs(game.budget - wanted.budget) * 1e3 + Math.abs(game.seed - wanted.seed);
  return GAMES.filter((game) => game.protocol === state.protocol)
    .reduce((a, b) => (distance(b) < distance(a) ? b : a));
}

function openGame(game, place) {
  const task = view.game && view.place >= 0 ? view.game.tasks[view.place] : null;
  const isOther = game !== view.game;
  view.game = game;
  if (isOther) {
    view.texts = new Map();
    const near = GAMES.filter((each) => each.protocol === game.protocol);
    const own = near.filter((each) => each.strategy === game.strategy);
    const options = (box, values, chosen) => {
      box.replaceChildren(...unique(values).map((value) => el('option', { value }, String(value))));
      box.value = String(chosen);
    };
    options(strategyBox, near.map((each) => each.strategy), game.strategy);
    options(budgetBox, own.map((each) => each.budget).sort(ascending), game.budget);
    options(seedBox, own.filter((each) => each.budget === game.budget)
      .map((each) => each.seed).sort(ascending), game.seed);
  }
  // The same problem, where the game has it.
  const same = task === null ? -1 : game.tasks.indexOf(task);
  view.place = place ?? Math.max(same, 0);
  if (isOther) view.step = 0;
  list();
  showEpisode();
}

async function matches() {
  const [, , fits] = FILTERS.find(([name]) => name === view.filter);
  const places = view.game.tasks.map((_, place) => place)
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
  found.textContent = `${count(places.length, 'problem')} of ${game.tasks.length}` +
    (places.length > MOST_LISTED ? `, the first ${MOST_LISTED} are listed: search for others` : '');
  problemList.replaceChildren(...view.listed.map((place) => {
    const task = TASKS[game.tasks[place]];
    const [mark, words] = OUTCOMES[game.outcomes[place]];
    return el('div', {
      role: 'option', id: `problem-${place}`, class: `problem outcome-${game.outcomes[place]}`,
      'aria-selected': 'false',
      onclick: () => { choose(place); },
    },
    el('span', { class: 'mark', role: 'img', 'aria-label': words, title: words }, mark),
    el('span', { class: 'name' }, task.id,
      task.statement && el('small', {}, task.statement)),
    el('span', { class: 'calls' }, count(game.calls[place], 'call')));
  }));
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
    ArrowDown: Math.min(at + 1, last), ArrowUp: Math.max(at - 1, 0), Home: 0, End: last,
    PageDown: Math.min(at + 10, last), PageUp: Math.max(at - 10, 0),
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

async function showEpisode(focus = false) {
  const { game, place } = view;
  const task = TASKS[game.tasks[place]];
  let episode;
  try {
    episode = await loadEpisode(game, place);
  } catch (error) {
    episodeBox.replaceChildren(el('p', { class: 'note' }, `This part of the page cannot be read: ${error.message}`));
    return;
  }
  if (game !== view.game || place !== view.place) return;
  view.step = Math.max(0, Math.min(view.step, episode.rows.length));
  const [, words] = OUTCOMES[game.outcomes[place]];
  const at = view.listed.indexOf(place);
  const turn = (by, text) => el('button', {
    type: 'button', disabled: view.listed[at + by] === undefined,
    onclick: () => choose(view.listed[at + by]),
  }, text);
  episodeBox.replaceChildren(
    el('header', {},
      el('h3', {}, task.id),
      el('span', { class: 'turns' }, turn(-1, '↑ previous'), turn(1, '↓ next')),
      el('p', { class: 'note' },
        `${game.strategy} at ${budgetName(game.budget)}, seed ${game.seed}: `,
        el('b', { class: `outcome-${game.outcomes[place]}` }, words),
        ` after ${count(episode.rows.length, 'step')} and ${count(game.calls[place], 'call')}`)),
    stepTabs(episode),
    panel(episode));
  markChosen();
  if (focus) episodeBox.querySelector('[role=tab][aria-selected=true]').focus();
  // Without an entry in the history for each look.
  if (view.linked) history.replaceState(null, '', hashOf(game, task.id, view.step));
  view.linked = true;
}

function stepTabs(episode) {
  const last = episode.rows.length;
  const go = (step) => { view.step = step; showEpisode(true); };
  const tab = (step, mark, kind, text) => el('button', {
    type: 'button', role: 'tab', id: `step-${step}`, 'aria-controls': 'step-panel',
    'aria-selected': String(step === view.step), tabindex: step === view.step ? 0 : -1,
    onclick: () => go(step),
  }, el('span', { class: `mark ${kind}`, 'aria-hidden': 'true' }, mark), text);
  return el('div', {
    class: 'steps', role: 'tablist', 'aria-label': 'Steps',
    onkeydown: (event) => {
      const to = {
        ArrowLeft: view.step - 1, ArrowRight: view.step + 1, Home: 0, End: last,
      }[event.key];
      if (to !== undefined) {
        event.preventDefault();
        if (to >= 0 && to <= last) go(to);
      } else if (event.key === 'Escape') {
        event.preventDefault();
        problemList.focus();
      }
    },
  },
  episode.rows.map((row, step) => tab(step,
    row.visible_passed ? '✓' : '✗', row.visible_passed ? 'good' : 'bad',
    `${step + 1} ${row.action}`)),
  tab(last, '⚑', '', 'result'));
}

function panel(episode) {
  const isResult = view.step === episode.rows.length;
  return el('div', {
    id: 'step-panel', role: 'tabpanel', tabindex: 0, 'aria-labelledby': `step-${view.step}`,
    onkeydown: (event) => {
      if (event.key !== 'Escape') return;
      event.preventDefault();
      byId(`step-${view.step}`).focus();
    },
  }, isResult ? result(episode) : step(episode, view.step));
}

const fact = (name, text, kind = '') =>
  el('div', {}, el('dt', {}, name), el('dd', { class: kind }, text));
const sum = (values) => values.reduce((a, b) => a + b, 0);

function step(episode, at) {
  const row = episode.rows[at];
  const before = episode.rows.slice(0, at + 1);
  const calls = sum(before.map((each) => each.sent.length));
  const status = [row.status, row.error_type].filter(Boolean).join(': ') || 'no program';
  return [
    el('dl', { class: 'facts-row' },
      fact('action', row.action),
      fact('verdict', status, row.visible_passed ? 'good' : 'bad'),
      fact('reward', row.reward.toFixed(3)),
      fact('calls so far', `${calls} of ${view.game.budget}`)),
    el('div', { class: 'columns' },
      el('section', { 'aria-label': 'Prompt' }, prompts(episode, at)),
      el('section', { 'aria-label': 'Program and verdict' },
        el('h4', {}, 'Program'),
        row.code ? el('pre', { class: 'code', tabindex: 0, 'aria-label': 'Program' }, colouredPython(row.code))
          : el('p', { class: 'note' }, row.code === '' ? 'The reply holds no program.' : 'This step ran no program.'),
        visibleTests(row),
        row.feedback && [el('h4', {}, 'Feedback'), el('pre', {}, row.feedback)])),
    el('details', {}, el('summary', {}, 'The row of trace.jsonl'),
      el('pre', {}, JSON.stringify(row, null, 1))),
  ];
}

// The last request to the same role before that one: what it was edited from.
function previousRequest(episode, at, index) {
  const { role } = episode.rows[at].sent[index];
  const earlier = episode.rows.slice(0, at + 1)
    .flatMap((row, i) => (i < at ? row.sent : row.sent.slice(0, index)));
  return earlier.filter((request) => request.role === role).at(-1);
}

function prompts(episode, at) {
  const { sent } = episode.rows[at];
  if (!sent.length) {
    return [el('h4', {}, 'Prompt'), el('p', { class: 'note' }, 'This step asked no model.')];
  }
  const before = sent.map((_, index) => previousRequest(episode, at, index));
  const toggle = before.some(Boolean) && el('label', { class: 'toggle' },
    el('input', {
      type: 'checkbox', checked: view.changes,
      onchange: async (event) => {
        view.changes = event.target.checked;
        await showEpisode();
        episodeBox.querySelector('.toggle input').focus();
      },
    }), 'changes since the prompt before');
  return [el('div', { class: 'heading' }, el('h4', {}, 'Prompt'), toggle),
    sent.map((request, index) => [
      el('p', { class: 'note' },
        `to the ${request.role}, temperature ${request.temperature}, at most ${request.max_tokens} tokens`,
        before[index] && view.changes && same(before[index], request) && '; the same prompt as before'),
      request.messages.map((message, i) => {
        const old = before[index]?.messages[i]?.content ?? '';
        const isDiff = before[index] && view.changes;
        return el('div', { class: 'message' },
          request.messages.length > 1 && el('span', { class: 'role' }, message.role),
          el('pre', { class: 'prompt', tabindex: 0, 'aria-label': `Message of the ${message.role}` },
            isDiff ? diffNodes(old, message.content) : message.content));
      })])];
}

const same = (a, b) => JSON.stringify(a.messages) === JSON.stringify(b.messages);

function visibleTests(row) {
  if (!row.visible.length) return null;
  const texts = row.prompt?.tests ?? [];
  return [el('h4', {}, 'Visible tests'), el('ul', { class: 'tests' }, row.visible.map((passed, i) =>
    el('li', { class: passed ? 'good' : 'bad' },
      el('span', { class: 'mark', role: 'img', 'aria-label': passed ? 'passed' : 'failed' }, passed ? '✓' : '✗'),
      el('code', {}, texts[i] ?? `visible test ${i + 1}`))))];
}

function result({ rows, end }) {
  const reward = sum(rows.map((row) => row.reward));
  if (!end) {
    return el('p', { class: 'note' }, 'The hidden result of this episode is not in the results of the run.');
  }
  const passes = [...end.mask].filter((bit) => bit === '1').length;
  const hidden = table().label ? 'tests' : 'hidden tests';
  return [
    el('p', { class: `outcome ${end.passed ? 'good' : 'bad'}` },
      end.passed ? '✓ Solved' : '✗ Not solved',
      end.mask && `: the submitted program passes ${passes} of ${count(end.mask.length, hidden.slice(0, -1))}`),
    end.error && el('p', {}, `Nothing was submitted: ${end.error}`),
    end.mask && el('ul', { class: 'tests row' }, [...end.mask].map((bit, i) =>
      el('li', { class: bit === '1' ? 'good' : 'bad' },
        `${bit === '1' ? '✓' : '✗'} ${i + 1}`,
        el('span', { class: 'sr-only' }, bit === '1' ? ' passed' : ' failed')))),
    el('dl', { class: 'facts-row' },
      fact('tests passed', `${percent(end.soft)} %`),
      fact('calls', `${end.calls} of ${view.game.budget}`),
      fact('programs run', end.attempts),
      fact('tokens in', end.prompt_tokens.toLocaleString('en')),
      fact('tokens out', end.completion_tokens.toLocaleString('en')),
      fact('sum of rewards', reward.toFixed(3))),
  ];
}

// Builds the section; `viewer` is null for a page without a trace.
const viewer = DATA.trace && el('div', { class: 'viewer' },
  el('form', { class: 'controls', onsubmit: (event) => event.preventDefault() },
    strategyLabel, budgetLabel, seedLabel, filterLabel,
    el('label', { for: 'search', class: 'wide' }, 'search', searchBox)),
  el('div', { class: 'panes' },
    el('div', { class: 'side' }, found, problemList), episodeBox),
  el('p', { class: 'note keys' }, el('kbd', {}, '↑'), el('kbd', {}, '↓'), ' problem, ',
    el('kbd', {}, '←'), el('kbd', {}, '→'), ' step, ', el('kbd', {}, 'Enter'),
    ' from the list to the steps, ', el('kbd', {}, 'Esc'), ' back'));

function route() {
  const target = parseHash(location.hash);
  if (!target) return false;
  if (target.game.protocol !== state.protocol) update({ protocol: target.game.protocol });
  view.step = target.step;
  const { step: wanted } = target;
  view.game = view.game ?? null;
  openGame(target.game, target.place);
  view.step = wanted;
  byId('trace').scrollIntoView();
  return true;
}
