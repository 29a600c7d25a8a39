// Elements. All text becomes a text node: nothing parses HTML.

export const byId = (id) => document.getElementById(id);

export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
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

const SVG = 'http://www.w3.org/2000/svg';
const THUMB = 'M3 11h4v9H3zM7 12l4-8.5q3 0 2.5 3.5l-.6 3H20q1.5 0 1 2l-1.7 6.5q-.4 1.5-2 1.5H7z';

export function thumb(isDown) {
  const icon = document.createElementNS(SVG, 'svg');
  icon.setAttribute('viewBox', '0 0 24 24');
  if (isDown) icon.setAttribute('class', 'down');
  const path = document.createElementNS(SVG, 'path');
  path.setAttribute('d', THUMB);
  icon.append(path);
  return icon;
}

export const kbd = (...keys) =>
  el(
    'span',
    { class: 'keys', 'aria-hidden': 'true' },
    keys.map((key) => el('kbd', {}, key)),
  );

export const count = (number, one, many = `${one}s`) =>
  `${number} ${number === 1 ? one : many}`;

// A click, but not the second one of a double click: that would rate the next
// question, which nobody has read yet.
export const once = (act) => (event) => {
  if (event.detail <= 1) act(event);
};
