// How the controllers learned: a line per seed, their mean and its spread.

const learning = { over: 'updates' };

function learningSeries(panel) {
  const text = panel.is_share
    ? (value) => `${percent(value)} %`
    : (value) => value.toFixed(3);
  const pointsOf = (curve, name) =>
    curve.y.map((y, i) => {
      const sd = curve.sd?.[i];
      return {
        x: curve[learning.over][i],
        y,
        ...(sd === undefined ? {} : { low: y - sd, high: y + sd }),
        text:
          `${name}, update ${curve.updates[i].toFixed(0)} ` +
          `(${Math.round(curve.calls[i]).toLocaleString('en')} calls): ` +
          text(y) +
          (sd === undefined ? '' : ` ± ${text(sd)}`),
      };
    });
  return panel.learners.flatMap((learner) => {
    const line = style(learner.name);
    const one = learner.seeds.length === 1;
    return [
      ...learner.seeds.map((curve) => ({
        ...line,
        name: `${learner.name}, seed ${curve.seed}`,
        width: 1,
        thin: true,
        points: pointsOf(curve, `${learner.name}, seed ${curve.seed}`),
      })),
      {
        ...line,
        name: learner.name,
        width: 2.5,
        band: !one,
        points: pointsOf(
          learner.mean,
          one ? learner.name : `${learner.name}, mean of seeds`,
        ),
      },
    ].slice(one ? 1 : 0);
  });
}

function learningCurves() {
  const names = unique(
    DATA.learning.flatMap((panel) => panel.learners.map(({ name }) => name)),
  );
  return [
    segments(
      'over',
      [
        ['updates', 'updates'],
        ['calls', 'model calls'],
      ],
      learning.over,
      (over) => {
        learning.over = over;
        update({});
      },
    ),
    el(
      'p',
      { class: 'note' },
      'A thin line per seed, their mean, and one standard deviation over seeds ' +
        'around it. Long curves are averaged over neighbouring updates.',
    ),
    names.length > 1
      ? el(
          'p',
          { class: 'key' },
          names.map((name) => el('span', {}, swatch(name), ` ${name}`)),
        )
      : '',
    DATA.learning.map((panel) =>
      chart(learningSeries(panel), {
        label: `${panel.title} by ${learning.over}`,
        xLabel:
          learning.over === 'updates'
            ? 'updates'
            : 'model calls of training episodes',
        yLabel: panel.is_share ? `${panel.title}, %` : panel.title,
        linear: true,
        plain: !panel.is_share,
      }),
    ),
  ];
}
