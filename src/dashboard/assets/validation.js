// Validation: scores (never called rewards), event by event, over all tasks and over the cohort that is always there.
"use strict";
{
  const { h } = lego;
  lego.panels.push({
    id: "validation", title: "Validation", key: "v", group: "Scores",
    async render(root, { run, runs }) {
      if (!run) return lego.add(root, lego.firstRun());
      const [detail, found] = await Promise.all([lego.ask("run", { run: run.id }), lego.ask("validation", { run: run.id })]);
      const keys = detail.keys.filter((about) => about.key.startsWith("val/"));
      if (!keys.length && !found.sets.length) { root.dataset.points = 0; return lego.add(root, lego.empty("No validation", "name tasks as `val` below [data] and set `every` below [eval]; a score then appears after each")); }
      const cards = [], bar = lego.chartTools({});
      const sets = [...new Set(keys.map((about) => about.key.split("/")[1]))];
      const chart = (title, wanted, names) => { if (!wanted.length) return null; const card = new lego.ChartCard(wanted[0], runs, { title, keys: wanted, names, height: 210, marks: true, top: 1, about: keys.find((about) => about.key === wanted[0]) }); cards.push(card); return card.box; };
      const ending = (set, end) => keys.filter((about) => about.key.startsWith(`val/${set}/`) && end.test(about.key)).map((about) => about.key);
      lego.add(root, bar, sets.map((set) => {
        const events = found.sets.find((one) => one.set === set);
        const whole = keys.filter((about) => about.key.split("/").length === 3 && about.key.startsWith(`val/${set}/`) && /\/(pass@\d+|greedy|reward|acc.*)$/.test(about.key)).map((about) => about.key);
        const sources = ending(set, /^val\/[^/]+\/[^/]+\/pass@1$/);
        return h("div", { class: "set" }, h("h2", { class: "set-head" }, set, events ? h("span", { class: "note" }, `${lego.count(events.tasks, "task")}, ${events.cohort} of them in at least half of the events`) : null),
          h("div", { class: "columns" }, chart("Score", whole, whole.map((key) => key.split("/").pop())), chart("Score by source (pass@1)", sources, sources.map((key) => key.split("/")[2]))),
          events ? lego.section("Events", "score ± standard error over tasks", lego.table([{ key: "step", title: "step", numeric: true }, { key: "score", title: "score", numeric: true, show: (row) => [lego.number(row.score), row.se !== null ? h("small", {}, " ± " + lego.number(row.se, 2)) : null] }, { key: "cohort_score", title: "cohort", numeric: true, show: (row) => lego.number(row.cohort_score) }, { key: "greedy", title: "greedy", numeric: true, show: (row) => lego.number(row.greedy) }, { key: "tasks", title: "tasks", numeric: true }, { key: "landed", title: "landed", numeric: true, show: (row) => `${row.landed} of ${row.trials}` }, { key: "coverage", title: "coverage", numeric: true, show: (row) => [lego.percent(row.coverage), row.thin ? lego.chip("thin", "warn") : null] }], events.events, { onPick: (row) => lego.go("episodes", { set: "val", step: row.step }) })) : null);
      }));
      root.dataset.points = keys.length;
      return Object.assign(lego.cardsRefresh(() => cards, bar), { destroy: () => cards.forEach((card) => card.destroy()) });
    },
  });
}
