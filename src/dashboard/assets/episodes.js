// Episodes: every trial, filtered and sorted; a row opens its trajectory.
"use strict";
{
  const { h } = lego;
  const PAGE = 100;
  const COLUMNS = [
    { key: "step", title: "step", numeric: true }, { key: "task", title: "task", kind: "mono" }, { key: "outcome", title: "outcome", show: (row) => lego.outcomeChip(row.outcome === "completed" ? (row.reward >= 1 ? "solved" : "unsolved") : row.outcome) },
    { key: "reward", title: "reward", numeric: true, show: (row) => lego.number(row.reward) }, { key: "turns", title: "turns", numeric: true }, { key: "tools", title: "calls", numeric: true }, { key: "trained", title: "trained tokens", numeric: true, sort: false, show: (row) => lego.number(row.trained) },
    { key: "total_s", title: "time", numeric: true, show: (row) => lego.duration(row.total_s) }, { key: "set", title: "set", sort: false, show: (row) => (row.set === "val" ? (row.greedy ? "val, greedy" : "val") : "train") },
    { key: "dropped", title: "left out", sort: false, show: (row) => [row.dropped && lego.chip(row.dropped, "warn"), row.flags.map((flag) => lego.chip(flag, "bad"))] },
  ];

  lego.trialQuery = () => { const { set = "", outcome = "", task = "", search = "", reward = "", step = "" } = lego.state; return { set, outcome, task, search, reward, step, sort: lego.state.sort || "step", desc: lego.state.desc ?? "1" }; };

  lego.panels.push({
    id: "episodes", title: "Episodes", key: "e", group: "Run",
    async render(root, { run }) {
      if (!run) return lego.add(root, lego.firstRun());
      const choose = (key, label, options) => h("select", { "aria-label": label, data: { filter: key }, on: { change: (event) => lego.set({ [key]: event.target.value, page: "" }) } }, options.map(([value, text]) => h("option", { value, selected: (lego.state[key] || "") === value }, text)));
      const search = h("input", { type: "search", id: "filter", placeholder: "task or trial", "aria-label": "task or trial", value: lego.state.search || "", on: { input: (event) => lego.set({ search: event.target.value, page: "" }, { replace: true }) } });
      const chips = h("div", { class: "chips" }), box = h("div", {}), foot = h("div", { class: "pager" });
      const download = lego.button("down", "CSV of what is shown", () => csv());
      lego.add(root, h("div", { class: "toolbar" }, h("label", { class: "search" }, lego.icon("search"), search), choose("set", "set", [["", "all sets"], ["train", "training"], ["val", "validation"]]), choose("reward", "reward", [["", "any reward"], ["solved", "solved"], ["unsolved", "not solved"], ["none", "no reward"], ["flagged", "flagged"]]), chips, h("span", { class: "grow" }), download), box, foot);
      let rows = [];
      const csv = () => { const keys = ["step", "set", "task", "name", "attempt", "outcome", "dropped", "reward", "turns", "tools", "tokens", "trained", "total_s", "setup_s", "model_s", "tool_s", "verify_s", "delivered", "rewrites"]; lego.save("trials.csv", "text/csv", lego.csv([keys, ...rows.map((row) => keys.map((key) => row[key]))])); };
      const show = async () => {
        const page = Number(lego.state.page || 0), query = lego.trialQuery();
        const found = await lego.ask("trials", { run: run.id, ...query, offset: page * PAGE, limit: PAGE });
        rows = found.rows;
        root.dataset.points = rows.length;
        const filters = ["outcome", "task", "step"].filter((key) => lego.state[key]).map((key) => h("button", { type: "button", class: "chip filter", title: "take this filter off", on: { click: () => lego.set({ [key]: "", page: "" }) } }, `${key}: ${lego.state[key]} ✕`));
        lego.fill(chips, filters, filters.some((_, i) => i === 0 && lego.state.outcome) ? null : Object.entries(found.outcomes).sort((a, b) => b[1] - a[1]).slice(0, 6).map(([name, count]) => h("button", { type: "button", class: "chip filter", on: { click: () => lego.set({ outcome: name, page: "" }) } }, lego.h("span", { class: "swatch", style: { background: lego.outcomeColour(name) } }), `${name} ${count.toLocaleString("en")}`)));
        if (!found.all) { lego.fill(box, run.kind === "lego" ? lego.empty("No episode yet", "trials appear here once their step's shard is written") : lego.empty("A log has no episodes", "only the metrics of this run are known: run directories of lego hold its trials too")); return lego.fill(foot); }
        if (!rows.length) { lego.fill(box, lego.empty("Nothing fits", `none of ${found.all.toLocaleString("en")} trials: take a filter off`)); return lego.fill(foot); }
        lego.fill(box, lego.table(COLUMNS, rows, { sort: query.sort, desc: query.desc === "1", onSort: (key) => lego.set({ sort: key, desc: query.sort === key && query.desc === "1" ? "0" : "1", page: "" }), onPick: (row) => lego.go("trajectory", { ...lego.trialQuery(), i: row.i }) }));
        const pages = Math.ceil(found.total / PAGE);
        const to = (number) => lego.set({ page: String(number) });
        lego.fill(foot, lego.button("left", "previous page", () => to(page - 1), { disabled: page === 0 }), h("span", {}, `${(page * PAGE + 1).toLocaleString("en")}–${(page * PAGE + rows.length).toLocaleString("en")} of ${found.total.toLocaleString("en")}`), lego.button("right", "next page", () => to(page + 1), { disabled: page >= pages - 1 }),
          found.faults.length ? h("span", { class: "trouble" }, `${found.faults.length + found.more_faults} shards cannot be read: ${found.faults[0]}`) : null, found.beyond ? h("span", { class: "trouble" }, `${found.beyond.toLocaleString("en")} more trials are not held`) : null,
          lego.exported ? h("span", { class: "note" }, `this file lists the newest ${Math.min(found.all, lego.exported.trials.listed).toLocaleString("en")} of ${found.all.toLocaleString("en")} trials, and holds at most ${lego.exported.trials.whole} in full`) : null);
      };
      await show();
      return () => show();
    },
  });
}
