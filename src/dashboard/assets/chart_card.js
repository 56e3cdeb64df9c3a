// A chart with its frame: name, newest value, pin, table, CSV, PNG, full width; it asks for its data once it is seen.
"use strict";
{
  const COLLAPSED = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) { const card = entry.target.card; if (card && !card.asked) { card.asked = true; card.show(); card.load(); } }
  }, { rootMargin: "240px" });

  lego.view = () => ({ smooth: Number(lego.state.smooth) || 0, x: lego.state.x, log: lego.state.log === "1", clip: lego.state.clip === "1" });
  lego.range = () => { const range = {}; if (lego.state.from !== "") range.from = lego.state.from; if (lego.state.to !== "") range.to = lego.state.to; return range; };
  lego.pins = () => lego.store.get("pins", ["critic/score/mean"]);

  lego.ChartCard = class {
    // metric: a name; runs: list of run summaries; options: {title, height, keys: several names in one chart}
    constructor(metric, runs, options = {}) {
      Object.assign(this, { metric, runs, options });
      this.keys = options.keys || [metric];
      this.value = lego.h("span", { class: "chart-value" });
      // A page may have hundreds of cards: what is in one is made once it is seen.
      this.body = lego.h("div", { class: "chart-body", style: { "min-height": (options.height || 168) + 8 + "px" } });
      this.tools = lego.h("div", { class: "chart-tools" });
      const about = options.about;
      this.box = lego.h("section", { class: "card chart", data: { metric } },
        lego.h("header", { class: "chart-head" }, lego.h("h3", { title: about?.help ? `${metric}: ${about.help}${about.unit ? ` [${about.unit}]` : ""}` : metric }, options.title || metric), this.value, this.tools),
        this.body);
      this.box.card = this;
      COLLAPSED.observe(this.box);
    }

    // It is in view for the first time.
    show() {
      const { options, metric } = this;
      this.pin = lego.button("pin", "pin to the top", () => this.togglePin(), { "aria-pressed": String(lego.pins().includes(metric)) });
      lego.add(this.tools, options.pinnable === false ? null : this.pin, lego.button("table", "as a table", () => this.table()), lego.button("down", "CSV", () => this.csv()), lego.button("image", "PNG", () => this.png()), lego.button("grow", "full width", () => this.grow()));
      this.chart = new lego.Chart(this.body, { height: options.height || 168, label: metric, zero: options.zero, top: options.top, onZoom: (from, to) => lego.set({ from: String(from), to: String(to) }),
        onHover: (points) => this.showValue(points) });
    }

    destroy() { COLLAPSED.unobserve(this.box); this.chart?.destroy(); }

    async load() {
      try {
        const asked = this.runs.flatMap((run) => this.keys.map((key) => lego.series(run.id, key, lego.range()).then((found) => found && found.y.length ? { ...found, run, key } : null)));
        const found = (await Promise.all(asked)).filter(Boolean);
        this.data = found.map((one, i) => ({
          ...one,
          name: this.keys.length > 1 ? (this.runs.length > 1 ? `${one.run.name} · ` : "") + (this.options.names?.[this.keys.indexOf(one.key)] || one.key) : one.run.name,
          colour: this.keys.length > 1 && this.runs.length === 1 ? lego.PALETTE[this.keys.indexOf(one.key) % lego.PALETTE.length] : lego.colour(one.run.id),
          dash: this.keys.length > 1 && this.runs.length > 1 && this.keys.indexOf(one.key) ? [4, 3] : undefined,
          marks: one.y.length < 16 && (this.options.marks || one.y.length < 3),
        }));
        if (!this.data.length) { lego.fill(this.value, ""); this.note(this.runs.length ? "no data in this range" : "no run is selected"); }
        else this.note("");
        this.legend?.remove();
        this.legend = this.data.length > 1 && this.keys.length > 1 ? lego.legend(this.data.map((line) => ({ name: line.name, colour: line.colour, note: lego.number(line.y[line.y.length - 1]) }))) : null;
        if (this.legend) this.box.append(this.legend);
        this.chart.set(this.data, lego.view());
        this.showValue(null);
      } catch (error) { this.note(error.message); }
    }

    note(text) {
      this.missing?.remove();
      this.missing = text ? lego.h("div", { class: "chart-note" }, text) : null;
      if (this.missing) this.body.append(this.missing);
    }

    // Settings of the view changed, or there is news.
    refresh(again) {
      if (!this.asked) return;
      if (again) this.load();
      else if (this.data) this.chart.set(this.data, lego.view());
    }

    showValue(points) {
      if (!this.data?.length) return;
      const one = this.data.length === 1;
      const shown = points?.[0] ?? (one ? { value: this.data[0].y[this.data[0].y.length - 1] } : null);
      const broken = this.data.reduce((sum, line) => sum + (line.broken || 0), 0);
      lego.fill(this.value, one && shown ? lego.number(shown.value, 4) : "", broken ? lego.h("span", { class: "broken", title: `${broken} values are not finite` }, " NaN × " + broken) : null);
    }

    togglePin() {
      const pins = lego.pins(), at = pins.indexOf(this.metric);
      if (at >= 0) pins.splice(at, 1); else pins.push(this.metric);
      lego.store.set("pins", pins);
      this.pin.setAttribute("aria-pressed", String(at < 0));
      this.options.onPin?.();
    }

    rows() {
      const lines = this.data || [];
      const steps = [...new Set(lines.flatMap((line) => line.x))].sort((a, b) => a - b);
      const by = lines.map((line) => new Map(line.x.map((x, i) => [x, line.y[i]])));
      return [["step", ...lines.map((line) => line.name)], ...steps.map((step) => [step, ...by.map((map) => map.get(step) ?? null)])];
    }

    csv() { lego.save(this.metric.replace(/[^\w.]+/g, "_") + ".csv", "text/csv", lego.csv(this.rows())); }

    table() {
      if (this.shownTable) { this.shownTable.remove(); this.shownTable = null; return; }
      const [head, ...rows] = this.rows();
      this.shownTable = lego.table(head.map((title, i) => ({ key: String(i), title, numeric: true, show: (row) => lego.number(row[i], 5) })), rows.slice(-400));
      this.shownTable.classList.add("fallback");
      this.box.append(this.shownTable);
    }

    png() {
      const from = this.chart.canvas, ratio = window.devicePixelRatio || 1;
      const canvas = lego.h("canvas", {});
      canvas.width = from.width; canvas.height = from.height + 26 * ratio;
      const pen = canvas.getContext("2d");
      pen.fillStyle = lego.css("--panel"); pen.fillRect(0, 0, canvas.width, canvas.height);
      pen.fillStyle = lego.css("--ink"); pen.font = `${12 * ratio}px ${lego.css("--sans")}`;
      pen.fillText(this.metric + "   " + (this.data || []).map((line) => line.name).join(", "), 10 * ratio, 17 * ratio);
      pen.drawImage(from, 0, 26 * ratio);
      canvas.toBlob((blob) => lego.save(this.metric.replace(/[^\w.]+/g, "_") + ".png", "image/png", blob));
    }

    grow() {
      const grown = this.box.classList.toggle("grown");
      this.chart.options.height = grown ? 380 : this.options.height || 168;
      this.chart.box.style.setProperty("height", this.chart.options.height + "px");
      this.chart.draw();
    }
  };

  // Smoothing, axes, range: what holds for all charts of a page.
  lego.chartTools = ({ filter } = {}) => {
    const { h } = lego;
    const smooth = h("input", { type: "range", min: "0", max: "0.98", step: "0.02", value: lego.state.smooth, "aria-label": "smoothing", on: { input: (event) => lego.set({ smooth: event.target.value }, { replace: true }) } });
    const out = h("output", {}, Number(lego.state.smooth).toFixed(2));
    const toggle = (key, text, title, on, off) => h("button", { type: "button", class: "toggle", title, "aria-pressed": String(lego.state[key] === on), data: { toggle: key }, on: { click: () => lego.set({ [key]: lego.state[key] === on ? off : on }) } }, text);
    const axis = h("div", { class: "segments", role: "group", "aria-label": "x axis" }, ["step", "time"].map((kind) => h("button", { type: "button", "aria-pressed": String(lego.state.x === kind), data: { axis: kind }, on: { click: () => lego.set({ x: kind }) } }, kind)));
    const search = filter ? h("label", { class: "search" }, lego.icon("search"), h("input", { type: "search", placeholder: "filter, a regular expression", value: lego.state.filter, "aria-label": "filter metrics by a regular expression", id: "filter", on: { input: (event) => lego.set({ filter: event.target.value }, { replace: true }) } })) : null;
    const reset = h("button", { type: "button", class: "button small reset", on: { click: () => lego.set({ from: "", to: "" }) } }, "");
    const bar = h("div", { class: "toolbar" }, search, h("label", { class: "slider" }, "smooth", smooth, out), axis, toggle("log", "log", "logarithmic y axis (l)", "1", ""), toggle("clip", "clip", "leave outliers beyond the axis", "1", ""), reset);
    const show = () => {
      out.textContent = Number(lego.state.smooth).toFixed(2);
      if (document.activeElement !== smooth) smooth.value = lego.state.smooth;
      for (const button of bar.querySelectorAll("[data-toggle]")) button.setAttribute("aria-pressed", String(lego.state[button.dataset.toggle] === "1"));
      for (const button of bar.querySelectorAll("[data-axis]")) button.setAttribute("aria-pressed", String(lego.state.x === button.dataset.axis));
      reset.hidden = lego.state.from === "" && lego.state.to === "";
      reset.textContent = `steps ${lego.state.from || "0"}–${lego.state.to || "…"}  ✕`;
      reset.setAttribute("aria-label", "reset the zoom");
    };
    show();
    bar.show = show;
    return bar;
  };

  // Cards that follow the state: new data where the range changed or there is news, else only another view.
  lego.cardsRefresh = (cards, bar) => {
    let range = JSON.stringify(lego.range());
    return (news) => {
      const now = JSON.stringify(lego.range());
      const again = news || now !== range;
      range = now;
      bar?.show();
      for (const card of cards()) card.refresh(again);
    };
  };
}
