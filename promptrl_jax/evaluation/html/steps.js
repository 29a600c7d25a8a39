// What a step and the result of an episode show.

const fact = (name, text, kind = '') =>
  el('div', {}, el('dt', {}, name), el('dd', { class: kind }, text));
const sum = (values) => values.reduce((a, b) => a + b, 0);

function step(episode, at) {
  const row = episode.rows[at];
  const before = episode.rows.slice(0, at + 1);
  const calls = sum(before.map((each) => each.sent.length));
  const status =
    [row.status, row.error_type].filter(Boolean).join(': ') || 'no program';
  return [
    el(
      'dl',
      { class: 'facts-row' },
      fact('action', row.action),
      fact('verdict', status, row.visible_passed ? 'good' : 'bad'),
      fact('reward', row.reward.toFixed(3)),
      fact('calls so far', `${calls} of ${view.game.budget}`),
    ),
    el(
      'div',
      { class: 'columns' },
      el(
        'section',
        { 'aria-label': 'Prompt' },
        prompts(episode, at),
        newStatement(row),
      ),
      el(
        'section',
        { 'aria-label': 'Program and verdict' },
        el('h4', {}, 'Program'),
        row.code
          ? el(
              'pre',
              { class: 'code', tabindex: 0, 'aria-label': 'Program' },
              colouredPython(row.code),
            )
          : el(
              'p',
              { class: 'note' },
              row.code === ''
                ? 'The reply holds no program.'
                : 'This step ran no program.',
            ),
        visibleTests(row),
        row.feedback && [el('h4', {}, 'Feedback'), el('pre', {}, row.feedback)],
      ),
    ),
    el(
      'details',
      {},
      el('summary', {}, 'The row of trace.jsonl'),
      el('pre', {}, JSON.stringify(row, null, 1)),
    ),
  ];
}

// What a request was edited from: that of the parent of its statement where
// statements evolve, or else the last request to the same role before that one.
function editedFrom(episode, at, index) {
  const row = episode.rows[at];
  // What asks for new words is no edit of another request.
  if (!isOfProgram(row)) return null;
  const parents = parentRequests(episode, at, index);
  if (parents) {
    const [first, ...others] = parents;
    return first && { ...first, others, isParent: true };
  }
  const { role } = row.sent[index];
  return requestsBefore(episode, at, index).findLast(
    (each) => each.request.role === role,
  );
}

const stepNames = (edited) =>
  [edited, ...edited.others].map((each) => `step ${each.step + 1}`).join(' and ');

function prompts(episode, at) {
  const { sent } = episode.rows[at];
  if (!sent.length) {
    return [
      el('h4', {}, 'Prompt'),
      el('p', { class: 'note' }, 'This step asked no model.'),
    ];
  }
  const edited = sent.map((_, index) => editedFrom(episode, at, index));
  const before = edited.map((each) => each?.request);
  const parent = edited.find((each) => each?.isParent);
  const toggle =
    before.some(Boolean) &&
    el(
      'label',
      { class: 'toggle' },
      el('input', {
        type: 'checkbox',
        checked: view.changes,
        onchange: async (event) => {
          view.changes = event.target.checked;
          await showEpisode();
          episodeBox.querySelector('.toggle input').focus();
        },
      }),
      parent
        ? `changes since the prompt of its parent (${stepNames(parent)})`
        : 'changes since the prompt before',
    );
  return [
    el('div', { class: 'heading' }, el('h4', {}, 'Prompt'), toggle),
    sent.map((request, index) => [
      el(
        'p',
        { class: 'note' },
        `to the ${request.role}, temperature ${request.temperature}, at most ${request.max_tokens} tokens`,
        before[index] &&
          view.changes &&
          same(before[index], request) &&
          '; the same prompt as before',
      ),
      request.messages.map((message, i) => {
        const old = before[index]?.messages[i]?.content ?? '';
        const isDiff = before[index] && view.changes;
        return el(
          'div',
          { class: 'message' },
          request.messages.length > 1 &&
            el('span', { class: 'role' }, message.role),
          el(
            'pre',
            {
              class: 'prompt',
              tabindex: 0,
              'aria-label': `Message of the ${message.role}`,
            },
            isDiff ? diffNodes(old, message.content) : message.content,
          ),
        );
      }),
    ]),
  ];
}

const same = (a, b) =>
  JSON.stringify(a.messages) === JSON.stringify(b.messages);

function visibleTests(row) {
  if (!row.visible.length) return null;
  const texts = row.prompt?.tests ?? [];
  return [
    el('h4', {}, 'Visible tests'),
    el(
      'ul',
      { class: 'tests' },
      row.visible.map((passed, i) =>
        el(
          'li',
          { class: passed ? 'good' : 'bad' },
          el(
            'span',
            {
              class: 'mark',
              role: 'img',
              'aria-label': passed ? 'passed' : 'failed',
            },
            passed ? '✓' : '✗',
          ),
          el('code', {}, texts[i] ?? `visible test ${i + 1}`),
        ),
      ),
    ),
  ];
}

function result({ rows, end }) {
  const reward = sum(rows.map((row) => row.reward));
  if (!end) {
    return el(
      'p',
      { class: 'note' },
      'The hidden result of this episode is not in the results of the run.',
    );
  }
  const passes = [...end.mask].filter((bit) => bit === '1').length;
  const hidden = table().label ? 'tests' : 'hidden tests';
  return [
    el(
      'p',
      { class: `outcome ${end.passed ? 'good' : 'bad'}` },
      end.passed ? '✓ Solved' : '✗ Not solved',
      end.mask &&
        `: the submitted program passes ${passes} of ${count(end.mask.length, hidden.slice(0, -1))}`,
    ),
    end.error && el('p', {}, `Nothing was submitted: ${end.error}`),
    end.mask &&
      el(
        'ul',
        { class: 'tests row' },
        [...end.mask].map((bit, i) =>
          el(
            'li',
            { class: bit === '1' ? 'good' : 'bad' },
            `${bit === '1' ? '✓' : '✗'} ${i + 1}`,
            el(
              'span',
              { class: 'sr-only' },
              bit === '1' ? ' passed' : ' failed',
            ),
          ),
        ),
      ),
    el(
      'dl',
      { class: 'facts-row' },
      fact('tests passed', `${percent(end.soft)} %`),
      fact('calls', `${end.calls} of ${view.game.budget}`),
      fact('programs run', end.attempts),
      fact('tokens in', end.prompt_tokens.toLocaleString('en')),
      fact('tokens out', end.completion_tokens.toLocaleString('en')),
      fact('sum of rewards', reward.toFixed(3)),
    ),
  ];
}
