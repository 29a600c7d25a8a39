// The events of one answered question. Fields are those of feedback/events.py.

import { newId } from './ids.js';

// who: { rater, session }. draft: see drafts.js. verdict: what was pressed:
// { rating: [scale, value] }, { preference: 'a' | 'b' | 'tie' }, { skip: true },
// { again: true }, or {} for a correction alone.
export function eventsOf(question, shown, who, draft, verdict) {
  const [first, second] = shown;
  const metadata = { first: first.id, seconds: draft.seconds };
  if (shown.length > 1) metadata.order = shown.map((response) => response.id);
  const make = (kind, responseId, fields) => ({
    id: newId(),
    kind,
    response_id: responseId,
    at: Date.now() / 1000,
    ...who,
    metadata,
    ...fields,
  });
  const answers = [];
  if (verdict.skip) {
    return [make('skip', first.id, { comment: draft.comment })];
  }
  if (verdict.rating) {
    const [scale, value] = verdict.rating;
    answers.push(make('explicit', first.id, { scale, value }));
  }
  if (verdict.preference) {
    const fields = { other_id: second.id, value: verdict.preference };
    answers.push(make('preference', first.id, { scale: 'ab', ...fields }));
  }
  const signal = (id, scale, value) => make('implicit', id, { scale, value });
  // Of two answers neither would do.
  if (verdict.again) {
    answers.push(...shown.map(({ id }) => signal(id, 'asked_again', 1)));
  }
  for (const { id, text } of shown) {
    const value = draft.edits[id];
    if (value !== undefined && value !== text) {
      answers.push(make('correction', id, { value }));
    }
  }
  if (answers.length) answers[0].comment = draft.comment;
  const copied = draft.copied.map((id) => signal(id, 'copied', 1));
  // The time of two answers together says nothing about either of them.
  const read =
    shown.length === 1
      ? [signal(first.id, 'reading_time', draft.seconds)]
      : [];
  return [...answers, ...copied, ...read];
}

export const undoOf = (events, who) =>
  events.map((event) => ({
    id: newId(),
    kind: 'undo',
    response_id: event.response_id,
    event_id: event.id,
    at: Date.now() / 1000,
    ...who,
    metadata: {},
  }));
