// How fast the dashboard is: first paint, the first panel with its data, and each switch of panels, twice.
//   node dashboard_load.cjs PLAYWRIGHT_FOLDER BROWSER URL RUN_ID
// Prints one JSON object. A switch ends when the panel is there, its charts in view have their points, and a frame was drawn.
"use strict";
const { createRequire } = require("node:module");
const [, , packages, browserPath, url, run] = process.argv;
const { chromium } = createRequire(packages + "/package.json")("playwright-core");
const PANELS = ["metrics", "episodes", "outcomes", "trajectory", "validation", "tasks", "compare", "tokens", "logs", "explorer", "diagnosis", "balance", "overview"];

const shown = (page, panel) => page.waitForFunction((id) => document.body.dataset.ready === id && [...document.querySelectorAll(".chart-body")].filter((body) => body.getBoundingClientRect().top < innerHeight).every((body) => body.querySelector("[data-points]") || body.querySelector(".chart-note")), panel, { timeout: 300000, polling: "raf" });

(async () => {
  const browser = await chromium.launch({ executablePath: browserPath, args: ["--no-sandbox"] });
  const page = await (await browser.newContext({ viewport: { width: 1280, height: 900 } })).newPage();
  const faults = [];
  page.on("pageerror", (error) => faults.push(error.message));
  const began = Date.now();
  await page.goto(`${url}#/overview?runs=${run}`);
  await shown(page, "overview");
  const first = { data_ms: Date.now() - began };
  first.paint_ms = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime);
  const switches = {};
  for (const turn of ["first", "again"]) {
    // The first time shards may still be read; the second time all are there.
    if (turn === "again") await page.waitForFunction(async () => (await (await fetch("api/runs")).json()).runs.every((one) => !one.reading), null, { timeout: 300000, polling: 500 });
    for (const panel of PANELS) {
      const took = await page.evaluate((id) => new Promise((done) => {
        const start = performance.now();
        lego.go(id);
        const look = () => {
          const ready = document.body.dataset.ready === id && [...document.querySelectorAll(".chart-body")].filter((body) => body.getBoundingClientRect().top < innerHeight).every((body) => body.querySelector("[data-points]") || body.querySelector(".chart-note"));
          if (ready) requestAnimationFrame(() => done(performance.now() - start)); else requestAnimationFrame(look);
        };
        requestAnimationFrame(look);
      }), panel);
      (switches[panel] ||= {})[turn] = took;
    }
  }
  await browser.close();
  console.log(JSON.stringify({ first, switches, faults }));
})().catch((error) => { console.error(error.stack); process.exit(1); });
