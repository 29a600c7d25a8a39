// The prompt that is looked at: what is known of it, its kin, and its text.

const MOST_CHILDREN = 12;

function promptCard(choose) {
  const box = el('div', { id: 'prompt', class: 'prompt-card', tabindex: -1 });

  function draw() {
    const member = state.chosen;
    const parents = parentsOf(member);
    const children = (CHILDREN.get(member) ?? [])
      .slice()
      .sort((a, b) => (b.fitness ?? -1) - (a.fitness ?? -1));
    const content = el(
      'div',
      {},
      el(
        'h2',
        {},
        `Prompt ${nameOf(member)} `,
        member.alive && el('span', { class: 'badge' }, 'in the population'),
      ),
      el('p', { class: 'made' }, made(member, parents)),
      el('dl', { class: 'facts-row' }, facts(member)),
      kin('Parents', parents),
      kin('Children', children.slice(0, MOST_CHILDREN)),
      children.length > MOST_CHILDREN &&
        el('p', { class: 'note' }, `and ${children.length - MOST_CHILDREN} more`),
      text(member, parents),
    );
    box.replaceChildren(content);
  }

  const made = ({ operator, generation }, parents) =>
    `${operator[0].toUpperCase()}${operator.slice(1)}${parents.length ? `, in generation ${generation}` : ''}.`;

  function facts({ fitness, shown, heard, liked }) {
    const rows = [
      ['fitness', share(fitness)],
      ['shown', shown === 1 ? 'once' : `${shown} times`],
    ];
    if (heard) rows.push([`mean of ${count(heard, 'rating')}`, share(liked)]);
    return rows.map(([name, value]) =>
      el('div', {}, el('dt', {}, name), el('dd', {}, value)),
    );
  }

  function kin(title, members) {
    if (!members.length) return null;
    return el(
      'div',
      { class: 'kin-row', role: 'group', 'aria-label': title },
      el('span', { class: 'segments-label', 'aria-hidden': 'true' }, title),
      members.map((member) =>
        el(
          'button',
          { type: 'button', onclick: () => choose(member, true) },
          swatchOf(member),
          nameOf(member),
          member.fitness !== null && el('small', {}, member.fitness.toFixed(2)),
        ),
      ),
    );
  }

  function text(member, parents) {
    if (!parents.length) return [el('pre', PANEL, member.text)];
    const names = ['parent', 'second parent'].slice(0, parents.length);
    const choices = [...names.map((name, i) => [i, name]), [-1, 'nothing']];
    const against = parents[state.against];
    return [
      segments('Compared with', choices, against ? state.against : -1, (value) => {
        state.against = value;
        draw();
        const buttons = box.querySelectorAll('.segments button');
        buttons[choices.findIndex(([v]) => v === value)].focus();
      }),
      el(
        'pre',
        PANEL,
        against ? diffNodes(against.text, member.text) : member.text,
      ),
      against &&
        el(
          'p',
          { class: 'note' },
          el('ins', {}, 'Underlined'),
          ' is new, ',
          el('del', {}, 'struck'),
          ' was in the parent.',
        ),
    ];
  }

  return { box, draw };
}

// It may scroll, by keyboard too.
const PANEL = { tabindex: 0, role: 'region', 'aria-label': 'Text of the prompt' };

const swatchOf = (member) =>
  svg(
    'svg',
    { class: 'lineage', width: 14, height: 14, 'aria-hidden': 'true' },
    svg(
      'g',
      {
        class: `prompt ${shadeOf(member)}${member.alive ? ' alive' : ''}`,
        transform: 'translate(7 7)',
      },
      svg('circle', { class: 'dot', r: 5 }),
    ),
  );
