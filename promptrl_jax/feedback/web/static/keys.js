// Which key does what. `act` of page.js takes the names on the right.

const SINGLE = {
  thumbs: {
    ...{ '+': 'rate 1', u: 'rate 1', '-': 'rate 0', d: 'rate 0' },
    '−': 'rate 0',
  },
  rating_1_5: numbers(5),
  rating_1_10: { ...numbers(9), 0: 'rate 10' },
};
const PAIR = {
  ...{ ArrowLeft: 'prefer a', a: 'prefer a' },
  ...{ ArrowDown: 'prefer tie', '=': 'prefer tie', t: 'prefer tie' },
  ...{ ArrowRight: 'prefer b', b: 'prefer b' },
  E: 'edit 1',
};
const ALWAYS = {
  ...{ c: 'comment', e: 'edit 0', r: 'again', s: 'skip', x: 'scale' },
  ...{ z: 'undo', '?': 'help' },
};
const WORDS = ['TEXTAREA', 'SELECT'];

function numbers(last) {
  const keys = Array.from({ length: last }, (_, i) => i + 1);
  return Object.fromEntries(keys.map((key) => [key, `rate ${key}`]));
}

// What a key asks for, or undefined. shown: how many answers stand there.
export function actionOf(event, shown, scale) {
  const { key, target } = event;
  const isField = WORDS.includes(target.tagName);
  if (isField && key === 'Escape') return 'leave';
  if (isField && key === 'Enter' && (event.ctrlKey || event.metaKey)) {
    return 'send';
  }
  if (isField || event.ctrlKey || event.metaKey || event.altKey) return;
  // A key that is held down would rate what comes next.
  if (event.repeat) return;
  // Arrows choose among radio buttons.
  if (target.type === 'radio' && key.startsWith('Arrow')) return;
  const rates = shown > 1 ? PAIR : (SINGLE[scale] ?? {});
  return (shown && rates[key]) || ALWAYS[key];
}

// For the list of keys: [keys, meaning].
export const HELP = [
  [['+', '−'], 'thumbs up, thumbs down; also u and d'],
  [['1', '…', '5'], 'rate on the scale from 1 to 5'],
  [['1', '…', '9', '0'], 'rate on the scale from 1 to 10; 0 is 10'],
  [['←', '↓', '→'], 'first is better, same, second; also a, t or =, and b'],
  [['c'], 'write a comment'],
  [['e'], 'correct the answer; Shift+E corrects the second one'],
  [['Ctrl', 'Enter'], 'in a field: done; sends a correction'],
  [['Esc'], 'leave a field'],
  [['r'], 'ask again: another answer to the question, where one is given'],
  [['s'], 'skip'],
  [['z'], 'take the last one back'],
  [['x'], 'next scale'],
  [['?'], 'this list'],
];
