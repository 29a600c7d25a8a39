// What a person has begun for a question, over a reload of the tab.

const EMPTY = { comment: '', edits: {}, copied: [], seconds: 0 };

export class Drafts {
  constructor(room) {
    this.room = `${room}/draft/`;
  }

  read(questionId) {
    const text = sessionStorage.getItem(this.room + questionId);
    const draft = text ? JSON.parse(text) : {};
    return structuredClone({ ...EMPTY, ...draft });
  }

  write(questionId, draft) {
    sessionStorage.setItem(this.room + questionId, JSON.stringify(draft));
  }

  forget(questionId) {
    sessionStorage.removeItem(this.room + questionId);
  }
}

export const hasWords = (draft) =>
  draft.comment.trim() !== '' || Object.keys(draft.edits).length > 0;

// Seconds for which a question was in sight.
export class Clock {
  constructor() {
    this.total = 0;
    this.since = null;
    document.addEventListener('visibilitychange', () => this.update());
  }

  start(seconds) {
    this.total = seconds;
    this.since = null;
    this.isRunning = true;
    this.update();
  }

  stop() {
    this.update();
    this.isRunning = false;
    this.update();
  }

  update() {
    const now = performance.now();
    if (this.since !== null) this.total += (now - this.since) / 1000;
    this.since = this.isRunning && !document.hidden ? now : null;
  }

  seconds() {
    this.update();
    return Math.round(10 * this.total) / 10;
  }
}
