// The page's ground: elements, state in the address, settings, numbers as people read them.
// Text of agents is hostile: everything becomes a text node, nothing is parsed as HTML.
"use strict";
const lego = { panels: [] };

lego.h = (tag, props, ...kids) => {
  const svg = ["svg", "path", "circle", "rect", "line"].includes(tag);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(props || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "on") for (const [name, act] of Object.entries(value)) node.addEventListener(name, act);
    else if (key === "style") for (const [name, to] of Object.entries(value)) node.style.setProperty(name, to);
    else if (key === "data") Object.assign(node.dataset, value);
    else if (key === "class") node.setAttribute("class", value);
    else if (key in node && !svg && typeof value !== "string") node[key] = value;
    else node.setAttribute(key, value === true ? "" : value);
  }
  lego.add(node, kids);
  return node;
};

lego.add = (node, ...kids) => {
  for (const kid of kids.flat(9)) {
    if (kid === null || kid === undefined || kid === false) continue;
    node.append(kid instanceof Node ? kid : document.createTextNode(String(kid)));
  }
  return node;
};

// Characters that turn the direction of what follows, hide, or move the cursor: seen, they cannot make a text say something else.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]|[\u{e0000}-\u{e007f}]/gu;
const COLOURS = /\u001b\[[0-9;]*m/g;
lego.visible = (text) => text.replace(/\r\n/g, "\n").replace(COLOURS, "").replace(UNSEEN, (found) => `⟨U+${found.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);

lego.fill = (node, ...kids) => { node.textContent = ""; return lego.add(node, kids); };

const ICONS = {
  menu: "M2 4h12M2 8h12M2 12h12", pin: "M8 1.5l1.9 4 4.4.5-3.3 3 .9 4.4L8 11.200l-3.900 2.200.9-4.400-3.300-3 4.400-.5z",
  table: "M2 3h12v10H2zM2 6.500h12M6.500 3v10", down: "M8 2v8M4.500 7L8 10.500 11.500 7M3 13.500h10",
  image: "M2 3h12v10H2zM2 11l3.500-3.500 3 3L11 8l3 3", grow: "M9.500 2.500h4v4M6.500 13.500h-4v-4M13.500 2.500L9 7M2.500 13.500L7 9",
  left: "M10 3L5 8l5 5", right: "M6 3l5 5-5 5", close: "M3.500 3.500l9 9M12.500 3.500l-9 9",
  eye: "M1.500 8S4 3.500 8 3.500 14.500 8 14.500 8 12 12.500 8 12.500 1.500 8 1.500 8zM8 6.200a1.800 1.800 0 100 3.600 1.800 1.800 0 000-3.600z",
  search: "M7 2.500a4.500 4.500 0 100 9 4.500 4.500 0 000-9zM10.300 10.300L14 14",
};
lego.icon = (name) => lego.h("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" }, lego.h("path", { d: ICONS[name] }));
lego.button = (icon, label, act, more) => lego.h("button", { class: "icon-button", type: "button", title: label, "aria-label": label, on: { click: act }, ...more }, lego.icon(icon));

// What the address holds. A link shows what its sender saw.
const DEFAULTS = { panel: "overview", runs: "", smooth: "0", x: "step", log: "", clip: "", from: "", to: "", filter: "" };
lego.read = () => {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const state = { ...DEFAULTS, ...Object.fromEntries(new URLSearchParams(query || "")) };
  if (path) state.panel = path;
  return state;
};
lego.state = lego.read();
lego.address = (state) => {
  const kept = Object.entries(state).filter(([key, value]) => key !== "panel" && value !== "" && value !== undefined && value !== DEFAULTS[key]);
  const query = new URLSearchParams(kept.map(([key, value]) => [key, String(value)])).toString();
  return "#/" + state.panel + (query ? "?" + query : "");
};
lego.set = (patch, { replace = false } = {}) => {
  const next = { ...lego.state, ...patch };
  const address = lego.address(next);
  if (address === location.hash) return;
  history[replace ? "replaceState" : "pushState"](null, "", address);
  lego.moved();
};
lego.go = (panel, patch = {}) => {
  const kept = {};
  for (const key of ["runs", "smooth", "x", "log", "clip", "from", "to"]) kept[key] = lego.state[key];
  const address = lego.address({ ...DEFAULTS, ...kept, ...patch, panel });
  if (address !== location.hash) history.pushState(null, "", address);
  lego.moved();
};

// Settings of this browser.
lego.store = {
  get(key, otherwise) {
    try { const text = localStorage.getItem("lego." + key); return text === null ? otherwise : JSON.parse(text); } catch { return otherwise; }
  },
  set(key, value) { try { localStorage.setItem("lego." + key, JSON.stringify(value)); } catch { /* private window */ } },
};

// Numbers as people read them.
lego.number = (value, digits = 3) => {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e9 || size < 1e-4) return value.toExponential(Math.max(0, digits - 2)).replace("e+", "e");
  if (size >= 1e6) return (value / 1e6).toFixed(2).replace(/\.?0+$/, "") + "M";
  if (size >= 1e4) return (value / 1e3).toFixed(1).replace(/\.0$/, "") + "k";
  if (Number.isInteger(value)) return String(value);
  const fixed = size >= 100 ? 1 : size >= 1 ? Math.min(digits, 2) : size >= 0.1 ? digits : size >= 0.01 ? digits + 1 : digits + 2;
  return value.toFixed(fixed).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
};
lego.percent = (value) => (value === null || value === undefined || Number.isNaN(value) ? "–" : (100 * value).toFixed(Math.abs(value) < 0.1 && value !== 0 ? 1 : 0) + "%");
lego.duration = (seconds) => {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "–";
  if (seconds < 0.1) return Math.round(seconds * 1000) + " ms";
  if (seconds < 90) return (seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)) + " s";
  if (seconds < 5400) return Math.round(seconds / 60) + " min";
  if (seconds < 129600) return (seconds / 3600).toFixed(1) + " h";
  return (seconds / 86400).toFixed(1) + " d";
};
lego.ago = (seconds) => (seconds ? lego.duration(Math.max(0, Date.now() / 1000 - seconds)) + " ago" : "–");
lego.count = (number, one, many) => `${number.toLocaleString("en")} ${number === 1 ? one : many || one + "s"}`;
lego.bytes = (size) => (size < 1000 ? size + " B" : size < 1e6 ? (size / 1e3).toFixed(1) + " KB" : (size / 1e6).toFixed(1) + " MB");

// Colours of runs: by their place in the list, or chosen.
const PALETTE = (lego.PALETTE = ["#3b6fd4", "#d9772b", "#2f9e6e", "#a94fc0", "#cf4358", "#1795a8", "#94812a", "#70757d"]);
lego.colour = (id) => {
  const chosen = lego.store.get("colours", {});
  if (chosen[id]) return chosen[id];
  const order = (lego.runs || []).map((run) => run.id).sort();
  return PALETTE[Math.max(0, order.indexOf(id)) % PALETTE.length];
};
const OUTCOMES = {
  solved: "#2f9e6e", unsolved: "#8fa3bf", overlong: "#d9a62b", max_turns_reached: "#d9772b", timeout: "#a94fc0",
  agent_error: "#cf4358", env_setup_failed: "#7a3b46", infra_error: "#5c4a72", verifier_error: "#1795a8", cancelled: "#a6a29a",
};
lego.outcomeColour = (name) => OUTCOMES[name] || PALETTE[[...name].reduce((sum, c) => sum + c.charCodeAt(0), 0) % PALETTE.length];
lego.css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// What is shown where there is nothing, and what to do about it.
lego.empty = (title, ...text) => lego.h("div", { class: "empty" }, lego.h("strong", {}, title), lego.h("p", {}, ...text));
lego.trouble = (error, again) => lego.h("div", { class: "empty trouble", role: "alert" }, lego.h("strong", {}, "This could not be read"), lego.h("p", {}, error.message || String(error)), again && lego.h("button", { type: "button", class: "button", on: { click: again } }, "Try again"));

lego.save = (name, type, text) => {
  const url = URL.createObjectURL(text instanceof Blob ? text : new Blob([text], { type }));
  const link = lego.h("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
};
lego.csv = (rows) => rows.map((row) => row.map((cell) => {
  const text = cell === null || cell === undefined ? "" : String(cell);
  // A spreadsheet must not take text of an agent for a formula.
  const safe = typeof cell === "string" && /^[=+@\-]/.test(text) ? "'" + text : text;
  return /[",\n]/.test(safe) ? '"' + safe.replace(/"/g, '""') + '"' : safe;
}).join(",")).join("\n") + "\n";

lego.trendMark = (summary) => {
  if (!summary || summary.t === null) return lego.h("span", { class: "trend" }, "too few steps");
  const good = summary.direction === "higher" ? 1 : summary.direction === "lower" ? -1 : 0;
  const way = summary.trend === "up" ? 1 : summary.trend === "down" ? -1 : 0;
  const kind = way === 0 || good === 0 ? "" : way === good ? " good" : " bad";
  const t = Math.abs(summary.t) > 99 ? "> 99" : Math.abs(summary.t).toFixed(1);
  return lego.h("span", { class: "trend" + kind, title: `least-squares slope over all steps; |t| < 2 is flat` },
    way === 0 ? "flat" : (way > 0 ? "▲ " : "▼ ") + lego.number(Math.abs(summary.slope), 2) + " / step", lego.h("i", {}, ` |t| ${t}`));
};
