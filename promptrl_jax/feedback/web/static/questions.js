// Which questions are open: what the server said, less what was just answered.

export class Questions {
  constructor(outbox) {
    this.outbox = outbox;
    this.pending = [];
    this.progress = { questions: 0, settled: 0 };
    this.tag = '';
    this.hiddenUntil = new Map(); // question id -> when it was acknowledged
    this.returned = new Map(); // question id -> { question, until }
  }

  // askedAt: when the server was asked, by the clock of this machine.
  update(answer, askedAt) {
    this.pending = answer.questions;
    this.progress = answer.progress;
    this.tag = answer.tag;
    for (const [id, at] of this.hiddenUntil) {
      if (at < askedAt) this.hiddenUntil.delete(id);
    }
    for (const [id, { until }] of this.returned) {
      if (until < askedAt) this.returned.delete(id);
    }
  }

  answered(id) {
    this.returned.delete(id);
  }

  takenBack(question) {
    const id = question.question_id;
    this.hiddenUntil.delete(id);
    this.returned.set(id, { question, until: Infinity });
  }

  // A batch about a question reached the server.
  sent(kind, id, at) {
    if (kind === 'answer') this.hiddenUntil.set(id, at);
    const returned = this.returned.get(id);
    if (kind === 'undo' && returned) returned.until = at;
  }

  // Ids of questions that were answered here and that the server may not know.
  hidden() {
    const ids = new Set(this.hiddenUntil.keys());
    for (const { kind, questionId } of this.outbox.batches()) {
      if (kind === 'answer') ids.add(questionId);
      else ids.delete(questionId);
    }
    for (const id of this.returned.keys()) ids.delete(id);
    return ids;
  }

  open() {
    const hidden = this.hidden();
    const back = [...this.returned.values()].map(({ question }) => question);
    const ids = new Set(back.map((question) => question.question_id));
    const rest = this.pending.filter(
      ({ question_id: id }) => !hidden.has(id) && !ids.has(id),
    );
    return [...back.reverse(), ...rest];
  }

  // { total, settled }, with what was answered here counted at once.
  count() {
    const hidden = this.hidden();
    const ids = new Set(this.pending.map(({ question_id: id }) => id));
    let settled = this.progress.settled;
    for (const id of ids) settled += hidden.has(id) ? 1 : 0;
    for (const id of this.returned.keys()) settled -= ids.has(id) ? 0 : 1;
    const total = this.progress.questions;
    return { total, settled: Math.max(0, Math.min(total, settled)) };
  }
}
