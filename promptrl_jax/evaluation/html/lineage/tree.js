// The forest: generations from left to right, branches below each other.

const ROW = 22;
const EDGE = { left: 16, right: 46, top: 14, bottom: 14 };
const APART = 24; // from one prompt without relatives to the next

const radiusOf = ({ shown }) => 4.5 + Math.min(4, 1.2 * Math.sqrt(shown));

// Draws what is shown and calls `choose` with a member that is pointed out.
function forest(choose) {
  const box = el('div', { class: 'forest-box' });
  const tip = el('div', { class: 'tip', hidden: true, 'aria-hidden': 'true' });
  let places = new Map(); // member -> [x, y]
  let groups = new Map(); // member -> its g
  let edges = []; // [parent, child, path]
  let order = []; // as they stand there, row by row
  let width = 0;

  function draw() {
    const members = shownMembers();
    const related = members.filter((m) => m[state.view][0] >= 0);
    const apart = members.filter((m) => m[state.view][0] < 0);
    const columns = 1 + Math.max(0, ...related.map((m) => m[state.view][0]));
    const rows = Math.max(0, ...related.map((m) => m[state.view][1] + 1));
    width = box.clientWidth;
    const room = width - EDGE.left - EDGE.right;
    const step = columns > 1 ? Math.max(12, room / (columns - 1)) : 0;
    const wide = Math.max(width, EDGE.left + EDGE.right + step * (columns - 1));
    const high = EDGE.top + ROW * rows + EDGE.bottom;
    const many = Math.max(1, Math.floor((width - 2 * EDGE.left) / APART) + 1);
    const floor = high + 26; // of those that stand apart
    places = new Map([
      ...related.map((m) => [
        m,
        [
          EDGE.left + step * m[state.view][0],
          EDGE.top + ROW * (m[state.view][1] + 0.5),
        ],
      ]),
      ...apart.map((m, i) => [
        m,
        [
          EDGE.left + APART * (i % many),
          floor + APART * Math.floor(i / many),
        ],
      ]),
    ]);
    order = [...places.keys()].sort((a, b) => {
      const [[ax, ay], [bx, by]] = [places.get(a), places.get(b)];
      return ay - by || ax - bx;
    });
    edges = related.flatMap((child) =>
      parentsOf(child)
        .filter((parent) => places.has(parent))
        .map((parent, i) => [parent, child, edge(parent, child, i)]),
    );
    groups = new Map(order.map((member) => [member, node(member)]));
    const bottom = apart.length
      ? floor + APART * Math.ceil(apart.length / many)
      : high;
    const hadFocus = box.contains(document.activeElement);
    box.replaceChildren(
      axis(related, step, wide),
      svg(
        'svg',
        {
          class: 'lineage',
          width: wide,
          height: bottom,
          role: 'group',
          'aria-label': `${count(members.length, 'prompt')}. Arrow keys go to parents, children and neighbours.`,
        },
        edges.map(([, , path]) => path),
        svg(
          'g',
          { class: 'numbers' },
          related
            .filter((m) => m.alive && m.fitness !== null && hasRoom(m))
            .map(number),
        ),
        apart.length > 0 &&
          svg(
            'text',
            { x: EDGE.left - 6, y: high + 4 },
            `${count(apart.length, 'prompt')} without parents or children`,
          ),
        [...groups.values()],
      ),
      tip,
    );
    mark();
    if (hadFocus) groups.get(state.chosen)?.focus({ preventScroll: true });
  }

  // The number of a generation above its column, where there is room for it.
  function axis(related, step, wide) {
    const numbers = new Map(
      related.map((m) => [m[state.view][0], m.generation]),
    );
    let last = -Infinity;
    const ticks = [...numbers]
      .sort(([a], [b]) => a - b)
      .map(([column, generation]) => {
        const x = EDGE.left + step * column;
        if (x - last < 30) return null;
        last = x;
        return svg('text', { x, y: 15, 'text-anchor': 'middle' }, generation);
      });
    return svg(
      'svg',
      { class: 'generations', width: wide, height: 22, 'aria-hidden': 'true' },
      ticks,
    );
  }

  function edge(parent, child, number) {
    const [[ax, ay], [bx, by]] = [places.get(parent), places.get(child)];
    const middle = (ax + bx) / 2;
    return svg('path', {
      class: number ? 'edge second' : 'edge',
      d: `M${ax},${ay}C${middle},${ay} ${middle},${by} ${bx},${by}`,
    });
  }

  function node(member) {
    const [x, y] = places.get(member);
    const show = () => point(member);
    return svg(
      'g',
      {
        class: `prompt ${shadeOf(member)}${member.alive ? ' alive' : ''}`,
        transform: `translate(${x} ${y})`,
        role: 'button',
        tabindex: -1,
        'aria-label': summaryOf(member),
        onclick: () => choose(member),
        onfocus: show,
        onblur: hide,
        onmouseenter: show,
        onmouseleave: hide,
        onkeydown: (event) => onKey(event, member),
      },
      svg('circle', { class: 'hit', r: 11 }),
      svg('circle', { class: 'dot', r: radiusOf(member) }),
    );
  }

  // The fitness beside a prompt that lives, which its label says as well.
  function number(member) {
    const [x, y] = places.get(member);
    return svg(
      'text',
      { x: x + radiusOf(member) + 6, y: y + 4, 'aria-hidden': 'true' },
      member.fitness.toFixed(2),
    );
  }

  // Whether nothing stands where the fitness of a prompt is to be written.
  function hasRoom(member) {
    const [x, y] = places.get(member);
    return [...places.values()].every(
      ([left, top]) => left <= x || left > x + 44 || Math.abs(top - y) > 12,
    );
  }

  function point(member) {
    const [x, y] = places.get(member);
    const { operator, fitness, shown, liked } = member;
    tip.replaceChildren(
      el('b', {}, operator),
      el('br'),
      `fitness ${share(fitness)}`,
      shown > 0 && `, shown ${shown}×`,
      liked !== null && `, rated ${share(liked)}`,
    );
    tip.hidden = false;
    // Within what is in sight of the box, and below the prompt.
    const left = Math.min(x - 20, box.scrollLeft + width - tip.offsetWidth - 4);
    tip.style.left = `${Math.max(box.scrollLeft, left)}px`;
    tip.style.top = `${y + 40}px`;
  }

  // The pointer leaves: what has the focus goes on being explained.
  function hide() {
    tip.hidden = true;
    const focused = order.find(
      (member) => groups.get(member) === document.activeElement,
    );
    if (focused) point(focused);
  }

  // What a key leads to, or undefined.
  function neighbour(member, key) {
    const at = order.indexOf(member);
    if (key === 'ArrowLeft') return parentsOf(member).find((p) => groups.has(p));
    if (key === 'ArrowRight') return best(childrenOf(member));
    if (key === 'ArrowUp') return order[at - 1];
    if (key === 'ArrowDown') return order[at + 1];
    if (key === 'Home') return best(order);
  }

  function onKey(event, member) {
    const { key } = event;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const isPress = key === 'Enter' || key === ' ';
    const to = isPress ? member : neighbour(member, key);
    if (isPress || key.startsWith('Arrow') || key === 'Home')
      event.preventDefault();
    if (!to) return;
    choose(to);
    groups.get(to).focus({ preventScroll: true });
    reveal(to);
  }

  // Scrolls the box, and not the page, so far that a prompt is in sight.
  function reveal(member) {
    const [x, y] = places.get(member);
    const near = 60;
    const left = Math.max(0, Math.min(box.scrollLeft, x - near));
    const top = Math.max(0, Math.min(box.scrollTop, y - near));
    box.scrollLeft = Math.max(left, x + near - box.clientWidth);
    box.scrollTop = Math.max(top, y + near + 20 - box.clientHeight);
  }

  // Marks the prompt that is looked at, and all that it comes from.
  function mark() {
    const kin = ancestry(state.chosen);
    for (const [parent, child, path] of edges)
      path.classList.toggle('kin', kin.has(parent) && kin.has(child));
    for (const [member, group] of groups) {
      const isChosen = member === state.chosen;
      group.setAttribute('aria-pressed', String(isChosen));
      group.setAttribute('tabindex', isChosen ? 0 : -1);
      group.classList.toggle('kin', kin.has(member));
    }
    // Tab has to lead somewhere, if that one is not drawn.
    if (!groups.has(state.chosen)) groups.get(order[0])?.setAttribute('tabindex', 0);
  }

  new ResizeObserver(() => {
    if (box.clientWidth !== width) draw();
  }).observe(box);
  return { box, draw, mark, reveal: (m) => places.has(m) && reveal(m) };
}
