// A line chart on canvas: gaps, bands, log axis, smoothing, zoom by dragging, one cursor over all charts, keyboard.
"use strict";
{
  const charts = new Set();
  lego.charts = charts;

  // Exponential moving average without the pull of its first value; `gap` is how many rows a point stands for.
  lego.smoothed = (values, weight, gap = 1) => {
    if (!weight) return values;
    const keep = Math.pow(weight, gap);
    let sum = 0, norm = 0;
    return values.map((value) => {
      if (value === null || !Number.isFinite(value)) return value;
      sum = sum * keep + value * (1 - keep);
      norm = norm * keep + (1 - keep);
      return sum / norm;
    });
  };

  const niceTicks = (low, high, count) => {
    const raw = (high - low) / Math.max(1, count);
    const power = Math.pow(10, Math.floor(Math.log10(raw)));
    const step = [1, 2, 2.5, 5, 10].map((times) => times * power).find((size) => size >= raw * 0.999) || raw;
    const ticks = [];
    for (let tick = Math.ceil(low / step - 1e-9) * step; tick <= high + step * 1e-9; tick += step) ticks.push(Math.abs(tick) < step * 1e-9 ? 0 : tick);
    return ticks;
  };
  lego.niceTicks = niceTicks;
  const timeLabel = (seconds, span) => {
    const at = new Date(seconds * 1000), two = (n) => String(n).padStart(2, "0");
    if (span > 172800) return `${two(at.getMonth() + 1)}-${two(at.getDate())}`;
    return `${two(at.getHours())}:${two(at.getMinutes())}` + (span < 300 ? ":" + two(at.getSeconds()) : "");
  };

  lego.Chart = class {
    constructor(host, options) {
      this.options = { height: 168, ...options };
      this.series = [];
      this.cursor = null;
      this.canvas = lego.h("canvas", { tabIndex: 0, role: "img" });
      this.over = lego.h("canvas", { class: "over" });
      this.tip = lego.h("div", { class: "tip", hidden: true });
      this.box = lego.h("div", { class: "plot", style: { height: this.options.height + "px" } }, this.canvas, this.over, this.tip);
      host.append(this.box);
      this.watch = new ResizeObserver(() => this.draw());
      this.watch.observe(this.box);
      charts.add(this);
      this.listen();
    }

    destroy() { this.watch.disconnect(); charts.delete(this); }

    // series: [{name, colour, x, t, y, n, lo, hi}]
    set(series, view) {
      this.series = series;
      this.view = view;
      const shown = series.reduce((sum, one) => sum + one.y.filter((y) => y !== null).length, 0);
      this.box.dataset.points = shown;
      const last = series[0]?.y[series[0].y.length - 1];
      this.box.dataset.last = last ?? "";
      this.canvas.setAttribute("aria-label", `${this.options.label || "chart"}: ${series.map((one) => `${one.name} ${lego.number(one.y[one.y.length - 1])}`).join(", ")}`);
      this.draw();
    }

    prepare() {
      const { smooth = 0, x = "step", log = false, clip = false } = this.view || {};
      const lines = this.series.map((one) => {
        const xs = x === "time" && one.t ? one.t : one.x;
        const gap = Math.max(1, (one.n || one.y.length) / Math.max(1, one.y.length));
        const ok = (y) => y !== null && Number.isFinite(y) && (!log || y > 0);
        return { ...one, xs, raw: one.y, main: lego.smoothed(one.y, smooth, gap), ok };
      });
      let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
      const all = [];
      for (const line of lines) {
        line.xs.forEach((at, i) => {
          if (at === null) return;
          x0 = Math.min(x0, at); x1 = Math.max(x1, at);
          for (const value of [line.main[i], smooth ? null : line.raw[i], line.lo?.[i], line.hi?.[i]]) if (value !== undefined && line.ok(value)) { y0 = Math.min(y0, value); y1 = Math.max(y1, value); all.push(value); }
        });
      }
      if (clip && all.length > 20) {
        all.sort((a, b) => a - b);
        y0 = all[Math.floor(all.length * 0.02)]; y1 = all[Math.ceil(all.length * 0.98) - 1];
      }
      if (this.options.zero) { y0 = Math.min(0, y0); }
      if (this.options.top !== undefined && y1 <= this.options.top) y1 = this.options.top;
      if (!Number.isFinite(x0)) return null;
      if (x0 === x1) { x0 -= 0.5; x1 += 0.5; }
      if (!Number.isFinite(y0)) { y0 = 0; y1 = 1; }
      if (y0 === y1) { const pad = Math.abs(y0) * 0.1 || 0.5; y0 -= log ? y0 * 0.5 : pad; y1 += pad; }
      else if (!log) { const pad = (y1 - y0) * 0.06; y1 += this.options.top === undefined ? pad : 0; if (!(this.options.zero && y0 === 0)) y0 -= pad; }
      return { lines, x0, x1, y0, y1, log, smooth, time: x === "time" };
    }

    draw() {
      const width = this.box.clientWidth, height = this.options.height, ratio = window.devicePixelRatio || 1;
      if (!width) return;
      for (const canvas of [this.canvas, this.over]) {
        canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
        canvas.style.setProperty("width", width + "px"); canvas.style.setProperty("height", height + "px");
      }
      const pen = this.canvas.getContext("2d");
      pen.scale(ratio, ratio);
      const scene = (this.scene = this.prepare());
      if (!scene) return;
      const ink = lego.css("--ink-3"), grid = lego.css("--line-soft");
      pen.font = "11px " + lego.css("--sans");
      const yTicks = scene.log ? this.logTicks(scene) : niceTicks(scene.y0, scene.y1, Math.max(2, Math.floor(height / 42)));
      const labels = yTicks.map((tick) => lego.number(tick));
      const left = Math.min(64, Math.max(30, Math.ceil(Math.max(...labels.map((text) => pen.measureText(text).width), 0)) + 10));
      const area = (this.area = { left, top: 6, right: width - 8, bottom: height - 20 });
      const toX = (this.toX = (x) => area.left + ((x - scene.x0) / (scene.x1 - scene.x0)) * (area.right - area.left));
      const flat = scene.log ? Math.log10 : (y) => y;
      const toY = (this.toY = (y) => area.bottom - ((flat(y) - flat(scene.y0)) / (flat(scene.y1) - flat(scene.y0))) * (area.bottom - area.top));
      pen.strokeStyle = grid; pen.fillStyle = ink; pen.lineWidth = 1;
      pen.textAlign = "right"; pen.textBaseline = "middle";
      yTicks.forEach((tick, i) => {
        const y = Math.round(toY(tick)) + 0.5;
        if (y < area.top - 1 || y > area.bottom + 1) return;
        pen.beginPath(); pen.moveTo(area.left, y); pen.lineTo(area.right, y); pen.stroke();
        pen.fillText(labels[i], area.left - 6, y);
      });
      pen.textBaseline = "top";
      const span = scene.x1 - scene.x0;
      const xTicks = niceTicks(scene.x0, scene.x1, Math.max(2, Math.floor((area.right - area.left) / 72))).filter((tick) => scene.time || Number.isInteger(tick));
      for (const tick of xTicks) {
        const x = toX(tick), text = scene.time ? timeLabel(tick, span) : lego.number(tick);
        const half = pen.measureText(text).width / 2;
        pen.textAlign = x + half > area.right + 4 ? "right" : x - half < area.left - 4 ? "left" : "center";
        pen.fillText(text, pen.textAlign === "right" ? area.right + 4 : x, area.bottom + 6);
      }
      pen.save();
      pen.beginPath(); pen.rect(area.left - 2, area.top - 4, area.right - area.left + 4, area.bottom - area.top + 8); pen.clip();
      for (const line of scene.lines) {
        if (line.lo && line.hi) this.band(pen, line);
        if (scene.smooth) this.line(pen, line, line.raw, 1, 0.22);
        this.line(pen, line, line.main, line.width || 1.6, 1);
      }
      pen.restore();
      this.drawOver();
    }

    logTicks({ y0, y1 }) {
      const ticks = [];
      for (let power = Math.floor(Math.log10(y0)); power <= Math.ceil(Math.log10(y1)); power++) for (const times of [1, 2, 5]) { const tick = times * 10 ** power; if (tick >= y0 && tick <= y1) ticks.push(tick); }
      return ticks.length > 7 ? ticks.filter((tick) => /^1/.test(tick.toExponential())) : ticks;
    }

    band(pen, line) {
      const at = line.xs.map((_, i) => i).filter((i) => line.ok(line.lo[i]) && line.ok(line.hi[i]) && line.xs[i] !== null);
      if (at.length < 2) return;
      pen.beginPath();
      at.forEach((i, n) => pen[n ? "lineTo" : "moveTo"](this.toX(line.xs[i]), this.toY(line.hi[i])));
      at.reverse().forEach((i) => pen.lineTo(this.toX(line.xs[i]), this.toY(line.lo[i])));
      pen.closePath(); pen.globalAlpha = 0.12; pen.fillStyle = line.colour; pen.fill(); pen.globalAlpha = 1;
    }

    line(pen, line, values, width, alpha) {
      pen.strokeStyle = pen.fillStyle = line.colour; pen.lineWidth = width; pen.globalAlpha = alpha; pen.lineJoin = "round";
      pen.setLineDash(line.dash || []);
      let open = false, run = 0, lastX = 0, lastY = 0;
      pen.beginPath();
      const dot = () => { if (run === 1) { pen.moveTo(lastX + 2, lastY); pen.arc(lastX, lastY, 1.6, 0, 7); } };
      values.forEach((value, i) => {
        if (!line.ok(value) || line.xs[i] === null) { dot(); open = false; run = 0; return; }
        lastX = this.toX(line.xs[i]); lastY = this.toY(value);
        if (open) pen.lineTo(lastX, lastY); else pen.moveTo(lastX, lastY);
        open = true; run++;
      });
      dot();
      pen.stroke(); pen.globalAlpha = 1; pen.setLineDash([]);
      if (line.marks && alpha === 1) values.forEach((value, i) => { if (line.ok(value)) { pen.beginPath(); pen.arc(this.toX(line.xs[i]), this.toY(value), 2.6, 0, 7); pen.fill(); } });
    }

    // Index of the nearest point of each line.
    near(x) {
      return this.scene.lines.map((line) => {
        let best = -1, gap = Infinity;
        line.xs.forEach((at, i) => { if (at !== null && line.ok(line.main[i])) { const away = Math.abs(at - x); if (away < gap) { gap = away; best = i; } } });
        return best;
      });
    }

    drawOver() {
      const pen = this.over.getContext("2d"), ratio = window.devicePixelRatio || 1;
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      pen.clearRect(0, 0, this.over.width, this.over.height);
      if (!this.scene || !this.area) return;
      const { area } = this;
      if (this.drag && Math.abs(this.drag.to - this.drag.from) > 3) {
        pen.fillStyle = lego.css("--accent"); pen.globalAlpha = 0.14;
        pen.fillRect(this.drag.from, area.top, this.drag.to - this.drag.from, area.bottom - area.top); pen.globalAlpha = 1;
      }
      if (this.cursor === null || this.cursor < this.scene.x0 || this.cursor > this.scene.x1) return this.options.onHover?.(null);
      const near = this.near(this.cursor);
      const x = Math.round(this.toX(this.cursor)) + 0.5;
      pen.strokeStyle = lego.css("--ink-3"); pen.lineWidth = 1; pen.setLineDash([3, 3]);
      pen.beginPath(); pen.moveTo(x, area.top); pen.lineTo(x, area.bottom); pen.stroke(); pen.setLineDash([]);
      this.scene.lines.forEach((line, n) => {
        const i = near[n];
        if (i < 0) return;
        pen.fillStyle = line.colour; pen.beginPath(); pen.arc(this.toX(line.xs[i]), this.toY(line.main[i]), 3, 0, 7); pen.fill();
      });
      this.options.onHover?.(this.scene.lines.map((line, n) => (near[n] < 0 ? null : { name: line.name, value: line.raw[near[n]], colour: line.colour })));
    }

    showTip(event) {
      const near = this.near(this.cursor);
      const rows = this.scene.lines.map((line, n) => ({ line, i: near[n] })).filter((row) => row.i >= 0).sort((a, b) => b.line.main[b.i] - a.line.main[a.i]);
      if (!rows.length) return this.hideTip();
      const first = rows[0];
      const step = first.line.x[first.i], time = first.line.t?.[first.i];
      lego.fill(this.tip, lego.h("div", { class: "tip-head" }, `step ${step}`, time && (this.scene.time || event.shiftKey) ? " · " + new Date(time * 1000).toLocaleString() : ""),
        rows.slice(0, 12).map(({ line, i }) => lego.h("div", { class: "tip-row" }, lego.h("span", { class: "swatch", style: { background: line.colour } }), lego.h("span", { class: "tip-name" }, line.name), lego.h("b", {}, lego.number(line.raw[i], 4)), this.scene.smooth ? lego.h("i", {}, " ~ " + lego.number(line.main[i], 4)) : null)));
      this.tip.hidden = false;
      const x = this.toX(this.cursor), wide = this.tip.offsetWidth;
      this.tip.style.setProperty("left", (x + wide + 16 > this.box.clientWidth ? Math.max(0, x - wide - 10) : x + 10) + "px");
    }

    hideTip() { this.tip.hidden = true; }

    listen() {
      const at = (event) => event.clientX - this.box.getBoundingClientRect().left;
      const toValue = (px) => this.scene.x0 + ((Math.min(this.area.right, Math.max(this.area.left, px)) - this.area.left) / (this.area.right - this.area.left)) * (this.scene.x1 - this.scene.x0);
      this.box.addEventListener("pointermove", (event) => {
        if (!this.scene || !this.area) return;
        if (this.drag) { this.drag.to = at(event); }
        lego.hover(toValue(at(event)), this.scene.time);
        this.showTip(event);
      });
      this.box.addEventListener("pointerleave", () => { if (!this.drag) { this.hideTip(); lego.hover(null); } });
      this.box.addEventListener("pointerdown", (event) => {
        if (!this.scene || event.button) return;
        this.drag = { from: at(event), to: at(event) };
        this.box.setPointerCapture(event.pointerId);
      });
      const end = () => {
        const { drag } = this;
        this.drag = null;
        if (drag && this.options.onZoom && Math.abs(drag.to - drag.from) > 6) {
          const [from, to] = [toValue(Math.min(drag.from, drag.to)), toValue(Math.max(drag.from, drag.to))];
          if (this.scene.time) this.options.onZoom(this.stepNear(from), this.stepNear(to));
          else this.options.onZoom(Math.max(0, Math.floor(from)), Math.ceil(to));
        } else this.drawOver();
      };
      this.box.addEventListener("pointerup", end);
      this.box.addEventListener("pointercancel", () => { this.drag = null; this.drawOver(); });
      this.box.addEventListener("dblclick", () => this.options.onZoom?.("", ""));
      this.canvas.addEventListener("keydown", (event) => {
        const xs = this.scene?.lines[0]?.xs;
        if (!xs?.length || !["ArrowLeft", "ArrowRight", "Home", "End", "Escape"].includes(event.key)) return;
        event.preventDefault();
        if (event.key === "Escape") { this.hideTip(); lego.hover(null); return this.options.onZoom?.("", ""); }
        const now = this.cursor === null ? xs.length - 1 : this.near(this.cursor)[0];
        const next = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: xs.length - 1 }[event.key];
        lego.hover(xs[Math.min(xs.length - 1, Math.max(0, next))], this.scene.time);
        this.showTip(event);
      });
      this.canvas.addEventListener("blur", () => { this.hideTip(); lego.hover(null); });
    }

    // The step nearest to a time.
    stepNear(time) {
      const line = this.scene.lines.find((one) => one.t);
      if (!line) return "";
      let best = 0;
      line.t.forEach((at, i) => { if (Math.abs(at - time) < Math.abs(line.t[best] - time)) best = i; });
      return line.x[best];
    }
  };

  lego.hover = (x, time) => {
    for (const chart of charts) if (x === null || Boolean(chart.scene?.time) === Boolean(time)) { chart.cursor = x; if (chart.scene) chart.drawOver(); }
  };
}
