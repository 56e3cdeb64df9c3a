// Rollout outcomes: how trials ended over the steps, early against late, and where their time went.
"use strict";
{
  const { h } = lego;
  const PARTS = [["setup_s", "setup", "#94812a"], ["model_s", "model", "#3b6fd4"], ["tool_s", "tools", "#1795a8"], ["verify_s", "tests", "#2f9e6e"]];
  const SHAPE = [["reward", "reward", lego.number], ["turns", "turns", lego.number], ["tools", "tool calls", lego.number], ["trained", "trained tokens", lego.number], ["tokens_per_turn", "tokens a turn", lego.number], ["tokens", "response tokens", lego.number], ["thinking", "thinking, of what it wrote", lego.percent], ["total_p50_s", "time, median", lego.duration], ["total_p95_s", "time, p95", lego.duration], ["setup_s", "start of the sandbox", lego.duration], ["verify_s", "tests", lego.duration]];

  const compare = (first, last, [one, other]) => lego.table([{ key: "name", title: "" }, { key: "first", title: one, numeric: true }, { key: "last", title: other, numeric: true }, { key: "change", title: "change", numeric: true }],
    SHAPE.map(([key, name, show]) => ({ name, first: show(first[key]), last: show(last[key]), change: first[key] && last[key] !== null && last[key] !== undefined ? h("span", {}, (last[key] >= first[key] ? "+" : "−") + Math.abs(100 * (last[key] / first[key] - 1)).toFixed(0) + "%") : "–" })));

  lego.panels.push({
    id: "outcomes", title: "Rollout outcomes", key: "u", group: "Run",
    async render(root, { run }) {
      if (!run) return lego.add(root, lego.firstRun());
      let share = lego.store.get("outcomes.share", false), mode = "counts";
      const body = h("div", {});
      root.append(body);
      const show = async () => {
        const found = await lego.ask("outcomes", { run: run.id });
        root.dataset.points = found.bars.length;
        if (!found.total) return lego.fill(body, run.kind === "lego" ? lego.empty("No episode yet", "outcomes appear once the first step's shard is written") : lego.empty("A log has no episodes", "outcomes that it tells are under Training metrics"));
        const label = (bar) => (bar.from === bar.to ? "step " + bar.from : `steps ${bar.from}–${bar.to}`);
        const names = lego.outcomeNames(found.names);
        const reasons = [...new Set(found.bars.flatMap((bar) => Object.keys(bar.dropped)))].map((name) => ({ name, colour: lego.outcomeColour(name) }));
        const top = h("div", { class: "chart-body" }), lost = h("div", { class: "chart-body" }), time = h("div", { class: "chart-body" });
        const segments = h("div", { class: "segments", role: "group", "aria-label": "bars" }, [["counts", false], ["shares", true]].map(([text, to]) => h("button", { type: "button", "aria-pressed": String(share === to), on: { click: () => { share = to; lego.store.set("outcomes.share", to); show(); } } }, text)));
        lego.fill(body,
          lego.section("How trials ended", segments, top, lego.legend(names.map((one) => ({ ...one, note: `${found.names[one.name].toLocaleString("en")} · ${lego.percent(found.names[one.name] / found.total)}` })))),
          h("div", { class: "columns" },
            lego.section("Left out of the loss", reasons.length ? "by reason" : null, reasons.length ? lost : lego.empty("Nothing was left out", "every trial of training counted"), reasons.length ? lego.legend(reasons) : null),
            lego.section("Where the time of a trial goes", "mean seconds", time, lego.legend(PARTS.map(([, name, colour]) => ({ name, colour })))),
            lego.section("Early against late", `first and last quarter of ${found.total.toLocaleString("en")} trials`, compare(found.early, found.late, ["early", "late"]), mix(found)),
            found.shape ? lego.section("First against last visit", `${lego.count(found.shape.tasks, "task")} that came up again`, compare(found.shape.first, found.shape.last, ["first", "last"])) : lego.section("First against last visit", null, lego.empty("No task came up twice yet", "this compares a task's first visit with its newest")),
            lego.section("Groups", `${found.groups.groups.toLocaleString("en")} with two members or more`, groups(found.groups)),
            lego.section("Does it move?", "least-squares line over steps; |t| < 2 is flat", lego.table([{ key: "name", title: "" }, { key: "slope", title: "slope a step", numeric: true, show: (row) => lego.number(row.slope) }, { key: "t", title: "t", numeric: true, show: (row) => (row.t === null ? "–" : Math.abs(row.t) > 99 ? "> 99" : row.t.toFixed(1)) }, { key: "says", title: "" }], found.tests))));
        new lego.Bars(top, { height: 250, label: "outcomes of trials", onPick: (bar) => lego.go("episodes", { step: bar.from === bar.to ? bar.from : "", set: "train" }) }).set(found.bars.map((bar) => ({ label: bar.from, title: label(bar), parts: bar.counts, from: bar.from, to: bar.to })), names, share);
        if (reasons.length) new lego.Bars(lost, { height: 170, label: "left out, by reason" }).set(found.bars.map((bar) => ({ label: bar.from, title: label(bar), parts: bar.dropped })), reasons, false);
        new lego.Bars(time, { height: 170, label: "seconds of a trial" }).set(found.bars.map((bar) => ({ label: bar.from, title: label(bar), parts: Object.fromEntries(PARTS.map(([key, name]) => [name, bar.shape[key] || 0])) })), PARTS.map(([, name, colour]) => ({ name, colour })), false);
      };
      await show();
      return (news) => news && show();
    },
  });

  const mix = (found) => {
    const names = lego.outcomeNames(found.names);
    const row = (title, shape) => h("div", { class: "mix-row" }, h("span", {}, title), h("div", { class: "mix" }, names.filter((one) => shape.mix[one.name]).map((one) => h("div", { title: `${one.name} ${lego.percent(shape.mix[one.name])}`, style: { background: one.colour, flex: String(shape.mix[one.name]) } }))));
    return h("div", { class: "mixes" }, row("early", found.early), row("late", found.late));
  };

  const groups = (groups) => {
    const rest = groups.groups - groups.same;
    const share = (count) => lego.percent(groups.groups ? count / groups.groups : 0);
    return h("div", {}, h("div", { class: "mix tall" }, [["teach", rest, "#2f9e6e"], ["all solved", groups.all_solved, "#8fa3bf"], ["all zero", groups.all_zero, "#cf4358"], ["equal otherwise", groups.same - groups.all_solved - groups.all_zero, "#94812a"]].filter(([, count]) => count > 0).map(([name, count, colour]) => h("div", { title: `${name}: ${count}`, style: { background: colour, flex: String(count) } }))),
      h("p", { class: "prose" }, `${share(rest)} teach something. Members of ${share(groups.same)} all have the same reward: ${groups.all_solved.toLocaleString("en")} all solved, ${groups.all_zero.toLocaleString("en")} all zero.`));
  };
}
