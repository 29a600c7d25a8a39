// Elements and numbers. All text becomes a text node: nothing parses HTML.

const SVG = 'http://www.w3.org/2000/svg';

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? '' : value);
  }
  node.append(
    ...children
      .flat(Infinity)
      .filter((child) => child != null && child !== false),
  );
  return node;
}

const el = (tag, attributes = {}, ...children) =>
  fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);
const byId = (id) => document.getElementById(id);

const percent = (share) => (100 * share).toFixed(1);
const signed = (share) => (share >= 0 ? '+' : '−') + percent(Math.abs(share));
const interval = (low, high, text = percent) => `[${text(low)}, ${text(high)}]`;
const pText = (p) => (p >= 0.00005 ? p.toFixed(4) : p.toExponential(0));
const count = (number, one, many = `${one}s`) =>
  `${number.toLocaleString('en')} ${number === 1 ? one : many}`;

const unique = (values) => [...new Set(values)];
const ascending = (a, b) => a - b;

// A choice of one of a few, as buttons. `choices`: [value, text] pairs.
function segments(label, choices, chosen, choose) {
  return el(
    'span',
    { class: 'segments', role: 'group', 'aria-label': label },
    el('span', { class: 'segments-label', 'aria-hidden': 'true' }, label),
    choices.map(([value, text]) =>
      el(
        'button',
        {
          type: 'button',
          'aria-pressed': String(value === chosen),
          onclick: () => choose(value),
        },
        text,
      ),
    ),
  );
}

// A table of a row of heads (elements) and of rows (tr elements).
const grid = (heads, rows, attributes = {}) =>
  el(
    'table',
    attributes,
    el('thead', {}, el('tr', {}, heads)),
    el('tbody', {}, rows),
  );
const columnHead = (text, kind = 'number') =>
  el('th', { scope: 'col', class: kind || null }, text);
const numberCell = (value, note = null) =>
  el(
    'td',
    { class: 'number' },
    value.toLocaleString('en'),
    note && el('small', {}, note),
  );

// A row of a table that is headed by a number.
const numberedRow = (number, ...cells) =>
  el('tr', {}, el('th', { scope: 'row', class: 'number' }, number), cells);

// A table below its caption, in a box of its own that scrolls, by keyboard too.
function scrolling(label, caption, table, extra = '') {
  return [
    caption && el('p', { class: 'note' }, caption),
    el(
      'div',
      {
        class: `scroll ${extra}`,
        role: 'region',
        'aria-label': label,
        tabindex: 0,
      },
      table,
    ),
  ];
}
