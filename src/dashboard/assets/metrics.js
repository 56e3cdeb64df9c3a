// Training metrics by section, and the explorer: any key by a regular expression.
"use strict";
{
  const { h } = lego;
  const SECTIONS = [
    ["Reward and advantage", /^(critic\/(score|rewards|advantages|returns)|rollout\/(solve_rate|no_signal_groups|groups|episodes|extra_groups)|training\/(skipped|episodes|trained))/],
    ["Validation score", /^val\//], ["Policy", /^actor\//], ["Critic", /^critic\//], ["Engine against trainer", /^(training\/rollout|rollout_corr\/)/],
    ["Length and turns", /^(response_length|prompt_length|num_turns|num_tool_calls)\//], ["Outcomes and filters", /^(trajectory_filter|rollout\/(outcome|hack|retries|parse))/],
    ["Capture", /^capture\//], ["Experts", /^rollout\/moe\//], ["Time", /^(timing_s|rollout\/(duration|env_setup|model_s|tool_s|verify_s))/], ["Throughput", /^(perf|inference|balance|rollout)\//],
    ["Asynchronous training", /^(fully_async|buffer)\//], ["Training", /^training\//],
  ];
  const section = (key) => SECTIONS.find(([, fits]) => fits.test(key))?.[0] || (key.includes("/") ? key.split("/")[0] : "Other");
  lego.matcher = (text) => { if (!text) return () => true; try { const found = new RegExp(text, "i"); return (key) => found.test(key); } catch { return null; } };

  const page = (id, title, key, everything) => ({
    id, title, key, group: everything ? "Detail" : "Run",
    async render(root, { runs, run }) {
      if (!run) return lego.add(root, lego.firstRun());
      const details = await Promise.all(runs.map((one) => lego.ask("run", { run: one.id })));
      const about = new Map();
      for (const detail of details) for (const one of detail.keys) if (!about.has(one.key)) about.set(one.key, one);
      const keys = [...about.keys()];
      const bar = lego.chartTools({ filter: true });
      const list = h("div", {});
      lego.add(root, bar, list);
      if (!keys.length) return lego.add(root, lego.empty("No metric yet", "the first step has not ended: this page fills by itself"));
      let cards = [], shownFor = null;
      const build = () => {
        const fits = lego.matcher(lego.state.filter);
        shownFor = lego.state.filter;
        cards.forEach((card) => card.destroy());
        cards = [];
        if (!fits) return lego.fill(list, lego.empty("Not a regular expression", `“${lego.state.filter}” cannot be read: close its brackets, or escape them with \\`));
        const moving = (key) => { const one = about.get(key); return everything || one.n > 1 || one.last !== 0; };
        const chosen = keys.filter((key) => fits(key));
        const sections = new Map();
        const pins = everything ? [] : lego.pins().filter((key) => chosen.includes(key));
        if (pins.length) sections.set("Pinned", pins);
        for (const key of chosen) { const name = everything ? key.split("/").slice(0, -1).join("/") || "other" : section(key); if (!sections.has(name)) sections.set(name, []); sections.get(name).push(key); }
        if (!chosen.length) return lego.fill(list, lego.empty("Nothing fits", `no metric matches “${lego.state.filter}”; there are ${keys.length}`, h("button", { type: "button", class: "button", on: { click: () => lego.set({ filter: "" }) } }, "Show all")));
        const order = everything ? [...sections.keys()] : ["Pinned", ...SECTIONS.map(([name]) => name), ...sections.keys()];
        const closed = lego.store.get("closed." + id, []);
        lego.fill(list, [...new Set(order)].filter((name) => sections.has(name)).map((name) => {
          const inside = sections.get(name).map((key) => { const card = new lego.ChartCard(key, runs, { about: about.get(key), onPin: build, marks: key.startsWith("val/") }); cards.push(card); return card.box; });
          const still = inside.filter((_, i) => !moving(sections.get(name)[i])).length;
          return h("details", { class: "group", open: !closed.includes(name) || Boolean(lego.state.filter), on: { toggle: (event) => { const now = new Set(lego.store.get("closed." + id, [])); if (event.target.open) now.delete(name); else now.add(name); lego.store.set("closed." + id, [...now]); } } },
            h("summary", {}, h("h2", {}, name), h("span", { class: "note" }, lego.count(inside.length, "metric") + (still ? `, ${still} always 0` : ""))), h("div", { class: "charts" }, inside));
        }));
      };
      build();
      const refresh = lego.cardsRefresh(() => cards, bar);
      return Object.assign((news) => { if (lego.state.filter !== shownFor) build(); refresh(news); }, { destroy: () => cards.forEach((card) => card.destroy()) });
    },
  });
  lego.panels.push(page("metrics", "Training metrics", "m", false));
  lego.explorer = page("explorer", "Explorer", "x", true);
}
