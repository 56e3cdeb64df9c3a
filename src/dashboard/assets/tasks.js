// The task grid: solve rate of each task at each visit.
"use strict";
{
  const { h } = lego;
  const CLASSES = ["never solved", "always solved", "improved", "regressed", "mixed", "not graded"];
  const shade = (rate) => (rate === null ? "var(--line-soft)" : `color-mix(in oklab, var(--grid-high) ${Math.round(rate * 100)}%, var(--grid-low))`);
  lego.panels.push({
    id: "tasks", title: "Task grid", key: "g", group: "Scores",
    async render(root, { run }) {
      if (!run) return lego.add(root, lego.firstRun());
      const body = h("div", {});
      let seen = null;
      root.append(body);
      const show = async () => {
        const set = lego.state.set === "val" ? "val" : "train", wanted = lego.state.says || "";
        const found = await lego.ask("tasks", { run: run.id, set });
        root.dataset.points = found.rows.length;
        const pick = h("div", { class: "segments", role: "group", "aria-label": "set" }, [["train", "training"], ["val", "validation"]].map(([id, text]) => h("button", { type: "button", "aria-pressed": String(set === id), on: { click: () => lego.set({ set: id === "val" ? "val" : "", says: "" }) } }, text)));
        const search = h("input", { type: "search", id: "filter", placeholder: "task", "aria-label": "task", value: lego.state.search || "", on: { input: (event) => lego.set({ search: event.target.value }, { replace: true }) } });
        const bar = h("div", { class: "toolbar" }, h("label", { class: "search" }, lego.icon("search"), search), pick);
        if (!found.total) return lego.fill(body, bar, lego.empty("No task yet", set === "val" ? "no validation has ended in this run" : run.kind === "lego" ? "tasks appear once the first step's shard is written" : "a log has no tasks: only the metrics of this run are known"));
        const tiles = h("div", { class: "tiles small" }, CLASSES.filter((name) => found.counts[name]).map((name) => h("button", { type: "button", class: "tile", "aria-pressed": String(wanted === name), on: { click: () => lego.set({ says: wanted === name ? "" : name }) } }, h("span", { class: "tile-name" }, name), h("span", { class: "tile-value" }, found.counts[name], h("small", {}, " " + lego.percent(found.counts[name] / found.total))))));
        const rows = found.rows.filter((row) => (!wanted || row.says === wanted) && (!lego.state.search || row.task.includes(lego.state.search)));
        // Rows get their cells when they come near the view: of many tasks most are never looked at.
        const link = (more) => lego.address({ ...lego.state, panel: "episodes", set, search: "", says: undefined, task: "TASK", ...more });
        const [ofTask, ofVisit] = [link({}), link({ step: "STEP" })];
        const to = (address, row, visit) => address.replace("task=TASK", "task=" + encodeURIComponent(row.task)).replace("step=STEP", "step=" + visit?.step);
        const cells = (row) => row.visits.map((visit) => {
          const says = `step ${visit.step}: ${visit.solved} of ${visit.graded} solved`;
          return h("a", { class: "cell", style: { background: shade(visit.rate) }, title: says, "aria-label": says, href: to(ofVisit, row, visit) });
        });
        seen?.disconnect();
        seen = new IntersectionObserver((entries) => {
          for (const entry of entries) if (entry.isIntersecting) { seen.unobserve(entry.target); lego.add(entry.target, cells(entry.target.row)); }
        }, { rootMargin: "400px" });
        const box = (row) => { const node = h("div", { class: "cells" }); node.row = row; seen.observe(node); return node; };
        const grid = h("div", { class: "grid-rows" + (found.visits <= 4 ? " narrow" : ""), style: { "--visits": String(Math.max(1, found.visits)) } }, rows.slice(0, 600).map((row) => h("div", { class: "grid-row" }, h("a", { class: "mono grid-task", title: `${row.task} · ${row.source}`, href: to(ofTask, row) }, row.task),
          box(row), h("span", { class: "grid-says " + row.says.split(" ")[0] }, row.says))));
        const focused = document.activeElement?.id === "filter", place = focused ? document.activeElement.selectionStart : 0;
        lego.fill(body, bar, tiles, lego.section("Solve rate, visit by visit", h("span", { class: "scale" }, "0", h("i", {}), "1"), rows.length ? grid : lego.empty("Nothing fits", "no task of this kind"), rows.length > 600 ? h("p", { class: "note" }, `600 of ${rows.length} are shown: filter for the others`) : null, found.shown < found.total ? h("p", { class: "note" }, `${found.shown} of ${found.total} tasks are listed`) : null));
        if (focused) { search.focus(); search.setSelectionRange(place, place); }
      };
      await show();
      return Object.assign(() => show(), { destroy: () => seen?.disconnect() });
    },
  });
}
