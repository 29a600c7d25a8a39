// The trace: which games there are, and episodes that are unpacked on demand.

const GAMES = DATA.trace?.games ?? [];
const TASKS = DATA.trace?.tasks ?? [];
const KEPT_CHUNKS = 24;

const parsed =
  document.readyState === 'loading'
    ? new Promise((done) =>
        document.addEventListener('DOMContentLoaded', done, { once: true }),
      )
    : Promise.resolve();
const unpacked = new Map();

async function unpack(id) {
  await parsed; // Chunks stand behind this script.
  const text = byId(`chunk-${id}`).textContent;
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes])
    .stream()
    .pipeThrough(new DecompressionStream('gzip'));
  return JSON.parse(await new Response(stream).text());
}

function loadChunk(id) {
  if (!unpacked.has(id)) {
    unpacked.set(id, unpack(id));
    if (unpacked.size > KEPT_CHUNKS)
      unpacked.delete(unpacked.keys().next().value);
  }
  return unpacked.get(id);
}

const loadEpisode = async (game, place) =>
  (await loadChunk(game.chunks[place]))[game.places[place]];

const findGame = (protocol, strategy, budget, seed) => {
  const fits = GAMES.filter(
    (game) =>
      game.protocol === protocol &&
      game.strategy === strategy &&
      game.budget === budget,
  );
  return fits.find((game) => game.seed === seed) ?? fits[0];
};
const placeOf = (game, task) =>
  game.tasks.findIndex((index) => TASKS[index].id === task);

// A link: #trace/PROTOCOL/STRATEGY/BUDGET/SEED/PROBLEM/STEP
function hashOf(game, task, step) {
  const parts = [game.protocol, game.strategy, game.budget, game.seed, task];
  if (step !== undefined) parts.push(step + 1);
  return `#trace/${parts.map(encodeURIComponent).join('/')}`;
}

function parseHash(hash) {
  const parts = hash.split('/');
  if (parts[0] !== '#trace' || parts.length < 6) return null;
  try {
    const [protocol, strategy, budget, seed, task, step] = parts
      .slice(1)
      .map(decodeURIComponent);
    const game = GAMES.find(
      (each) =>
        each.protocol === protocol &&
        each.strategy === strategy &&
        String(each.budget) === budget &&
        String(each.seed) === seed,
    );
    const place = game ? placeOf(game, task) : -1;
    return { game, place, step: (parseInt(step, 10) || 1) - 1 };
  } catch {
    return { place: -1 }; // Not an encoded text.
  }
}

// All that can be searched of an episode, in lower case.
function searchable(episode) {
  return episode.rows
    .flatMap((row) => [
      row.action,
      row.status,
      row.error_type,
      row.feedback,
      row.code,
      ...row.sent.flatMap((request) =>
        request.messages.map((message) => message.content),
      ),
    ])
    .filter(Boolean)
    .join('\n')
    .toLowerCase();
}
