// The prompts, what they come from, and which one is looked at.

const MEMBERS = JSON.parse(byId('report-data').textContent).members;
const MEMBER = new Map(MEMBERS.map((member) => [member.id, member]));
const FEW = MEMBERS.filter((member) => member.few);

const state = {
  view: 'few', // or 'all': the field of a member that says where it stands
  chosen: best(MEMBERS.filter((member) => member.alive)) ?? MEMBERS[0],
  against: 0, // the parent whose text is compared with; -1: none
};

const shownMembers = () => (state.view === 'few' ? FEW : MEMBERS);
const parentsOf = (member) =>
  member.parents.map((id) => MEMBER.get(id)).filter(Boolean);
const CHILDREN = new Map();
for (const member of MEMBERS)
  for (const parent of parentsOf(member)) {
    if (!CHILDREN.has(parent)) CHILDREN.set(parent, []);
    CHILDREN.get(parent).push(member);
  }
const childrenOf = (member) =>
  (CHILDREN.get(member) ?? []).filter((child) => child[state.view]);

function best(members) {
  const worth = ({ fitness }) => fitness ?? -Infinity;
  return members.reduce(
    (a, b) => (a && worth(a) >= worth(b) ? a : b),
    undefined,
  );
}

// All that a prompt comes from, itself included.
function ancestry(member) {
  const found = new Set();
  const ahead = [member];
  while (ahead.length) {
    const one = ahead.pop();
    if (found.has(one)) continue;
    found.add(one);
    ahead.push(...parentsOf(one));
  }
  return found;
}

// Names and numbers.
const nameOf = ({ id }) => (id.length > 8 ? id.slice(0, 6) : id);
const share = (value) => (value === null ? 'not known' : value.toFixed(3));
function summaryOf(member) {
  const { generation, operator, fitness, shown, alive } = member;
  return [
    `Prompt ${nameOf(member)}`,
    `generation ${generation}`,
    operator,
    `fitness ${share(fitness)}`,
    shown && `shown ${shown === 1 ? 'once' : `${shown} times`}`,
    alive && 'in the population',
  ]
    .filter(Boolean)
    .join(', ');
}

// Shades of fitness: class names, and the numbers where they begin.
const SHADES = 7;
const KNOWN = MEMBERS.map(({ fitness }) => fitness).filter((v) => v !== null);
const [LOW, HIGH] = KNOWN.length
  ? [Math.min(...KNOWN), Math.max(...KNOWN)]
  : [0, 1];
function shadeOf({ fitness }) {
  if (fitness === null) return 'fit-none';
  const part = HIGH > LOW ? (fitness - LOW) / (HIGH - LOW) : 1;
  return `fit-${Math.min(SHADES - 1, Math.floor(part * SHADES))}`;
}
