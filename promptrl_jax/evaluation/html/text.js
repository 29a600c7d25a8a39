// Differences of texts by words, and colours of programs.

const WORDS = /\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu;
const MOST_CELLS = 6e6; // of the table below; a longer middle is all replaced

// Returns [kind, text] runs, kind being 'same', 'del' or 'ins'.
function diffWords(before, after) {
  const a = before.match(WORDS) ?? [];
  const b = after.match(WORDS) ?? [];
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (
    end < a.length - start &&
    end < b.length - start &&
    a.at(-1 - end) === b.at(-1 - end)
  )
    end++;
  const runs = [];
  const add = (kind, text) => {
    if (runs.at(-1)?.[0] === kind) runs.at(-1)[1] += text;
    else if (text) runs.push([kind, text]);
  };
  add('same', a.slice(0, start).join(''));
  const x = a.slice(start, a.length - end);
  const y = b.slice(start, b.length - end);
  if (x.length * y.length > MOST_CELLS) {
    add('del', x.join(''));
    add('ins', y.join(''));
  } else {
    alignWords(x, y, add);
  }
  add('same', b.slice(b.length - end).join(''));
  return joined(runs);
}

// Changed words that only blanks divide become one change: phrases are read more
// easily than single words.
function joined(runs) {
  const result = [];
  let del = '';
  let ins = '';
  const flush = () => {
    if (del.trim() || (del && !ins)) result.push(['del', del]);
    if (ins) result.push(['ins', ins]);
    del = ins = '';
  };
  runs.forEach(([kind, text], i) => {
    const isBlank = /^[^\S\n]+$/.test(text) && (del || ins) && runs[i + 1];
    if (kind !== 'ins' && (kind === 'del' || isBlank)) del += text;
    if (kind !== 'del' && (kind === 'ins' || isBlank)) ins += text;
    if (kind === 'same' && !isBlank) {
      flush();
      result.push([kind, text]);
    }
  });
  flush();
  return result;
}

// Longest common subsequence; length[i][j] is that of x from i and y from j.
function alignWords(x, y, add) {
  const width = y.length + 1;
  const length = new Uint16Array((x.length + 1) * width);
  for (let i = x.length - 1; i >= 0; i--) {
    for (let j = y.length - 1; j >= 0; j--) {
      length[i * width + j] =
        x[i] === y[j]
          ? length[(i + 1) * width + j + 1] + 1
          : Math.max(length[(i + 1) * width + j], length[i * width + j + 1]);
    }
  }
  let [i, j] = [0, 0];
  while (i < x.length || j < y.length) {
    if (i < x.length && j < y.length && x[i] === y[j]) {
      add('same', x[i]);
      i++;
      j++;
    } else if (
      j >= y.length ||
      (i < x.length && length[(i + 1) * width + j] >= length[i * width + j + 1])
    ) {
      add('del', x[i++]);
    } else {
      add('ins', y[j++]);
    }
  }
}

const diffNodes = (before, after) =>
  diffWords(before, after).map(([kind, text]) =>
    kind === 'same' ? text : el(kind, {}, text),
  );

const PYTHON = new RegExp(
  [
    '(?<comment>#[^\\n]*)',
    '(?<string>"""[^]*?"""|\'\'\'[^]*?\'\'\'|"(?:[^"\\\\\\n]|\\\\.)*"|\'(?:[^\'\\\\\\n]|\\\\.)*\')',
    '(?<number>\\b\\d[\\w.]*)',
    '(?<keyword>\\b(?:False|None|True|and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|nonlocal|not|or|pass|raise|return|try|while|with|yield)\\b)',
  ].join('|'),
  'g',
);

function colouredPython(code) {
  const nodes = [];
  let last = 0;
  for (const match of code.matchAll(PYTHON)) {
    nodes.push(code.slice(last, match.index));
    const [kind] = Object.entries(match.groups).find(
      ([, text]) => text !== undefined,
    );
    nodes.push(el('span', { class: `py-${kind}` }, match[0]));
    last = match.index + match[0].length;
  }
  return [...nodes, code.slice(last)];
}
