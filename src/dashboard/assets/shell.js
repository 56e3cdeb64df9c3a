// The frame: runs and panels at the side, the address decides what is shown, keys, theme, live news.
"use strict";
{
  const { h } = lego;
  const ORDER = ["overview", "metrics", "episodes", "outcomes", "trajectory", "validation", "tasks", "compare", "tokens", "logs", "explorer", "diagnosis", "balance", "import", "settings"];
  lego.panels.sort((a, b) => ORDER.indexOf(a.id) - ORDER.indexOf(b.id));

  lego.theme = (kind) => {
    lego.store.set("theme", kind);
    if (kind === "auto") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = kind;
    for (const chart of lego.charts) chart.draw();
  };
  lego.theme(lego.store.get("theme", "auto"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => lego.again());

  lego.selected = () => {
    const known = (lego.state.runs || "").split(",").filter((id) => (lego.runs || []).some((run) => run.id === id));
    if (known.length) return known;
    return lego.runs?.length ? [lego.runs[0].id] : [];
  };
  const runsOf = () => lego.selected().map((id) => lego.runs.find((run) => run.id === id));

  const rail = h("nav", { class: "rail", "aria-label": "runs and panels" });
  const title = h("div", { class: "title" }), live = h("span", { class: "live" });
  const select = h("select", { class: "panel-select", "aria-label": "panel", on: { change: () => lego.go(select.value) } }, lego.panels.map((panel) => h("option", { value: panel.id }, panel.title)));
  const menu = lego.button("menu", "runs and panels", () => document.body.classList.toggle("rail-open"), { class: "icon-button menu" });
  const header = h("header", { class: "top" }, menu, title, select, h("span", { class: "grow" }), live, h("button", { type: "button", class: "button small help", title: "keys (?)", "aria-label": "keys", on: { click: () => help() } }, "?"));
  const main = h("main", { tabIndex: -1 });
  document.getElementById("app").append(rail, h("div", { class: "page" }, header, main));
  const shade = h("div", { class: "shade", on: { click: () => document.body.classList.remove("rail-open") } });
  document.body.append(shade);

  lego.drawRail = () => {
    const selected = lego.selected(), pinned = lego.store.get("runs.pinned", []);
    const runs = [...(lego.runs || [])].sort((a, b) => pinned.includes(b.id) - pinned.includes(a.id));
    const row = (run) => {
      const on = selected.includes(run.id), first = selected[0] === run.id;
      const toggle = () => { const next = on ? selected.filter((id) => id !== run.id) : [...selected, run.id]; if (next.length) lego.set({ runs: next.join(",") }); };
      const focus = (event) => { const keep = event.ctrlKey || event.metaKey || event.shiftKey || on; lego.set({ runs: (keep ? [run.id, ...selected.filter((id) => id !== run.id)] : [run.id]).join(","), i: undefined, page: undefined, task: undefined, step: undefined }); document.body.classList.remove("rail-open"); };
      const pin = () => { const now = lego.store.get("runs.pinned", []); lego.store.set("runs.pinned", now.includes(run.id) ? now.filter((id) => id !== run.id) : [...now, run.id]); lego.drawRail(); };
      return h("div", { class: "run" + (first ? " first" : "") + (on ? "" : " off"), data: { run: run.id } }, h("span", { class: "swatch", style: { background: lego.colour(run.id) } }),
        h("button", { type: "button", class: "run-name", "aria-current": first ? "true" : null, title: `${run.path}\n${run.state}; Ctrl-click adds it`, on: { click: focus } }, h("span", {}, run.name), h("small", {}, h("span", { class: "dot " + run.state }), run.state + (run.step !== null && run.step !== undefined ? ` · ${run.step}${run.steps ? "/" + run.steps : ""}` : "") + (run.updated ? " · " + lego.ago(run.updated).replace(" ago", "") : ""))),
        lego.button("pin", pinned.includes(run.id) ? "unpin" : "pin to the top", pin, { class: "icon-button mini", "aria-pressed": String(pinned.includes(run.id)) }), lego.button("eye", on ? "hide in charts" : "show in charts", toggle, { class: "icon-button mini", "aria-pressed": String(on) }));
    };
    const groups = [...new Set(lego.panels.map((panel) => panel.group))];
    const find = runs.length > 8 ? h("input", { type: "search", class: "find-run", placeholder: `find among ${runs.length} runs`, "aria-label": "find a run", value: lego.runFilter || "", on: { input: (event) => { lego.runFilter = event.target.value; drawList(); } } }) : null;
    const list = h("div", { class: "runs" });
    const drawList = () => lego.fill(list, runs.filter((run) => !lego.runFilter || run.name.includes(lego.runFilter)).slice(0, 300).map(row), runs.length ? null : h("p", { class: "note" }, "no run yet"));
    drawList();
    const typing = document.activeElement?.classList.contains("find-run");
    lego.fill(rail, h("a", { class: "brand", href: "#/overview" }, h("span", { class: "brick", "aria-hidden": "true" }, h("i", {}), h("i", {})), "lego"), find, list,
      groups.map((group) => h("div", { class: "nav-group" }, h("div", { class: "nav-title" }, group), lego.panels.filter((panel) => panel.group === group).map((panel) => h("a", { class: "nav-item", href: linkTo(panel), "aria-current": panel.id === lego.state.panel ? "page" : null, data: { nav: panel.id }, on: { click: (event) => { if (event.ctrlKey || event.metaKey) return; event.preventDefault(); document.body.classList.remove("rail-open"); lego.go(panel.id); } } }, panel.title)))));
    if (typing) { find.focus(); find.setSelectionRange(99, 99); }
  };
  const linkTo = (panel) => lego.address({ runs: lego.state.runs, smooth: lego.state.smooth, x: lego.state.x, log: lego.state.log, clip: lego.state.clip, from: lego.state.from, to: lego.state.to, panel: panel.id });

  const drawTop = () => {
    const [run] = runsOf(), panel = lego.panels.find((one) => one.id === lego.state.panel);
    lego.fill(title, h("h1", {}, panel?.title || ""), run && panel?.group !== "Page" ? h("span", { class: "of" }, h("span", { class: "swatch", style: { background: lego.colour(run.id) } }), run.name, lego.selected().length > 1 ? ` and ${lego.selected().length - 1} more` : "") : null);
    select.value = lego.state.panel;
    document.title = (run ? run.name + " · " : "") + (panel?.title || "lego") + " · lego";
    const reading = run?.reading ? ` · ${run.reading.read.toLocaleString("en")} of ${run.reading.of.toLocaleString("en")} shards read` : "";
    const state = lego.exported ? `exported ${new Date(lego.exported.made).toLocaleString()}` : document.body.dataset.live === "lost" ? "connection lost" : "live" + reading;
    lego.fill(live, h("span", { class: "dot " + (lego.exported ? "log" : document.body.dataset.live === "lost" ? "failed" : "running") }), state);
  };

  let current = null, building = 0, shownFor = "";
  const build = async () => {
    const number = ++building;
    const panel = lego.panels.find((one) => one.id === lego.state.panel) || lego.panels[0];
    const runs = runsOf(), root = h("div", { class: "panel", data: { panel: panel.id } });
    const same = shownFor === panel.id;
    if (!same) document.body.dataset.ready = "";
    const slow = setTimeout(() => { if (number === building && !same) lego.fill(main, h("div", { class: "wait", role: "status" }, "reading …")); }, 250);
    let refresh = null;
    try { refresh = await panel.render(root, { run: runs[0], runs }); } catch (error) { console.debug(error); lego.add(root, lego.trouble(error, () => build())); }
    clearTimeout(slow);
    if (number !== building) return typeof refresh === "function" ? refresh.destroy?.() : undefined;
    current?.destroy?.();
    current?.cards?.forEach((card) => card.destroy());
    // A panel without data has nothing that could be refreshed: it is built again.
    current = typeof refresh === "function" ? refresh : null;
    const open = [...main.querySelectorAll("details.fold[open]")].length > 0, scroll = same ? main.parentElement.scrollTop : 0;
    const focused = same && document.activeElement?.id;
    lego.fill(main, root);
    if (same && open) for (const fold of root.querySelectorAll("details.fold")) fold.open = true;
    main.parentElement.scrollTop = scroll;
    if (focused) document.getElementById(focused)?.focus();
    shownFor = panel.id;
    document.body.dataset.ready = panel.id;
  };
  lego.again = () => build();

  let before = "";
  lego.moved = () => {
    lego.state = lego.read();
    if (!lego.panels.some((panel) => panel.id === lego.state.panel)) lego.state.panel = "overview";
    const now = JSON.stringify([lego.state.panel, lego.state.runs]);
    lego.drawRail();
    drawTop();
    if (now !== before || !current) { before = now; return build(); }
    current(false);
  };

  let pending = null;
  const news = (listing) => {
    const had = new Map((lego.runs || []).map((run) => [run.id, run.revision + run.state]));
    const first = !lego.runs?.length;
    take(listing);
    lego.drawRail();
    drawTop();
    document.body.dataset.news = String(Number(document.body.dataset.news || 0) + 1);
    const changed = lego.selected().some((id) => { const run = lego.runs.find((one) => one.id === id); return had.get(id) !== run.revision + run.state; });
    if (first && lego.runs.length) return build();
    if (!changed || pending) return;
    pending = setTimeout(() => { pending = null; if (current?.rebuild || !current) build(); else current(true); }, 600);
  };
  const take = (listing) => { lego.runs = listing.runs; lego.roots = listing.roots; lego.version = listing.version; };

  // Keys.
  const KEYS = [["?", "these keys"], ["/", "filter"], ["[  ]", "previous, next panel"], ["g and a letter", "a panel: " + lego.panels.map((panel) => `${panel.key} ${panel.title}`).join(", ")], ["n  p", "next, previous run"], ["l", "logarithmic axis"], ["x", "step or time"], ["r", "reset the zoom"], ["d", "dark, light"], ["← →", "the cursor of a focused chart; the trial before and after"], ["drag, double click", "zoom into a chart, and out"], ["Shift", "over a chart: the time of day"]];
  lego.keyList = () => h("dl", { class: "keys" }, KEYS.flatMap(([key, text]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, text)]));
  const help = () => {
    const dialog = h("dialog", { class: "help-box", "aria-label": "keys" }, h("header", {}, h("h2", {}, "Keys"), lego.button("close", "close", () => dialog.close())), lego.keyList());
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  };
  let went = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.target.matches("input, select, textarea")) { if (event.key === "Escape") event.target.blur(); return; }
    const at = lego.panels.findIndex((panel) => panel.id === lego.state.panel);
    const step = (by) => { const ids = (lego.runs || []).map((run) => run.id); if (ids.length) lego.set({ runs: ids[(ids.indexOf(lego.selected()[0]) + by + ids.length) % ids.length], i: undefined }); };
    const acts = {
      "?": help, "/": () => { const box = document.getElementById("filter"); box?.focus(); box?.select(); }, "[": () => lego.go(lego.panels[(at + lego.panels.length - 1) % lego.panels.length].id), "]": () => lego.go(lego.panels[(at + 1) % lego.panels.length].id),
      l: () => lego.set({ log: lego.state.log === "1" ? "" : "1" }), x: () => lego.set({ x: lego.state.x === "step" ? "time" : "step" }), r: () => lego.set({ from: "", to: "" }), n: () => step(1), p: () => step(-1),
      d: () => lego.theme(getComputedStyle(document.documentElement).colorScheme.includes("dark") ? "light" : "dark"), g: () => { went = Date.now(); },
      ArrowLeft: () => current?.arrow?.(-1), ArrowRight: () => current?.arrow?.(1), Escape: () => document.body.classList.remove("rail-open"),
    };
    if (Date.now() - went < 1200 && event.key !== "g") {
      const panel = lego.panels.find((one) => one.key === event.key);
      went = 0;
      if (panel) { event.preventDefault(); return lego.go(panel.id); }
    }
    if (Date.now() - went < 1200 && event.key === "g") { went = 0; return lego.go("tasks"); }
    const act = acts[event.key];
    if (!act || event.defaultPrevented) return;
    if (event.key !== "Escape") event.preventDefault();
    act();
  });

  window.addEventListener("popstate", lego.moved);
  window.addEventListener("hashchange", () => { if (lego.address(lego.read()) !== lego.address(lego.state)) lego.moved(); });
  (async () => {
    try { take(await lego.ask("runs")); } catch (error) { lego.fill(main, lego.trouble(error, () => location.reload())); return; }
    lego.moved();
    lego.live(news);
    setInterval(() => { lego.drawRail(); drawTop(); }, 30000);
  })();
}
