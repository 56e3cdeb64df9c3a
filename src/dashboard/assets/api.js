// Questions to the server, or to the data in a page of one file; and the stream that says what changed.
"use strict";
{
  const kept = document.getElementById("export");
  lego.exported = kept ? JSON.parse(kept.textContent) : null;
  const cache = new Map();

  const key = (name, params) => name + "?" + Object.entries(params).filter(([key, value]) => key !== "points" && value !== "" && value !== undefined).sort(([a], [b]) => (a < b ? -1 : 1)).map(([key, value]) => `${key}=${value}`).join("&");

  const fromExport = (name, params) => {
    const answers = lego.exported.answers;
    if (name === "series") {
      const series = {};
      for (const one of params.keys.split("\n")) {
        const found = answers[key(name, { run: params.run, keys: one })];
        if (found) Object.assign(series, structuredClone(found.series));
      }
      const [from, to] = [Number(params.from || 0), Number(params.to || Infinity)];
      for (const one of Object.values(series)) {
        const inside = one.x.map((x) => x >= from && x <= to);
        for (const part of ["x", "t", "y"]) if (one[part]) one[part] = one[part].filter((_, at) => inside[at]);
      }
      return { series };
    }
    if (name === "trials") {
      const all = answers[key(name, { run: params.run, desc: "1", sort: "step", limit: "2000" })];
      if (!all) return { rows: [], total: 0, all: 0, outcomes: {}, faults: [] };
      return lego.filterTrials(all, params);
    }
    const found = answers[key(name, params)];
    if (!found && (name === "trial" || name === "tokens")) throw new Error(`this file holds ${lego.exported.trials.whole} trials of a run in full, the newest and the first of those that it lists: open the run with \`lego dashboard\` for the others`);
    if (!found) throw new Error("this file does not hold it: open the run with `lego dashboard` to see it");
    return found;
  };

  // Asks; the same question about an unchanged run is answered from memory.
  lego.ask = async (name, params = {}) => {
    if (lego.exported) return fromExport(name, params);
    const revision = params.run ? lego.revision(params.run) : 0;
    const asked = key(name, { ...params }) + (params.points || "");
    const known = cache.get(asked);
    if (known && known.revision === revision && revision > 0) return known.answer;
    const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value !== "" && value !== undefined)).toString();
    let response;
    try { response = await fetch(`api/${name}?${query}`); } catch { throw new Error("the dashboard does not answer: is `lego dashboard` still running?"); }
    const answer = await response.json().catch(() => ({ error: `status ${response.status}` }));
    if (!response.ok) throw new Error(answer.error || `status ${response.status}`);
    // Of what is still being read, more comes.
    if (answer.reading) return answer;
    if (cache.size > 400) cache.delete(cache.keys().next().value);
    cache.set(asked, { revision, answer });
    return answer;
  };

  lego.revision = (id) => (lego.runs || []).find((run) => run.id === id)?.revision || 0;

  // One request a run for all charts that ask in the same moment.
  let waiting = new Map();
  lego.series = (run, metric, range) => new Promise((done, failed) => {
    const batch = JSON.stringify([run, range || {}]);
    if (!waiting.has(batch)) waiting.set(batch, []);
    waiting.get(batch).push({ metric, done, failed });
    if (waiting.size > 1 || waiting.get(batch).length > 1) return;
    setTimeout(() => {
      const batches = waiting;
      waiting = new Map();
      for (const [name, asked] of batches) {
        const [id, within] = JSON.parse(name);
        for (let at = 0; at < asked.length; at += 60) {
          const part = asked.slice(at, at + 60);
          const keys = [...new Set(part.map((one) => one.metric))].join("\n");
          lego.ask("series", { run: id, keys, points: "800", ...within }).then(
            (answer) => part.forEach((one) => one.done(answer.series[one.metric] || null)),
            (error) => part.forEach((one) => one.failed(error)));
        }
      }
    }, 0);
  });

  const label = (row) => (row.outcome === "completed" ? (row.reward >= 1 ? "solved" : "unsolved") : row.outcome);
  lego.filterTrials = (all, params) => {
    const rows = all.rows.filter((row) => (!params.set || row.set === params.set) && (!params.outcome || label(row) === params.outcome || row.outcome === params.outcome || row.dropped === params.outcome) &&
      (!params.task || row.task === params.task) && (!params.search || row.name.includes(params.search) || row.task.includes(params.search)) &&
      (!params.step || String(row.step) === String(params.step)) &&
      ({ solved: row.reward >= 1, unsolved: row.reward !== null && row.reward < 1, none: row.reward === null, flagged: row.flags.length > 0 }[params.reward] ?? true));
    const by = params.sort || "step";
    rows.sort((a, b) => (a[by] < b[by] ? -1 : a[by] > b[by] ? 1 : a.started - b.started));
    if (params.desc === "1") rows.reverse();
    const outcomes = {};
    for (const row of rows) outcomes[label(row)] = (outcomes[label(row)] || 0) + 1;
    const offset = Number(params.offset || 0);
    return { ...all, rows: rows.slice(offset, offset + Number(params.limit || 100)), total: rows.length, outcomes, offset };
  };

  // Live: the list of runs comes with every change. Hidden tabs are left alone.
  lego.live = (changed) => {
    if (lego.exported) return;
    let source = null;
    const start = () => {
      if (source || document.hidden) return;
      source = new EventSource("api/events");
      source.addEventListener("change", (event) => { lego.connected = true; changed(JSON.parse(event.data)); });
      source.onerror = () => { lego.connected = false; document.body.dataset.live = "lost"; };
      source.onopen = () => { lego.connected = true; document.body.dataset.live = "live"; };
    };
    const stop = () => { source?.close(); source = null; };
    document.addEventListener("visibilitychange", () => (document.hidden ? stop() : start()));
    window.addEventListener("pagehide", stop);
    start();
  };
}
