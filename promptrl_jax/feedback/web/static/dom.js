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
