// What is seen of a question, and its buttons.

import { byId, el, kbd, once, thumb } from './dom.js';
import { HELP } from './keys.js';
import { rendered } from './text.js';

export const SCALE_NAMES = {
  thumbs: 'Thumbs',
  rating_1_5: '1–5',
  rating_1_10: '1–10',
};
const TITLES = ['First answer', 'Second answer'];

export function drawQuestion(question, shown, draft, on) {
  byId('kicker').textContent =
    shown.length > 1 ? 'Which answer is better?' : 'How good is the answer?';
  byId('query').textContent = question.query;
  byId('comment').value = draft.comment;
  byId('answers').className = shown.length > 1 ? 'pair' : 'single';
  byId('answers').replaceChildren(
    ...shown.map((response, i) => {
      const title = shown.length > 1 ? TITLES[i] : 'Answer';
      return drawAnswer(response, i, title, draft, on);
    }),
  );
}

function drawAnswer(response, place, title, draft, on) {
  const edited = draft.edits[response.id];
  const name = `answer-${place}`;
  const field =
    edited !== undefined &&
    el('textarea', {
      class: 'edit',
      id: `edit-${place}`,
      'aria-label': `${title} as it should be`,
      oninput: (event) => on.edited(response.id, event.target.value),
    });
  if (field) field.value = edited;
  return el(
    'article',
    { class: 'answer', 'aria-labelledby': name, 'data-id': response.id },
    el(
      'header',
      {},
      el('h3', { id: name }, title),
      field
        ? el(
            'button',
            { type: 'button', class: 'quiet', onclick: () => on.discard(place) },
            'Discard the edit',
          )
        : el(
            'button',
            {
              type: 'button',
              class: 'quiet',
              onclick: () => on.edit(place),
            },
            el(
              'span',
              {},
              'Edit',
              el('span', { class: 'sr-only' }, ` the ${title.toLowerCase()}`),
            ),
            kbd(place ? 'E' : 'e'),
          ),
    ),
    field || el('div', { class: 'text' }, rendered(response.text)),
  );
}

// more: what is said besides the text, to those who hear it.
const button = (text, more, keys, press, value) =>
  el(
    'button',
    { type: 'button', onclick: once(press), 'data-value': value },
    el('span', { class: 'face' }, text),
    more && el('span', { class: 'sr-only' }, more),
    keys.length > 0 && kbd(...keys),
  );

// The buttons for one answer on a scale, or for two.
export function drawRating(shown, scale, on) {
  const box = byId('rating');
  const kind = shown > 1 ? 'pair' : scale;
  if (box.dataset.kind === kind) return; // They keep the focus.
  box.dataset.kind = kind;
  box.className = `rating ${kind}`;
  box.replaceChildren(
    el('h3', { id: 'rating-title', class: 'sr-only' }, 'Your rating'),
    ...buttons(kind, on),
  );
}

function buttons(kind, on) {
  if (kind === 'pair') {
    const choice = (text, key, value) =>
      button(text, null, [key], () => on.prefer(value), value);
    return [
      choice('First is better', '←', 'a'),
      choice('Same', '↓', 'tie'),
      choice('Second is better', '→', 'b'),
    ];
  }
  const rate = (text, more, key, value) =>
    button(text, more, key, () => on.rate(value), value);
  if (kind === 'thumbs') {
    return [
      rate([thumb(true), 'Bad'], null, ['−'], 0),
      rate([thumb(false), 'Good'], null, ['+'], 1),
    ];
  }
  const most = kind === 'rating_1_5' ? 5 : 10;
  const meaning = (i) => (i === 1 ? ', worst' : i === most ? ', best' : '');
  const range = Array.from({ length: most }, (_, i) => i + 1);
  return [
    el('span', { class: 'end', 'aria-hidden': 'true' }, 'worst'),
    ...range.map((i) =>
      rate(i, ` of ${most}${meaning(i)}`, i === 10 ? ['0'] : [], i),
    ),
    el('span', { class: 'end', 'aria-hidden': 'true' }, 'best'),
  ];
}

export function drawScales(names, scale, choose) {
  byId('scale-choices').replaceChildren(
    ...names.map((name) =>
      el(
        'label',
        {},
        el('input', {
          type: 'radio',
          name: 'scale',
          value: name,
          checked: name === scale,
          onchange: () => choose(name),
        }),
        el('span', {}, SCALE_NAMES[name]),
      ),
    ),
  );
}

export function drawRefused(batches, forget) {
  byId('refused-list').replaceChildren(
    ...batches.map((batch) =>
      el(
        'li',
        {},
        el('p', {}, el('b', {}, batch.label), ` – ${batch.message}`),
        el(
          'details',
          {},
          el('summary', {}, 'What was sent'),
          el(
            'pre',
            { tabindex: 0, role: 'region', 'aria-label': 'Events' },
            JSON.stringify(batch.events, null, 2),
          ),
        ),
        el(
          'button',
          { type: 'button', class: 'quiet', onclick: () => forget(batch.key) },
          'Remove',
        ),
      ),
    ),
  );
}

// The list of keys, and the switch that turns single ones off.
export function drawHelp() {
  byId('help-keys').replaceChildren(
    ...HELP.map(([keys, meaning]) =>
      el(
        'div',
        {},
        el('dt', {}, keys.map((key) => el('kbd', {}, key))),
        el('dd', {}, meaning),
      ),
    ),
  );
  const box = byId('keys-on');
  box.checked = localStorage.getItem('promptrl/keys') !== 'off';
  box.addEventListener('change', () => {
    localStorage.setItem('promptrl/keys', box.checked ? 'on' : 'off');
  });
  byId('open-help').addEventListener('click', () => byId('help').showModal());
}
