// One question at a time: shows it, takes a rating, goes on.

import { getQuestions, getSettings, pause } from './api.js';
import { byId, count, once } from './dom.js';
import { Clock, Drafts, hasWords } from './drafts.js';
import { eventsOf, undoOf } from './events.js';
import { inOrder, newId } from './ids.js';
import { actionOf } from './keys.js';
import { Outbox } from './outbox.js';
import { Questions } from './questions.js';
import {
  drawHelp,
  drawQuestion,
  drawRating,
  drawRefused,
  drawScales,
  SCALE_NAMES,
} from './view.js';

const WAIT_S = 25; // for which the server may hold a request for questions
const UNDOS = 50; // that a tab remembers
const remembered = (key, make) => {
  const value = localStorage.getItem(key) ?? make();
  localStorage.setItem(key, value);
  return value;
};

const who = { rater: remembered('promptrl/rater', newId), session: newId() };
const clock = new Clock();
const tabs = new BroadcastChannel('promptrl-feedback');
let scales; // names
let scale; // the chosen one
let room; // prefix of what this browser keeps for this store
let drafts;
let outbox;
let questions;
let current = null; // { question, shown, draft }
let last = ''; // what was done last, in words
let asked = null; // the words of a question that was asked again just now
let canAskAgain = false; // whether that leads to another answer
let serverFailure = null;

// --- Start -------------------------------------------------------------------

async function start() {
  drawHelp();
  const settings = await persist(getSettings);
  scales = settings.scales.map(({ name }) => name);
  canAskAgain = settings.can_ask_again;
  scale = localStorage.getItem('promptrl/scale');
  if (!scales.includes(scale)) [scale] = scales;
  room = `promptrl/${settings.store}`;
  drafts = new Drafts(room);
  outbox = new Outbox(room, (news = {}) => {
    if (news.sent) {
      questions.sent(news.sent, news.questionId, news.at);
      tabs.postMessage(news);
    }
    if (news.refused !== undefined) last = `Refused: ${news.message}`;
    redraw();
  });
  questions = new Questions(outbox);
  listen();
  outbox.flush();
  await follow();
}

// Asks again and again until the server answers.
async function persist(ask) {
  for (let waitS = 1; ; waitS = Math.min(8, 2 * waitS)) {
    try {
      const answer = await ask();
      if (serverFailure) outbox?.flush();
      serverFailure = null;
      return answer;
    } catch (failure) {
      if (failure.status === undefined) throw failure;
      serverFailure = failure;
      drawStatus();
      await pause(Math.max(failure.waitS, waitS));
    }
  }
}

// Follows what the server has. A tab that nobody sees holds no connection, of
// which a browser has six.
async function follow() {
  let waitS = 0;
  for (;;) {
    if (document.hidden) {
      await new Promise((resolve) => {
        document.addEventListener('visibilitychange', resolve, { once: true });
      });
      continue;
    }
    const answer = await persist(async () => {
      const askedAt = Date.now();
      const fresh = await getQuestions(questions.tag, waitS);
      questions.update(fresh, askedAt);
      return fresh;
    });
    waitS = answer ? WAIT_S : 0;
    redraw();
    document.documentElement.dataset.ready = 'yes';
  }
}

function listen() {
  document.addEventListener('keydown', onKey);
  document.addEventListener('copy', onCopy);
  byId('comment').addEventListener('input', (event) => {
    if (!current) return;
    current.draft.comment = event.target.value;
    keep();
  });
  byId('skip').addEventListener('click', once(act.skip));
  byId('again').addEventListener('click', once(act.again));
  byId('send').addEventListener('click', once(act.send));
  byId('undo').addEventListener('click', once(act.undo));
  byId('open-refused').addEventListener('click', () => {
    byId('refused').showModal();
  });
  window.addEventListener('pagehide', keep);
  window.addEventListener('online', () => outbox.flush());
  window.addEventListener('storage', () => redraw());
  tabs.addEventListener('message', ({ data }) => {
    if (data.sent) questions.sent(data.sent, data.questionId, data.at);
    redraw();
  });
}

// --- What is shown -----------------------------------------------------------

function redraw() {
  if (!questions) return;
  const open = questions.open();
  const still = open.find(
    ({ question_id: id }) => id === current?.question.question_id,
  );
  if (current && !still && hasWords(current.draft)) {
    // Words are not taken away from whoever writes them.
    note('Somebody else answered this one meanwhile. Yours counts as well.');
  } else if (!current || !still) {
    if (current) {
      last = 'That one was answered elsewhere.';
      drafts.forget(current.question.question_id);
    }
    show(open[0] ?? null);
  }
  drawProgress();
  drawStatus();
}

function show(question) {
  byId('question').hidden = !question;
  byId('empty').hidden = Boolean(question);
  for (const id of ['skip', 'rating']) byId(id).hidden = !question;
  byId('again').hidden = !question || !canAskAgain;
  note('');
  if (!question) {
    current = null;
    clock.stop();
    byId('scales').hidden = true;
    byId('send').hidden = true;
    drawEmpty();
    return;
  }
  const draft = drafts.read(question.question_id);
  const shown = inOrder(question, who.rater).slice(0, 2);
  current = { question, shown, draft };
  clock.start(draft.seconds);
  drawAll();
  window.scrollTo(0, 0);
  const many = shown.length > 1 ? 'Two answers' : 'One answer';
  const isAnother = question.query === asked;
  asked = null;
  if (isAnother) note('You asked again: here is another answer.');
  const kind = isAnother ? 'You asked again' : 'New question';
  byId('live').textContent = `${kind}. ${many}. ${question.query}`;
}

function drawAll() {
  const { question, shown, draft } = current;
  drawQuestion(question, shown, draft, on);
  drawRating(shown.length, scale, on);
  drawScales(scales, scale, chooseScale);
  byId('scales').hidden = shown.length > 1 || scales.length < 2;
  drawSend();
}

function drawSend() {
  const { shown, draft } = current;
  byId('send').hidden = !shown.some(
    ({ id, text }) => (draft.edits[id] ?? text) !== text,
  );
}

function drawEmpty() {
  const { total, settled } = questions.count();
  const isDone = total > 0 && settled >= total && !asked;
  byId('empty-title').textContent = isDone
    ? 'All done. Thank you.'
    : asked
      ? 'Another answer is on its way.'
      : 'Nothing to rate now.';
  byId('empty-text').textContent = isDone
    ? `You have reached the end of ${count(total, 'question')}. New ones appear here by themselves.`
    : 'This page looks again by itself.';
  byId('live').textContent = byId('empty-title').textContent;
}

function drawProgress() {
  const { total, settled } = questions.count();
  byId('progress-text').textContent = `${settled} of ${total} answered`;
  byId('progress').max = Math.max(1, total);
  byId('progress').value = settled;
  document.title = `${total - settled ? `(${total - settled}) ` : ''}Rate answers`;
  if (!current && !byId('empty').hidden) drawEmpty();
  const past = history();
  byId('undo').disabled = !past.length;
  const refused = outbox.refused();
  byId('open-refused').hidden = !refused.length;
  byId('open-refused').textContent = `${count(refused.length, 'refused rating')}`;
  drawRefused(refused, (key) => outbox.forget(key));
}

function drawStatus() {
  const waiting = outbox ? outbox.batches().length : 0;
  const ratings = waiting === 1 ? '1 rating waits' : `${waiting} ratings wait`;
  const failure = (waiting && outbox.failure) || serverFailure;
  const text = !failure
    ? last
    : failure.status
      ? `${failure.message}${waiting ? ` (${ratings})` : ''}`
      : waiting
        ? `${ratings}; the server does not answer. What waits is kept and sent by itself.`
        : 'The server does not answer. This page tries again by itself.';
  byId('status').classList.toggle('warning', Boolean(failure));
  if (byId('status').textContent !== text) byId('status').textContent = text;
}

function note(text) {
  byId('note').hidden = !text;
  byId('note').textContent = text;
}

// --- What is done ------------------------------------------------------------

function keep() {
  if (!current) return;
  current.draft.seconds = clock.seconds();
  drafts.write(current.question.question_id, current.draft);
}

const history = () => JSON.parse(sessionStorage.getItem(`${room}/done`) ?? '[]');
const remember = (past) =>
  sessionStorage.setItem(`${room}/done`, JSON.stringify(past.slice(-UNDOS)));

function settle(verdict, label) {
  if (!current) return;
  keep();
  const { question, shown, draft } = current;
  const events = eventsOf(question, shown, who, draft, verdict);
  remember([...history(), { question, draft, events, label }]);
  drafts.forget(question.question_id);
  questions.answered(question.question_id);
  current = null;
  last = `${label}.`;
  leaveField();
  outbox.put('answer', question.question_id, label, events);
  tabs.postMessage({});
}

// A field is left; a button that has the focus keeps it.
function leaveField() {
  if (document.activeElement?.tagName === 'TEXTAREA') {
    document.activeElement.blur();
    byId('query').focus({ preventScroll: true });
  }
}

const on = {
  rate: (value) => {
    const most = { rating_1_5: 5, rating_1_10: 10 }[scale];
    const label = most ? `Rated ${value} of ${most}` : value ? 'Good' : 'Bad';
    settle({ rating: [scale, value] }, label);
  },
  prefer: (value) => {
    const labels = { a: 'First is better', b: 'Second is better', tie: 'Same' };
    settle({ preference: value }, labels[value]);
  },
  edit: (place) => {
    const response = current?.shown[place];
    if (!response) return;
    current.draft.edits[response.id] ??= response.text;
    keep();
    drawAll();
    byId(`edit-${place}`).focus();
  },
  edited: (id, text) => {
    current.draft.edits[id] = text;
    keep();
    drawSend();
  },
  discard: (place) => {
    delete current.draft.edits[current.shown[place].id];
    keep();
    drawAll();
    byId('query').focus({ preventScroll: true });
  },
};

const act = {
  rate: (value) => on.rate(Number(value)),
  prefer: (value) => on.prefer(value),
  edit: (place) => on.edit(Number(place)),
  comment: () => current && byId('comment').focus(),
  leave: leaveField,
  skip: () => settle({ skip: true }, 'Skipped'),
  again: () => {
    if (!current || !canAskAgain) return;
    asked = current.question.query;
    settle({ again: true }, 'Asked again');
  },
  // Words alone say nothing about how good an answer is: they wait for a rating.
  send: () => {
    if (!current) return;
    if (!byId('send').hidden) settle({}, 'Correction sent');
    else {
      byId('rating').querySelector('button').focus();
      last = 'Now rate it: the comment goes along.';
      drawStatus();
    }
  },
  scale: () => {
    if (current?.shown.length > 1) return;
    chooseScale(scales[(scales.indexOf(scale) + 1) % scales.length]);
  },
  undo: () => {
    const past = history();
    const done = past.pop();
    if (!done) return;
    remember(past);
    keep();
    const id = done.question.question_id;
    drafts.write(id, done.draft);
    questions.takenBack(done.question);
    current = null;
    asked = null;
    last = `Taken back: ${done.label}.`;
    outbox.put('undo', id, `Undo of: ${done.label}`, undoOf(done.events, who));
    tabs.postMessage({});
  },
  help: () => byId('help').showModal(),
};

function chooseScale(name) {
  scale = name;
  localStorage.setItem('promptrl/scale', name);
  last = `Scale: ${SCALE_NAMES[name]}.`;
  if (current) {
    drawRating(current.shown.length, scale, on);
    for (const box of document.getElementsByName('scale')) {
      box.checked = box.value === name;
    }
  }
  drawStatus();
}

function onKey(event) {
  if (document.querySelector('dialog[open]')) return;
  const action = actionOf(event, current?.shown.length ?? 0, scale);
  const isOff = localStorage.getItem('promptrl/keys') === 'off';
  const isSingle = !['leave', 'send'].includes(action);
  if (!action || (isOff && isSingle)) return;
  event.preventDefault();
  const [name, value] = action.split(' ');
  act[name](value);
}

function onCopy() {
  const node = document.getSelection()?.anchorNode;
  const inside = node instanceof Element ? node : node?.parentElement;
  const holder = inside?.closest('.answer .text');
  const id = holder?.closest('.answer').dataset.id;
  if (!current || !id || current.draft.copied.includes(id)) return;
  current.draft.copied.push(id);
  keep();
}

start();
