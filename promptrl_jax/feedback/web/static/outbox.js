// What was rated and is not acknowledged yet, in localStorage.
//
// A batch holds the events of one question, which already have their ids: it can
// be sent twice and is stored once. Each batch has a key of its own, so that two
// tabs never overwrite each other's.

import { Failure, pause, postEvents } from './api.js';
import { newId } from './ids.js';

const [LEAST_S, MOST_S] = [1, 20];

export class Outbox {
  // `changed` is called when something was put, sent, refused, or failed.
  constructor(room, changed) {
    this.waiting = `${room}/waiting/`;
    this.refusals = `${room}/refused/`;
    this.changed = changed;
    this.failure = null;
    this.backoffS = LEAST_S;
    this.isSending = false;
    this.wake = () => {};
  }

  read(prefix) {
    const keys = Object.keys(localStorage).filter((k) => k.startsWith(prefix));
    // The key begins with the time: they go out in the order of rating.
    return keys.sort().map((key) => {
      try {
        return { ...JSON.parse(localStorage.getItem(key)), key };
      } catch {
        return { key, questionId: '', kind: 'broken', events: [] };
      }
    });
  }

  batches() {
    return this.read(this.waiting);
  }

  refused() {
    return this.read(this.refusals);
  }

  // kind: 'answer' or 'undo'.
  put(kind, questionId, label, events) {
    const place = `${Date.now()}`.padStart(15, '0');
    const batch = { kind, questionId, label, events };
    localStorage.setItem(
      `${this.waiting}${place}-${this.next()}-${newId()}`,
      JSON.stringify(batch),
    );
    this.changed();
    this.flush();
  }

  // Two batches of one millisecond keep their order.
  next() {
    this.number = (this.number ?? 0) + 1;
    return `${this.number}`.padStart(9, '0');
  }

  forget(key) {
    localStorage.removeItem(key);
    this.changed();
  }

  // Sends all there is; waits and tries again while the server cannot take it.
  async flush() {
    this.wake();
    if (this.isSending) return;
    this.isSending = true;
    try {
      for (;;) {
        const [batch] = this.batches();
        if (!batch) break;
        try {
          await this.send(batch);
          this.failure = null;
          this.backoffS = LEAST_S;
        } catch (failure) {
          if (!(failure instanceof Failure)) throw failure;
          this.failure = failure;
          this.changed();
          const waitS = Math.max(failure.waitS, this.backoffS);
          this.backoffS = Math.min(MOST_S, 2 * this.backoffS);
          await Promise.race([
            pause(waitS * (0.8 + 0.4 * Math.random())),
            new Promise((resolve) => {
              this.wake = resolve;
            }),
          ]);
        }
      }
    } finally {
      this.isSending = false;
      this.changed();
    }
  }

  async send(batch) {
    const { key, kind, questionId, events } = batch;
    try {
      if (events.length) await postEvents(events);
    } catch (failure) {
      if (failure.isPassing) throw failure;
      const { message, status } = failure;
      const refusal = { ...batch, message, status, at: Date.now() };
      localStorage.setItem(
        key.replace(this.waiting, this.refusals),
        JSON.stringify(refusal),
      );
      localStorage.removeItem(key);
      this.changed({ refused: questionId, message });
      return;
    }
    localStorage.removeItem(key);
    this.changed({ sent: kind, questionId, at: Date.now() });
  }
}
