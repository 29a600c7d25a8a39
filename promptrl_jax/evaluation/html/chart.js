// A chart whose points can be read by mouse or keys; x is logarithmic, y a share,
// unless the options say otherwise.

function ticksOf(low, high, most) {
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= rough);
  const ticks = [];
  // Whole multiples: a sum of steps would miss 0 by a little.
  for (let k = Math.ceil(low / step); k * step <= high + 1e-9; k++)
    ticks.push(k * step);
  return ticks;
}

function logTicks(low, high) {
  const ticks = [];
  for (let p = Math.floor(Math.log10(low)); 10 ** p <= high; p++) {
    for (const f of high / low < 12 ? [1, 1.5, 2, 3, 4, 6, 8] : [1, 2, 5]) {
      if (f * 10 ** p >= low && f * 10 ** p <= high) ticks.push(f * 10 ** p);
    }
  }
  return ticks;
}

const MOST_DOTS = 20; // Of a longer curve they are small.

const nearest = (points, x) =>
  points.reduce((a, b) => (Math.abs(b.x - x) < Math.abs(a.x - x) ? b : a));

// Moves labels apart, from the top down and back, so that none overlap.
function spread(heights, gap, low, high) {
  const order = heights
    .map((_, i) => i)
    .sort((a, b) => heights[a] - heights[b]);
  const placed = [...heights];
  order.forEach((i, k) => {
    if (k) placed[i] = Math.max(placed[i], placed[order[k - 1]] + gap);
    placed[i] = Math.max(placed[i], low);
  });
  [...order].reverse().forEach((i, k, all) => {
    placed[i] = Math.min(placed[i], k ? placed[all[k - 1]] - gap : high);
  });
  return placed;
}

// series: {name, colour, dash, width, points: [{x, y, low, high, text}], band,
//   thin: a faint line without a name}
// options: label, xLabel, yLabel, xTicks, front: points of a line of its own,
//   linear: the x axis, plain: y is any number
function chart(series, options) {
  if (!series.length) return el('p', { class: 'note' }, 'No curve is chosen.');
  const box = el('div', { class: 'chart' });
  const tip = el('div', { class: 'tip', hidden: true, 'aria-hidden': 'true' });
  const readout = el('p', { class: 'sr-only', 'aria-live': 'polite' });
  const all = series.flatMap((s) => s.points);
  const extent = [...all, ...(options.front ?? [])];
  const xs = extent.map((p) => p.x);
  const scale = options.linear ? (v) => v : Math.log;
  const pad = options.linear ? 1 : options.xTicks ? 1.03 : 1.12;
  const xRange = [Math.min(...xs) / pad, Math.max(...xs) * pad];
  const top = Math.max(...extent.map((p) => p.high ?? p.y));
  const bottom = Math.min(...extent.map((p) => p.low ?? p.y));
  const margin = Math.max((top - bottom) * 0.06, 0.01);
  const unit = options.plain ? 1 : 100;
  const yRange = options.plain
    ? [bottom - margin, top + margin]
    : [Math.max(0, bottom - margin), Math.min(1, top + margin)];
  const xTicks =
    options.xTicks ??
    (options.linear ? ticksOf(...xRange, 5) : logTicks(...xRange));
  let active = null;

  function draw() {
    // Before it is on the page, a chart is drawn as wide as it is going to be, so
    // that what is below it stays where it is.
    const width = Math.max(
      280,
      box.clientWidth || byId('main').clientWidth - 90,
    );
    const wide = width >= 640;
    const height = wide ? 380 : 300;
    const edge = { left: 46, right: wide ? 150 : 14, top: 12, bottom: 44 };
    const x = (v) =>
      edge.left +
      (width - edge.left - edge.right) *
        ((scale(v) - scale(xRange[0])) /
          (scale(xRange[1]) - scale(xRange[0]) || 1));
    const y = (v) =>
      height -
      edge.bottom -
      (height - edge.top - edge.bottom) *
        ((v - yRange[0]) / (yRange[1] - yRange[0]));
    const line = (points) => points.map((p) => `${x(p.x)},${y(p.y)}`).join(' ');

    const axes = svg(
      'g',
      { class: 'axes' },
      ticksOf(unit * yRange[0], unit * yRange[1], 6).map((t) => [
        svg('line', {
          x1: edge.left,
          x2: width - edge.right,
          y1: y(t / unit),
          y2: y(t / unit),
        }),
        svg(
          'text',
          { x: edge.left - 8, y: y(t / unit) + 4, 'text-anchor': 'end' },
          String(Number(t.toPrecision(6))),
        ),
      ]),
      xTicks.map((t) =>
        svg(
          'text',
          {
            x: x(t),
            y: height - edge.bottom + 18,
            'text-anchor': 'middle',
          },
          t.toLocaleString('en'),
        ),
      ),
      svg(
        'text',
        {
          x: (edge.left + width - edge.right) / 2,
          y: height - 6,
          'text-anchor': 'middle',
          class: 'axis-name',
        },
        options.xLabel,
      ),
    );
    const bands = series
      .filter((s) => s.band && s.points.length > 1)
      .map((s) =>
        svg('polygon', {
          class: 'band',
          fill: s.colour,
          points: [
            ...s.points.map((p) => `${x(p.x)},${y(p.high)}`),
            ...s.points.map((p) => `${x(p.x)},${y(p.low)}`).reverse(),
          ].join(' '),
        }),
      );
    const lines = series.map((s) => [
      svg('polyline', {
        points: line(s.points),
        fill: 'none',
        stroke: s.colour,
        'stroke-width': s.width,
        'stroke-dasharray': s.dash || null,
        class: options.front || s.thin ? 'faint' : null,
      }),
      !s.thin &&
        s.points.map((p) =>
          svg('circle', {
            cx: x(p.x),
            cy: y(p.y),
            r: s.points.length > MOST_DOTS ? 2 : 4,
            fill: s.colour,
          }),
        ),
    ]);
    const front = options.front && [
      svg('path', {
        class: 'front',
        d: options.front
          .map((p, i) => (i ? `H${x(p.x)}V${y(p.y)}` : `M${x(p.x)},${y(p.y)}`))
          .join(''),
      }),
      options.front.map((p) =>
        svg('circle', {
          class: 'front-point',
          cx: x(p.x),
          cy: y(p.y),
          r: 7,
        }),
      ),
    ];
    const drawn = series.filter((s) => s.points.length);
    const labelled = drawn.filter((s) => !s.thin);
    const heights = spread(
      labelled.map((s) => y(s.points.at(-1).y)),
      15,
      edge.top + 4,
      height - edge.bottom,
    );
    const ends =
      wide &&
      labelled.map((s, i) => {
        const last = s.points.at(-1);
        const to = width - edge.right + 14;
        return [
          svg('path', {
            class: 'leader',
            d: `M${x(last.x) + 6},${y(last.y)}L${to - 3},${heights[i]}`,
          }),
          svg(
            'text',
            { class: 'end', x: to, y: heights[i] + 4, fill: s.colour },
            s.name.length > 20 ? `${s.name.slice(0, 19)}…` : s.name,
          ),
        ];
      });
    const ring = svg('circle', { class: 'ring', r: 8, visibility: 'hidden' });
    const picture = svg(
      'svg',
      {
        width,
        height,
        viewBox: `0 0 ${width} ${height}`,
        tabindex: 0,
        role: 'group',
        'aria-roledescription': 'chart',
        'aria-label': `${options.label}. Left and right go along a curve, up and down to another one.`,
        onpointermove: point,
        onpointerdown: point,
        onpointerleave: () => show(null, false),
        onblur: () => show(null, false),
        onkeydown: (event) => move(event),
      },
      axes,
      bands,
      lines,
      front,
      ends || null,
      ring,
    );

    function point(event) {
      const at = picture.getBoundingClientRect();
      const far = (p) =>
        Math.hypot(
          x(p.x) - event.clientX + at.left,
          y(p.y) - event.clientY + at.top,
        );
      const near =
        all.length && all.reduce((a, b) => (far(b) < far(a) ? b : a));
      show(near && far(near) < 60 ? near : null, false);
    }

    function show(point, aloud) {
      active = point;
      tip.hidden = !point;
      ring.setAttribute('visibility', point ? 'visible' : 'hidden');
      if (!point) return;
      ring.setAttribute('cx', x(point.x));
      ring.setAttribute('cy', y(point.y));
      tip.textContent = point.text;
      const left = Math.min(
        Math.max(x(point.x) - tip.offsetWidth / 2, 0),
        width - tip.offsetWidth,
      );
      tip.style.left = `${left}px`;
      const above = y(point.y) - tip.offsetHeight - 14;
      tip.style.top = `${above < 0 ? y(point.y) + 14 : above}px`;
      if (aloud) readout.textContent = point.text;
    }

    function move(event) {
      if (event.key === 'Escape') {
        show(null);
        return;
      }
      const step = {
        ArrowLeft: [0, -1],
        ArrowRight: [0, 1],
        ArrowUp: [1, 0],
        ArrowDown: [-1, 0],
      }[event.key];
      if (!step || !drawn.length) return;
      event.preventDefault();
      let s = drawn.findIndex((each) => each.points.includes(active));
      if (s < 0) {
        show(drawn[0].points[0], true);
        return;
      }
      const i = drawn[s].points.indexOf(active);
      if (step[0]) {
        // To the next curve up or down, at the same x.
        const order = drawn
          .map((each, k) => [nearest(each.points, active.x), k])
          .sort((a, b) => a[0].y - b[0].y || a[1] - b[1]);
        const at = order.findIndex(([, k]) => k === s) + step[0];
        if (order[at]) show(order[at][0], true);
      } else {
        const next = drawn[s].points[i + step[1]];
        if (next) show(next, true);
      }
    }
    box.replaceChildren(
      el('div', { class: 'axis-name y-name' }, options.yLabel),
      picture,
      tip,
      readout,
    );
  }
  draw();
  let drawnWidth = 0;
  new ResizeObserver(() => {
    if (box.clientWidth === drawnWidth) return;
    drawnWidth = box.clientWidth;
    draw();
  }).observe(box);
  return box;
}
