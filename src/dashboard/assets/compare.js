// Compare runs: their metrics over each other, newest values against a baseline, and what was told to them.
"use strict";
{
  const { h } = lego;
  const KEYS = ["critic/score/mean", "rollout/solve_rate", "actor/entropy", "actor/grad_norm", "actor/ppo_kl", "response_length/mean", "num_turns/mean", "timing_s/step"];

  const flat = (text) => {
    const found = new Map();
    let section = "";
    for (const line of (text || "").split("\n")) {
      const head = line.match(/^\[+([^\]]+)\]+/);
      if (head) { section = head[1]; continue; }
      const pair = line.match(/^([\w."-]+)\s*=\s*(.*)$/);
      if (pair) found.set((section ? section + "." : "") + pair[1], pair[2]);
    }
    return found;
  };

  lego.panels.push({
    id: "compare", title: "Compare runs", key: "c", group: "Scores",
    async render(root, { runs, run }) {
      if (!run) return lego.add(root, lego.firstRun());
      if (runs.length < 2) { root.dataset.points = 0; return lego.add(root, lego.empty("One run is selected", (lego.runs || []).length > 1 ? "switch others on by the eye beside their name: two to eight are compared" : "this folder holds one run; name several folders: lego dashboard runs other/runs")); }
      const details = await Promise.all(runs.slice(0, 8).map((one) => lego.ask("run", { run: one.id })));
      const base = details[0];
      const about = new Map(details.flatMap((detail) => detail.keys).map((one) => [one.key, one]));
      const bar = lego.chartTools({});
      const score = [...about.keys()].filter((key) => /^val\/[^/]+\/pass@1$/.test(key));
      const cards = [...score, ...KEYS].filter((key) => about.has(key)).map((key) => new lego.ChartCard(key, runs, { about: about.get(key), height: 200, marks: key.startsWith("val/") }));
      const value = (detail, key) => detail.keys.find((one) => one.key === key)?.last ?? null;
      const difference = (detail, key) => { const [from, to] = [value(base, key), value(detail, key)]; return detail === base || from === null || to === null || from === 0 ? null : 100 * (to / from - 1); };
      const rows = [...about.keys()].filter((key) => details.filter((detail) => value(detail, key) !== null).length > 1);
      const table = lego.table([{ key: "key", title: "metric, newest value", kind: "mono", show: (row) => row }, ...details.map((detail) => ({ key: detail.id, title: detail.name, numeric: true, show: (row) => { const by = difference(detail, row); return [lego.number(value(detail, row), 4), by !== null ? h("small", { class: "difference" }, ` ${by >= 0 ? "+" : "−"}${Math.abs(by) >= 1000 ? "> 999" : Math.abs(by).toFixed(0)}%`) : null]; } }))], rows.slice(0, 200));
      const configs = details.map((detail) => flat(detail.config));
      const differing = [...new Set(configs.flatMap((config) => [...config.keys()]))].filter((key) => new Set(configs.map((config) => config.get(key))).size > 1);
      lego.add(root, lego.legend(details.map((detail) => ({ name: detail.name, colour: lego.colour(detail.id), note: detail === base ? "baseline" : null }))), bar, h("div", { class: "charts" }, cards.map((card) => card.box)),
        lego.section("Configuration", differing.length ? `${lego.count(differing.length, "key")} differ` : null, differing.length ? lego.table([{ key: "key", title: "key", kind: "mono", show: (row) => row }, ...details.map((detail, n) => ({ key: detail.id, title: detail.name, kind: "mono", show: (row) => configs[n].get(row) ?? "–" }))], differing) : lego.empty("No difference", details.some((detail) => !detail.config) ? "a log of another system brings no configuration" : "all of them were told the same")),
        lego.section("Newest values", `difference from ${base.name}`, h("div", { class: "scroll" }, table)));
      root.dataset.points = rows.length;
      return Object.assign(lego.cardsRefresh(() => cards, bar), { destroy: () => cards.forEach((card) => card.destroy()) });
    },
  });
}
