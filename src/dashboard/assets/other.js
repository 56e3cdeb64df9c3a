// Explorer, diagnosis, balance, import, settings.
"use strict";
{
  const { h } = lego;
  lego.panels.push(lego.explorer);

  lego.panels.push({
    id: "diagnosis", title: "Diagnosis", key: "d", group: "Detail",
    async render(root, { run }) {
      if (!run) return lego.add(root, lego.firstRun());
      const show = async () => {
        const report = await lego.ask("diagnosis", { run: run.id });
        root.dataset.points = report.looked_at?.length || 0;
        lego.fill(root, lego.section("What is wrong", report.steps ? "judged on " + report.steps : null, lego.findings(report)),
          report.looked_at?.length ? lego.section("Looked for, and not found", "`lego diagnose explain ID` tells what each needs", lego.table([{ key: "signature", title: "signature", kind: "mono" }, { key: "title", title: "" }, { key: "result", title: "result", show: (row) => lego.chip(row.result, row.result === "no" ? "good" : "") }], report.looked_at)) : null);
      };
      await show();
      return (news) => news && show();
    },
  });

  lego.panels.push({
    id: "balance", title: "Balance", key: "b", group: "Detail",
    async render(root, { run, runs }) {
      if (!run) return lego.add(root, lego.firstRun());
      const detail = await lego.ask("run", { run: run.id });
      const keys = detail.keys.filter((about) => /^(inference|balance|fully_async|buffer)\/|replica|kv_|num_requests|idle_ratio/.test(about.key) || about.key === "perf/gen_throughput" || about.key === "rollout/tokens_per_s");
      const own = keys.filter((about) => /^(inference|balance)\/|replica/.test(about.key));
      const bar = lego.chartTools({});
      // One chart a figure, with a line for each replica.
      const together = new Map();
      for (const about of keys) {
        const [, of, replica, figure] = about.key.match(/^(.*?\/)?(replica[_-][^/]+)\/(.+)$/) || [];
        const title = replica ? `${of || ""}replica/${figure}` : about.key;
        if (!together.has(title)) together.set(title, { about, keys: [], names: [], title, pinnable: !replica });
        together.get(title).keys.push(about.key);
        together.get(title).names.push(replica || about.key);
      }
      const cards = [...together.values()].map((options) => new lego.ChartCard(options.keys.length > 1 ? options.title : options.keys[0], runs, options));
      root.dataset.points = keys.length;
      lego.add(root, keys.length ? [bar, h("div", { class: "charts" }, cards.map((card) => card.box))] : null,
        own.length ? null : lego.empty("No figures of engines", "this log tells nothing of them. Runs of lego write what each engine had to do, how full its cache was and what it found there: `inference/…`, and `inference/replica_N/…` where there are several"));
      return Object.assign(lego.cardsRefresh(() => cards, bar), { destroy: () => cards.forEach((card) => card.destroy()) });
    },
  });

  lego.panels.push({
    id: "import", title: "Import", key: "i", group: "Page",
    async render(root) {
      const note = h("p", { class: "message", hidden: true, role: "status" });
      const take = async (file) => {
        note.hidden = false;
        note.textContent = `reading ${file.name} …`;
        try {
          const response = await fetch("api/import?name=" + encodeURIComponent(file.name), { method: "POST", body: await file.text() });
          const answer = await response.json();
          if (!response.ok) throw new Error(answer.error);
          lego.go("metrics", { runs: [answer.id, ...lego.selected()].join(",") });
        } catch (error) { note.textContent = `${file.name}: ${error.message}`; }
      };
      const input = h("input", { type: "file", class: "file", "aria-label": "a log", on: { change: () => input.files[0] && take(input.files[0]) } });
      const zone = h("label", { class: "drop", on: { dragover: (event) => { event.preventDefault(); zone.classList.add("over"); }, dragleave: () => zone.classList.remove("over"), drop: (event) => { event.preventDefault(); zone.classList.remove("over"); if (event.dataTransfer.files[0]) take(event.dataTransfer.files[0]); } } }, h("strong", {}, "Drop a log here, or choose one"), h("span", {}, "any text with lines `step:12 - critic/score/mean:0.41 - …`, or a metrics.jsonl; it is shown until the server ends"), h("span", { class: "button" }, "Choose a file"), input);
      const listing = await lego.ask("runs");
      root.dataset.points = listing.runs.length;
      lego.add(root, lego.exported ? null : lego.section("A log of another system", null, zone, note),
        lego.section("Where runs were looked for", null, h("ul", { class: "plain" }, listing.roots.map((path) => h("li", {}, h("code", {}, path)))), h("p", { class: "prose" }, lego.count(listing.runs.length, "run"), " found, three folders deep: run directories of lego, and *.log, *.txt, *.out and *.jsonl with such lines. More folders: ", h("code", {}, "lego dashboard runs /other/logs"))),
        lego.section("Passed over", lego.count(listing.skipped.length, "place"), listing.skipped.length ? lego.table([{ key: "path", title: "path", kind: "mono" }, { key: "reason", title: "why" }], listing.skipped) : lego.empty("Nothing was passed over", "everything that looked like a run could be read")),
        lego.section("To other boards", null, h("p", { class: "prose" }, "Every run also writes TensorBoard events to its ", h("code", {}, "events/"), " folder, and one JSON object a step to its ", h("code", {}, "metrics.jsonl"), ", from which the README shows the way to Weights & Biases:"), h("pre", { class: "config" }, "tensorboard --logdir runs\npython -c 'import trackio; trackio.import_tf_events(\"runs/NAME/events\", project=\"lego\", name=\"NAME\")'   # pip install trackio[tensorboard]")));
      return () => {};
    },
  });

  lego.panels.push({
    id: "settings", title: "Settings", key: "s", group: "Page",
    async render(root) {
      const theme = lego.store.get("theme", "auto");
      const choice = h("div", { class: "segments", role: "group", "aria-label": "theme" }, ["auto", "light", "dark"].map((kind) => h("button", { type: "button", "aria-pressed": String(theme === kind), on: { click: () => { lego.theme(kind); lego.again(); } } }, kind)));
      const colours = (lego.runs || []).map((run) => h("label", { class: "colour" }, h("input", { type: "color", value: lego.colour(run.id), on: { change: (event) => { lego.store.set("colours", { ...lego.store.get("colours", {}), [run.id]: event.target.value }); lego.drawRail(); } } }), run.name));
      root.dataset.points = colours.length + 1;
      lego.add(root, lego.section("Look", null, h("div", { class: "setting" }, h("span", {}, "Theme"), choice)),
        lego.section("Colours of runs", h("button", { type: "button", class: "button small", on: { click: () => { lego.store.set("colours", {}); lego.again(); lego.drawRail(); } } }, "as at first"), h("div", { class: "colours" }, colours)),
        lego.section("Pinned metrics", null, lego.pins().length ? h("ul", { class: "plain" }, lego.pins().map((key) => h("li", {}, h("code", {}, key), h("button", { type: "button", class: "button small", on: { click: () => { lego.store.set("pins", lego.pins().filter((one) => one !== key)); lego.again(); } } }, "unpin")))) : lego.empty("None", "the star of a chart pins it to the top of Training metrics")),
        lego.section("Keys", null, lego.keyList()), h("p", { class: "note" }, `lego ${lego.version || ""}`));
      return () => {};
    },
  });
}
