// Logs: the end of each, following it; filtered by level and by a regular expression; a jump to a step.
"use strict";
{
  const { h } = lego;
  const LEVELS = { error: /\b(ERROR|FATAL|CRITICAL|panicked|Traceback)\b|"level":"ERROR"/i, warn: /\bWARN(ING)?\b|"level":"WARN"/i };
  lego.panels.push({
    id: "logs", title: "Logs", key: "l", group: "Detail",
    async render(root, { run }) {
      if (!run) return lego.add(root, lego.firstRun());
      let text = "", next = null, name = lego.state.logfile || "";
      const lines = h("pre", { class: "log-box", tabIndex: 0 });
      const search = h("input", { type: "search", id: "filter", placeholder: "filter, a regular expression", "aria-label": "filter", value: lego.state.filter, on: { input: (event) => lego.set({ filter: event.target.value }, { replace: true }) } });
      const level = h("select", { "aria-label": "level", on: { change: () => draw() } }, [["", "all lines"], ["warn", "warnings and errors"], ["error", "errors"]].map(([value, title]) => h("option", { value }, title)));
      const step = h("input", { type: "number", min: "0", placeholder: "step", "aria-label": "jump to a step", on: { change: () => jump() } });
      const follow = h("button", { type: "button", class: "toggle", "aria-pressed": "true", on: { click: () => { const on = follow.getAttribute("aria-pressed") !== "true"; follow.setAttribute("aria-pressed", String(on)); if (on) lines.scrollTop = lines.scrollHeight; } } }, "follow");
      const wide = h("button", { type: "button", class: "toggle", "aria-pressed": "false", on: { click: () => { const on = wide.getAttribute("aria-pressed") !== "true"; wide.setAttribute("aria-pressed", String(on)); lines.classList.toggle("wrap", on); } } }, "wrap");
      const files = h("select", { "aria-label": "log" , on: { change: () => { name = files.value; text = ""; next = null; lego.set({ logfile: name }, { replace: true }); load(); } } });
      const note = h("span", { class: "note" });
      lego.add(root, h("div", { class: "toolbar" }, files, h("label", { class: "search" }, lego.icon("search"), search), level, step, follow, wide, note), lines);
      const jump = () => { const at = [...lines.children].find((line) => line.textContent.includes(`step:${step.value} `)); if (at) { follow.setAttribute("aria-pressed", "false"); at.scrollIntoView({ block: "start" }); at.classList.add("here"); } else note.textContent = `step ${step.value} is not in this part of the log`; };
      // A line of metrics is set out once it is near the view: there are thousands.
      const near = new IntersectionObserver((entries) => { for (const { target, isIntersecting } of entries) if (isIntersecting) { near.unobserve(target); lego.fill(target, pretty(target.line), "\n"); } }, { root: lines, rootMargin: "200px" });
      const draw = () => {
        near.disconnect();
        const fits = lego.matcher(lego.state.filter);
        const all = text.split("\n").filter(Boolean);
        const shown = fits ? all.filter((line) => fits(line) && (!level.value || LEVELS.error.test(line) || (level.value === "warn" && LEVELS.warn.test(line)))) : [];
        root.dataset.points = shown.length;
        lego.fill(lines, shown.slice(-3000).map((line) => watched(line, h("span", { tabIndex: 0, on: { click: (event) => { if (!getSelection().toString()) event.currentTarget.classList.toggle("open"); }, keydown: (event) => { if (event.key === "Enter") event.currentTarget.classList.toggle("open"); } }, class: "log-line" + (LEVELS.error.test(line) ? " error" : LEVELS.warn.test(line) ? " warn" : "") }, line, "\n"))));
        note.textContent = fits ? `${lego.count(shown.length, "line")}${shown.length < all.length ? ` of ${all.length.toLocaleString("en")}` : ""}` : "not a regular expression";
        if (!all.length) lego.fill(lines, lego.empty("Nothing logged yet", run.kind === "import" ? "an imported log is not kept as text" : "lines appear here as the run writes them"));
        else if (!shown.length) lego.fill(lines, lego.empty("Nothing fits", "no line matches: take the filter off"));
        if (follow.getAttribute("aria-pressed") === "true") requestAnimationFrame(() => requestAnimationFrame(() => { lines.scrollTop = lines.scrollHeight; }));
      };
      const watched = (line, node) => { if (line.startsWith("step:")) { node.line = line; near.observe(node); } return node; };
      const pretty = (line) => line.startsWith("step:") ? line.split(" - ").map((part, n) => [n ? h("span", { class: "faint" }, " · ") : null, n ? part : h("b", {}, part)]) : line;
      const load = async () => {
        const query = { run: run.id };
        if (name) query.log = name;
        if (next !== null) query.after = String(next);
        const found = await lego.ask("logs", query);
        if (!files.children.length) { lego.add(files, found.logs.map((one) => h("option", { value: one, selected: one === found.log }, one))); files.hidden = found.logs.length < 2; }
        text = found.cut || next === null ? found.text : text + found.text;
        if (text.length > 2e6) text = text.slice(-1e6);
        next = found.next;
        draw();
      };
      await load();
      return Object.assign((news) => (news && !lego.exported ? load() : draw()), { destroy: () => near.disconnect() });
    },
  });
}
