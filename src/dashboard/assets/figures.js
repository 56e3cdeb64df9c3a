// Smaller figures: sparklines, stacked bars, plain bars, tables that sort.
"use strict";
{
  lego.spark = (values, colour) => {
    const canvas = lego.h("canvas", { class: "spark", "aria-hidden": "true" });
    const draw = () => {
      const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
      if (!width) return;
      canvas.width = width * ratio; canvas.height = height * ratio;
      const pen = canvas.getContext("2d");
      pen.scale(ratio, ratio);
      const shown = values.map((value, i) => [i, value]).filter(([, value]) => value !== null && Number.isFinite(value));
      if (!shown.length) return;
      const low = Math.min(...shown.map((point) => point[1])), high = Math.max(...shown.map((point) => point[1]));
      const x = (i) => 2 + (i / Math.max(1, values.length - 1)) * (width - 6), y = (value) => height - 4 - ((value - low) / (high - low || 1)) * (height - 8);
      const path = () => { pen.beginPath(); shown.forEach(([i, value], n) => pen[n ? "lineTo" : "moveTo"](x(i), y(value))); };
      path();
      pen.lineTo(x(shown[shown.length - 1][0]), height); pen.lineTo(x(shown[0][0]), height); pen.closePath();
      pen.globalAlpha = 0.09; pen.fillStyle = colour; pen.fill(); pen.globalAlpha = 1;
      path();
      pen.strokeStyle = colour; pen.lineWidth = 1.5; pen.lineJoin = "round"; pen.stroke();
      const end = shown[shown.length - 1];
      pen.fillStyle = colour; pen.beginPath(); pen.arc(x(end[0]), y(end[1]), 2.2, 0, 7); pen.fill();
    };
    new ResizeObserver(draw).observe(canvas);
    return canvas;
  };

  // bars: [{label, title, parts: {name: count}}]; names in drawing order, with colours. `share`: each bar is the whole.
  lego.Bars = class {
    constructor(host, options = {}) {
      this.options = { height: 200, ...options };
      this.canvas = lego.h("canvas", { role: "img" });
      this.tip = lego.h("div", { class: "tip", hidden: true });
      this.box = lego.h("div", { class: "plot", style: { height: this.options.height + "px" } }, this.canvas, this.tip);
      host.append(this.box);
      new ResizeObserver(() => this.draw()).observe(this.box);
      this.box.addEventListener("pointermove", (event) => this.point(event));
      this.box.addEventListener("pointerleave", () => { this.tip.hidden = true; this.at = -1; this.draw(); });
      this.box.addEventListener("click", () => { if (this.at >= 0) this.options.onPick?.(this.bars[this.at]); });
      this.at = -1;
    }

    set(bars, names, share) {
      Object.assign(this, { bars, names, share });
      this.box.dataset.points = bars.reduce((sum, bar) => sum + Object.values(bar.parts).filter(Boolean).length, 0);
      this.canvas.setAttribute("aria-label", `${this.options.label || "bars"}: ${bars.length} bars of ${names.map((name) => name.name).join(", ")}`);
      this.draw();
    }

    draw() {
      const width = this.box.clientWidth, { height } = this.options, ratio = window.devicePixelRatio || 1;
      if (!width || !this.bars?.length) return;
      this.canvas.width = width * ratio; this.canvas.height = height * ratio;
      this.canvas.style.setProperty("width", width + "px"); this.canvas.style.setProperty("height", height + "px");
      const pen = this.canvas.getContext("2d");
      pen.scale(ratio, ratio);
      pen.font = "11px " + lego.css("--sans");
      const sum = (bar) => this.names.reduce((sum, { name }) => sum + (bar.parts[name] || 0), 0);
      const top = this.share ? 1 : Math.max(...this.bars.map(sum), 1e-9) * 1.02;
      const ticks = lego.niceTicks(0, top, Math.floor(height / 45));
      const text = (tick) => (this.share ? Math.round(tick * 100) + "%" : lego.number(tick));
      const left = Math.max(30, ...ticks.map((tick) => Math.ceil(pen.measureText(text(tick)).width) + 10));
      const area = { left, right: width - 6, top: 6, bottom: height - 20 };
      pen.textAlign = "right"; pen.textBaseline = "middle";
      for (const tick of ticks) {
        const y = Math.round(area.bottom - (tick / top) * (area.bottom - area.top)) + 0.5;
        pen.strokeStyle = lego.css("--line-soft"); pen.beginPath(); pen.moveTo(area.left, y); pen.lineTo(area.right, y); pen.stroke();
        pen.fillStyle = lego.css("--ink-3"); pen.fillText(text(tick), area.left - 6, y);
      }
      const slot = (this.slot = (area.right - area.left) / this.bars.length);
      this.left = area.left;
      const wide = Math.max(1, Math.min(slot - (slot > 5 ? 2 : slot > 2.5 ? 1 : 0), 44));
      const every = Math.max(1, Math.ceil(46 / slot));
      this.bars.forEach((bar, i) => {
        const x = area.left + slot * i + (slot - wide) / 2, whole = sum(bar);
        let y = area.bottom;
        pen.globalAlpha = this.at < 0 || this.at === i ? 1 : 0.5;
        for (const { name, colour } of this.names) {
          const size = ((bar.parts[name] || 0) / (this.share ? whole || 1 : 1) / top) * (area.bottom - area.top);
          if (size <= 0) continue;
          pen.fillStyle = colour; pen.fillRect(x, y - size, wide, size);
          y -= size;
        }
        pen.globalAlpha = 1;
        if (i % every === 0) { pen.fillStyle = lego.css("--ink-3"); pen.textAlign = "center"; pen.textBaseline = "top"; pen.fillText(String(bar.label), Math.min(area.right - 8, x + wide / 2), area.bottom + 6); }
      });
    }

    point(event) {
      if (!this.bars?.length) return;
      const px = event.clientX - this.box.getBoundingClientRect().left;
      const at = Math.floor((px - this.left) / this.slot);
      if (at < 0 || at >= this.bars.length) { this.tip.hidden = true; return; }
      if (at !== this.at) { this.at = at; this.draw(); }
      const bar = this.bars[at], whole = Object.values(bar.parts).reduce((a, b) => a + b, 0);
      lego.fill(this.tip, lego.h("div", { class: "tip-head" }, bar.title || bar.label),
        [...this.names].reverse().filter(({ name }) => bar.parts[name]).map(({ name, colour }) => lego.h("div", { class: "tip-row" }, lego.h("span", { class: "swatch", style: { background: colour } }), lego.h("span", { class: "tip-name" }, name), lego.h("b", {}, lego.number(bar.parts[name])), this.names.length > 1 && whole ? lego.h("i", {}, " " + lego.percent(bar.parts[name] / whole)) : null)));
      this.tip.hidden = false;
      const wide = this.tip.offsetWidth;
      this.tip.style.setProperty("left", (px + wide + 16 > this.box.clientWidth ? Math.max(0, px - wide - 10) : px + 12) + "px");
    }
  };

  lego.legend = (names) => lego.h("div", { class: "legend" }, names.map(({ name, colour, note }) => lego.h("span", { class: "legend-item" }, lego.h("span", { class: "swatch", style: { background: colour } }), name, note ? lego.h("i", {}, " " + note) : null)));

  // columns: [{key, title, numeric, show(row), sort}]
  lego.table = (columns, rows, { sort, desc, onSort, onPick, picked, caption } = {}) => {
    const head = columns.map((column) => lego.h("th", { class: column.numeric ? "number" : null, "aria-sort": sort === column.key ? (desc ? "descending" : "ascending") : null },
      onSort && column.sort !== false ? lego.h("button", { type: "button", on: { click: () => onSort(column.key) } }, column.title, lego.h("i", {}, sort === column.key ? (desc ? " ↓" : " ↑") : "")) : column.title));
    const body = rows.map((row) => lego.h("tr", { class: [onPick && "pick", picked?.(row) && "picked"].filter(Boolean).join(" ") || null, tabIndex: onPick ? 0 : -1, on: onPick ? { click: () => onPick(row), keydown: (event) => { if (event.key === "Enter") onPick(row); } } : {} },
      columns.map((column) => { const shown = column.show ? column.show(row) : row[column.key]; return lego.h("td", { class: [column.numeric && "number", column.kind].filter(Boolean).join(" ") || null, title: column.title_of?.(row) }, shown === null || shown === undefined ? "–" : shown); })));
    return lego.h("div", { class: "table-box" }, lego.h("table", { class: "data" }, caption ? lego.h("caption", {}, caption) : null, lego.h("thead", {}, lego.h("tr", {}, head)), lego.h("tbody", {}, body)));
  };

  lego.section = (title, note, ...body) => lego.h("section", { class: "card" }, lego.h("header", { class: "card-head" }, lego.h("h2", {}, title), note ? lego.h("span", { class: "note" }, note) : null), ...body);
  lego.chip = (text, kind) => lego.h("span", { class: "chip " + (kind || "") }, text);
  lego.outcomeChip = (name) => lego.h("span", { class: "outcome" }, lego.h("span", { class: "swatch", style: { background: lego.outcomeColour(name) } }), name);
}
