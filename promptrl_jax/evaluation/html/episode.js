// One problem as a strategy played it: its steps, and what came of it.

async function showEpisode(focus = false) {
  const { game, place } = view;
  const task = TASKS[game.tasks[place]];
  let episode;
  try {
    episode = await loadEpisode(game, place);
  } catch (error) {
    episodeBox.replaceChildren(
      el(
        'p',
        { class: 'note' },
        `This part of the page cannot be read: ${error.message}`,
      ),
    );
    return;
  }
  if (game !== view.game || place !== view.place) return;
  view.step = Math.max(0, Math.min(view.step, episode.rows.length));
  const [, words] = OUTCOMES[game.outcomes[place]];
  const at = view.listed.indexOf(place);
  const turn = (by, text) =>
    el(
      'button',
      {
        type: 'button',
        disabled: view.listed[at + by] === undefined,
        onclick: () => choose(view.listed[at + by]),
      },
      text,
    );
  episodeBox.replaceChildren(
    el(
      'header',
      {},
      el('h3', {}, task.id),
      el('span', { class: 'turns' }, turn(-1, '↑ previous'), turn(1, '↓ next')),
      el(
        'p',
        { class: 'note' },
        `${game.strategy} at ${budgetName(game.budget)}, seed ${game.seed}: `,
        el('b', { class: `outcome-${game.outcomes[place]}` }, words),
        ` after ${count(episode.rows.length, 'step')} and ${count(game.calls[place], 'call')}`,
      ),
    ),
    stepTabs(episode),
    panel(episode),
  );
  markChosen();
  if (focus) episodeBox.querySelector('[role=tab][aria-selected=true]').focus();
  // Without an entry in the history for each look.
  if (view.linked)
    history.replaceState(null, '', hashOf(game, task.id, view.step));
  view.linked = true;
}

function stepTabs(episode) {
  const last = episode.rows.length;
  const go = (step) => {
    view.step = step;
    showEpisode(true);
  };
  const tab = (step, mark, kind, text) =>
    el(
      'button',
      {
        type: 'button',
        role: 'tab',
        id: `step-${step}`,
        'aria-controls': 'step-panel',
        'aria-selected': String(step === view.step),
        tabindex: step === view.step ? 0 : -1,
        onclick: () => go(step),
      },
      el('span', { class: `mark ${kind}`, 'aria-hidden': 'true' }, mark),
      text,
    );
  return el(
    'div',
    {
      class: 'steps',
      role: 'tablist',
      'aria-label': 'Steps',
      onkeydown: (event) => {
        const to = {
          ArrowLeft: view.step - 1,
          ArrowRight: view.step + 1,
          Home: 0,
          End: last,
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
    episode.rows.map((row, step) =>
      tab(
        step,
        row.visible_passed ? '✓' : '✗',
        row.visible_passed ? 'good' : 'bad',
        `${step + 1} ${row.action}`,
      ),
    ),
    tab(last, '⚑', '', 'result'),
  );
}

function panel(episode) {
  const isResult = view.step === episode.rows.length;
  return el(
    'div',
    {
      id: 'step-panel',
      role: 'tabpanel',
      tabindex: 0,
      'aria-labelledby': `step-${view.step}`,
      onkeydown: (event) => {
        if (event.key !== 'Escape') return;
        event.preventDefault();
        byId(`step-${view.step}`).focus();
      },
    },
    isResult ? result(episode) : step(episode, view.step),
  );
}
