// Ids of events, and the order in which two answers stand.

// `crypto.randomUUID` is missing where a page is reached over plain HTTP.
export function newId() {
  if (crypto.randomUUID) return crypto.randomUUID();
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, '0'));
  return [
    ...[hex.slice(0, 4), hex.slice(4, 6), hex.slice(6, 8)],
    ...[hex.slice(8, 10), hex.slice(10)],
  ]
    .map((part) => part.join(''))
    .join('-');
}

// FNV-1a of the UTF-16 units, then mixed: like texts get unlike numbers.
export function hash(text) {
  let value = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) {
    value = Math.imul(value ^ text.charCodeAt(i), 0x01000193);
  }
  value = Math.imul(value ^ (value >>> 16), 0x85ebca6b);
  value = Math.imul(value ^ (value >>> 13), 0xc2b2ae35);
  return (value ^ (value >>> 16)) >>> 0;
}

// Drawn for each rater and question, and the same after a reload.
export function inOrder(question, rater) {
  const place = ({ id }) => hash(`${rater}\n${question.question_id}\n${id}`);
  return [...question.responses].sort(
    (a, b) => place(a) - place(b) || (a.id < b.id ? -1 : 1),
  );
}
