// The text of an answer: as it is, with what stands between ``` as code.

import { el } from './dom.js';

const FENCE = /^\s*```/;

// Parts in order, { text } or { code }. A fence that is never closed lasts to
// the end.
export function parts(text) {
  const found = [];
  let lines = [];
  let isCode = false;
  const close = () => {
    const content = lines.join('\n');
    if (isCode) found.push({ code: content });
    else if (content.trim()) found.push({ text: content });
    lines = [];
  };
  for (const line of text.replace(/\r\n?/g, '\n').split('\n')) {
    if (FENCE.test(line)) {
      close();
      isCode = !isCode;
    } else {
      lines.push(line);
    }
  }
  close();
  return found;
}

export const rendered = (text) =>
  parts(text).map((part) =>
    part.code === undefined
      ? el('p', {}, part.text.replace(/^\n+|\s+$/g, ''))
      : el(
          'pre',
          // It may scroll sideways, by keyboard too.
          { tabindex: 0, role: 'region', 'aria-label': 'Code' },
          el('code', {}, part.code),
        ),
  );
