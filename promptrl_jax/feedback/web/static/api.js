// Requests to the server. What comes back is data, or a Failure.

export class Failure extends Error {
  // status 0: nobody answered.
  constructor(status, message, waitS = 0) {
    super(message);
    this.status = status;
    this.waitS = waitS;
  }

  // Whether the same request can succeed later: it was not the events' fault.
  get isPassing() {
    const { status } = this;
    return status >= 500 || [0, 401, 403, 408, 421, 429].includes(status);
  }
}

async function ask(path, options, timeoutS) {
  let reply;
  let text;
  try {
    reply = await fetch(path, {
      ...options,
      credentials: 'same-origin',
      signal: AbortSignal.timeout(1000 * timeoutS),
    });
    text = await reply.text();
  } catch {
    throw new Failure(0, 'the server does not answer');
  }
  let fields = null;
  try {
    fields = JSON.parse(text);
  } catch {
    if (reply.ok) throw new Failure(0, 'the answer was cut');
  }
  if (reply.ok) return fields;
  const waitS = Number(reply.headers.get('retry-after')) || 0;
  throw new Failure(reply.status, fields?.message ?? text.slice(0, 200), waitS);
}

export const getSettings = () => ask('api/settings', {}, 15);

export function getQuestions(seen, waitS) {
  const query = new URLSearchParams({ seen, wait_s: waitS, limit: 30 });
  return ask(`api/questions?${query}`, {}, waitS + 15);
}

export function postEvents(events) {
  const body = JSON.stringify({ events });
  return ask(
    'api/events',
    {
      method: 'POST',
      body,
      headers: { 'content-type': 'application/json' },
      // Goes out even if the tab is closed now; browsers limit its size.
      keepalive: body.length < 20000,
    },
    20,
  );
}

export const pause = (seconds) =>
  new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
