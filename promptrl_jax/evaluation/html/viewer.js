// The section of the trace viewer, and links into it.

const lost = el(
  'p',
  { class: 'note', role: 'alert', hidden: true },
  'The address names a problem that this trace does not have.',
);
// False for a page without a trace.
const viewer =
  GAMES.length > 0 &&
  el(
    'div',
    { class: 'viewer' },
    lost,
    el(
      'form',
      { class: 'controls', onsubmit: (event) => event.preventDefault() },
      strategyLabel,
      budgetLabel,
      seedLabel,
      filterLabel,
      el('label', { for: 'search', class: 'wide' }, 'search', searchBox),
    ),
    el(
      'div',
      { class: 'panes' },
      el('div', { class: 'side' }, found, problemList),
      episodeBox,
    ),
    el(
      'p',
      { class: 'note keys' },
      el('kbd', {}, '↑'),
      el('kbd', {}, '↓'),
      ' problem, ',
      el('kbd', {}, '←'),
      el('kbd', {}, '→'),
      ' step, ',
      el('kbd', {}, 'Enter'),
      ' from the list to the steps, ',
      el('kbd', {}, 'Esc'),
      ' back',
    ),
  );

// Opens what the address names; returns whether it names an episode.
function route() {
  const target = parseHash(location.hash);
  lost.hidden = !target || target.place >= 0;
  if (!target || target.place < 0) return false;
  if (target.game.protocol !== state.protocol)
    update({ protocol: target.game.protocol });
  // The page may be too short to scroll before the episode is drawn.
  openGame(target.game, target.place, target.step).then(() =>
    byId('trace').scrollIntoView({ behavior: 'instant' }),
  );
  return true;
}
