// Puts the page together, and keeps the address at the prompt that is shown.

const tree = forest(choose);
const card = promptCard(choose);

// isFar: it was not chosen in the forest, which has to move there.
function choose(member, isFar = false) {
  if (!member[state.view]) setView('all');
  state.chosen = member;
  state.against = 0;
  history.replaceState(null, '', `#${encodeURIComponent(member.id)}`);
  tree.mark();
  card.draw();
  if (isFar) {
    tree.reveal(member);
    card.box.focus({ preventScroll: true });
  }
}

function setView(view) {
  state.view = view;
  viewBox.replaceChildren(views());
  tree.draw();
  tree.reveal(state.chosen);
}

const views = () =>
  FEW.length < MEMBERS.length &&
  segments(
    'Prompts',
    [
      ['few', `shown or living, and ancestors (${FEW.length})`],
      ['all', `all (${MEMBERS.length})`],
    ],
    state.view,
    (view) => {
      setView(view);
      viewBox.querySelector('[aria-pressed="true"]').focus();
    },
  );
const viewBox = el('div', {}, views());

const legendBox = el(
  'p',
  { class: 'legend-row note' },
  el(
    'span',
    { class: 'shades' },
    `fitness ${LOW.toFixed(2)} `,
    Array.from({ length: SHADES }, (_, i) =>
      swatchOf({ fitness: LOW + ((i + 0.5) / SHADES) * (HIGH - LOW) }),
    ),
    ` ${HIGH.toFixed(2)}`,
  ),
  el('span', {}, swatchOf({ fitness: null }), ' not known'),
  el('span', {}, swatchOf({ fitness: HIGH, alive: true }), ' in the population'),
  el('span', {}, 'larger: shown more often'),
  el('span', {}, 'dashed: second parent'),
);

const living = MEMBERS.filter((member) => member.alive);
const generations = Math.max(...MEMBERS.map(({ generation }) => generation));
byId('lead').textContent =
  `${count(MEMBERS.length, 'prompt')} of ${count(generations + 1, 'generation')}, ` +
  `from left to right. ${living.length} are in the population` +
  (living.length && best(living).fitness !== null
    ? `; the best one has a fitness of ${share(best(living).fitness)}.`
    : '.');
byId('main').append(
  el(
    'section',
    { id: 'forest', 'aria-label': 'Lineage' },
    viewBox,
    legendBox,
    el('div', { class: 'lineage-panes' }, tree.box, card.box),
    el(
      'p',
      { class: 'note keys' },
      el('kbd', {}, '←'),
      ' parent, ',
      el('kbd', {}, '→'),
      ' best child, ',
      el('kbd', {}, '↑'),
      el('kbd', {}, '↓'),
      ' above, below, ',
      el('kbd', {}, 'Home'),
      ' the best',
    ),
  ),
);

function route() {
  const member = MEMBER.get(decodeURIComponent(location.hash.slice(1)));
  if (member) choose(member);
}
window.addEventListener('hashchange', route);
tree.draw();
card.draw();
route();
tree.reveal(state.chosen);
document.documentElement.dataset.ready = 'yes';
