// Overview: how the run stands, its main numbers, what is wrong with it, what it was told.
"use strict";
{
  const { h } = lego;
  const TILES = [
    { key: "critic/score/mean", title: "Reward", error: "critic/score/stderr" }, { key: /^val\/[^/]+\/pass@1$/, title: "Score, validation", share: true },
    { key: "actor/loss", title: "Loss", also: "actor/pg_loss" }, { key: "actor/entropy", title: "Entropy" }, { key: "actor/ppo_kl", title: "KL", also: "actor/kl_loss" },
    { key: "actor/grad_norm", title: "Gradient norm" }, { key: "response_length/mean", title: "Response tokens" }, { key: "timing_s/step", title: "Step time, median", seconds: true },
  ];

  const tile = async (run, about, wanted) => {
    const shown = wanted.share ? lego.percent(about.last) : wanted.seconds ? lego.duration(about.median) : lego.number(about.last, 3);
    const error = wanted.error && run.keys.find((key) => key.key === wanted.error);
    const series = await lego.series(run.id, about.key);
    return h("button", { type: "button", class: "tile", title: about.help || about.key, data: { points: series ? series.y.length : 0 }, on: { click: () => lego.go("metrics", { filter: "^" + about.key.replace(/[.*+?^${}()|[\]\\]/g, "\\$&") + "$" }) } },
      h("span", { class: "tile-name" }, wanted.title), h("span", { class: "tile-value" }, shown, error?.last ? h("small", {}, " ± " + lego.number(error.last, 2)) : null), lego.trendMark(about), series ? lego.spark(series.y, lego.colour(run.id)) : null);
  };

  // From the folder on that was named.
  lego.shortPath = (path) => {
    const root = (lego.roots || []).find((root) => path.startsWith(root));
    return root ? root.replace(/\/+$/, "").split("/").pop() + path.slice(root.length) : path;
  };

  lego.stateLine = (run) => {
    const progress = run.steps ? Math.min(1, (run.step || 0) / run.steps) : null;
    const rate = run.rows > 2 && run.last_time && run.first_time ? (run.last_time - run.first_time) / (run.rows - 1) : null;
    const left = run.state === "running" && rate && run.steps ? (run.steps - run.step) * rate : null;
    return h("div", { class: "state-line" },
      h("div", { class: "facts" },
        h("div", {}, h("span", {}, "State"), h("b", {}, h("span", { class: "dot " + run.state }), run.state)),
        h("div", {}, h("span", {}, "Step"), h("b", {}, run.steps ? `${run.step} of ${run.steps}` : String(run.last_step ?? run.step ?? "–"))),
        left !== null ? h("div", {}, h("span", {}, "Left"), h("b", {}, "about " + lego.duration(left))) : null,
        rate ? h("div", {}, h("span", {}, "A step takes"), h("b", {}, lego.duration(rate))) : null,
        h("div", {}, h("span", {}, "Last update"), h("b", {}, lego.ago(run.updated || run.last_time))),
        run.starts > 1 ? h("div", {}, h("span", {}, "Starts"), h("b", {}, run.starts)) : null,
        run.restarts > 0 ? h("div", {}, h("span", {}, "Resumed at"), h("b", {}, "step " + run.attempt_step)) : null,
        h("div", { class: "wide" }, h("span", {}, "Folder"), h("code", { title: run.path }, lego.shortPath(run.path)))),
      progress !== null ? h("div", { class: "progress", role: "progressbar", "aria-valuenow": Math.round(progress * 100) }, h("div", { style: { width: progress * 100 + "%" } })) : null,
      run.message ? h("p", { class: "message" }, run.message) : null, run.damage ? h("p", { class: "message" }, run.damage) : null);
  };

  lego.findings = (report, { brief } = {}) => {
    if (report.error) return lego.empty("No diagnosis", report.error);
    const words = { not_judged: "not judged", healthy: "healthy", at_risk: "at risk", stop_recommended: "stop recommended" };
    const kinds = { not_judged: "", healthy: "good", at_risk: "warn", stop_recommended: "bad" };
    return h("div", { class: "findings", data: { points: report.findings.length + report.looked_at.length } },
      h("p", { class: "verdict" }, lego.chip(words[report.verdict], kinds[report.verdict]), h("span", {}, report.findings.length ? "" : report.verdict === "not_judged" ? "no step to look at yet" : `no known signature matched · ${lego.count(report.looked_at.filter((one) => one.result === "no").length, "signature")} looked for, ${report.looked_at.filter((one) => one.result === "no data").length} without data, ${report.steps}`), report.damage ? h("span", {}, report.damage) : null),
      report.findings.map((finding) => h("article", { class: "finding" }, h("h3", {}, lego.chip(words[finding.verdict], kinds[finding.verdict]), finding.title, h("code", {}, finding.signature)),
        h("ul", {}, finding.evidence.map((line) => h("li", {}, line))), h("p", {}, finding.cause),
        brief ? null : h("dl", { class: "cures" }, finding.cures.flatMap((cure) => [h("dt", {}, h("code", {}, cure.key)), h("dd", {}, cure.text)])),
        finding.metrics.length ? h("p", { class: "links" }, finding.metrics.map((metric) => h("a", { href: lego.address({ ...lego.state, panel: "metrics", filter: "^" + metric.replace(/[.*+?^${}()|[\]\\]/g, "\\$&") + "$" }) }, metric))) : null)));
  };

  lego.panels.push({
    id: "overview", title: "Overview", key: "o", group: "Run",
    async render(root, { run, runs }) {
      if (!run) return lego.add(root, lego.firstRun());
      const detail = await lego.ask("run", { run: run.id });
      const wanted = TILES.map((tile) => {
        const find = (key) => detail.keys.find((about) => (key instanceof RegExp ? key.test(about.key) : about.key === key));
        const about = find(tile.key) || (tile.also && find(tile.also));
        return about && { tile, about };
      }).filter(Boolean);
      const tiles = await Promise.all(wanted.map(({ tile: one, about }) => tile(detail, about, one)));
      const [report, outcomes] = await Promise.all([lego.ask("diagnosis", { run: run.id }), lego.ask("outcomes", { run: run.id })]);
      const cards = [];
      const chart = (metric, options) => { const about = detail.keys.find((one) => one.key === metric); const card = new lego.ChartCard(metric, runs, { about, ...options }); cards.push(card); return card.box; };
      const score = detail.keys.filter((about) => /^val\/[^/]+\/pass@1$/.test(about.key)).map((about) => about.key);
      lego.add(root, lego.stateLine(detail),
        tiles.length ? h("div", { class: "tiles" }, tiles) : lego.empty("No step yet", run.state === "running" ? "the first step is being sampled: this page fills when it ends" : "this run has not written a step; its log may say why"),
        h("div", { class: "columns" },
          detail.keys.some((about) => about.key === "critic/score/mean") ? chart("critic/score/mean", { title: "Reward, training", height: 216 }) : null,
          score.length ? chart(score[0], { title: "Score, validation (pass@1)", keys: score, names: score.map((key) => key.split("/")[1]), height: 216, marks: true, top: 1 }) : null,
          outcomes.total ? outcomeCard(outcomes, run) : null,
          lego.section("Diagnosis", h("a", { href: lego.address({ ...lego.state, panel: "diagnosis" }) }, "details"), lego.findings(report, { brief: true }))),
        detail.config ? lego.configCard(detail.config) : null);
      return Object.assign(lego.cardsRefresh(() => cards), { cards, rebuild: true });
    },
  });

  const outcomeCard = (outcomes, run) => {
    const body = h("div", { class: "chart-body" });
    const names = lego.outcomeNames(outcomes.names);
    const bars = new lego.Bars(body, { height: 190, label: "outcomes of trials", onPick: (bar) => lego.go("episodes", { step: bar.from === bar.to ? bar.from : "" }) });
    bars.set(outcomes.bars.map((bar) => ({ label: bar.from, title: bar.from === bar.to ? "step " + bar.from : `steps ${bar.from}–${bar.to}`, parts: bar.counts, from: bar.from, to: bar.to })), names, false);
    return lego.section("Outcomes", h("a", { href: lego.address({ ...lego.state, panel: "outcomes" }) }, "details"), body, lego.legend(names.map((one) => ({ ...one, note: lego.percent(outcomes.names[one.name] / outcomes.total) }))));
  };

  lego.outcomeNames = (counts) => {
    const order = ["solved", "unsolved", "overlong", "max_turns_reached", "timeout", "agent_error", "verifier_error", "env_setup_failed", "infra_error", "cancelled"];
    const place = (name) => (order.includes(name) ? order.indexOf(name) : 99);
    return Object.keys(counts).sort((a, b) => place(a) - place(b)).map((name) => ({ name, colour: lego.outcomeColour(name) }));
  };

  lego.configCard = (text) => {
    const body = h("pre", { class: "config" });
    const find = h("input", { type: "search", placeholder: "find a key", "aria-label": "find a key", on: { input: () => show() } });
    const show = () => {
      const wanted = find.value.trim().toLowerCase();
      lego.fill(body, text.split("\n").filter((line) => !wanted || /^\[/.test(line) || line.toLowerCase().includes(wanted)).map((line) => h("span", { class: /^\s*\[/.test(line) ? "toml-head" : /^\s*#/.test(line) ? "toml-note" : null }, line + "\n")));
    };
    show();
    return h("details", { class: "card fold" }, h("summary", {}, h("h2", {}, "Configuration"), h("span", { class: "note" }, "what ran, every key, secrets taken out")), h("div", { class: "fold-body" }, h("label", { class: "search" }, lego.icon("search"), find), body));
  };

  lego.firstRun = () => h("div", { class: "empty large" }, h("strong", {}, "No run here yet"),
    h("p", {}, "This page looks in ", (lego.roots || []).map((root, i) => [i ? ", " : "", h("code", {}, root)]), " and shows runs as they begin."),
    h("p", {}, "Start one:"), h("pre", {}, "lego train examples/quickstart/run.toml"), h("p", {}, "or open a log of another system under ", h("a", { href: "#/import" }, "Import"), "."));
}
