// Opens the dashboard in a browser: every panel has data, says nothing on the console and fits its width; zoom,
// smoothing, links, keys and live news work; and the page in one file holds the same.
//   node pages.cjs PLAYWRIGHT_FOLDER BROWSER URL EXPORT.html RUN_ID LOG_ID
"use strict";
const { createRequire } = require("node:module");
const [, , packages, browserPath, url, exported, run, log] = process.argv;
const { chromium } = createRequire(packages + "/package.json")("playwright-core");
const PANELS = ["overview", "metrics", "episodes", "outcomes", "trajectory", "validation", "tasks", "compare", "tokens", "logs", "explorer", "diagnosis", "balance", "import", "settings"];
const faults = [];
const expect = (what, holds) => { if (!holds) faults.push(what); };

const open = async (page, base, panel, query = "") => {
  await page.goto(`${base}#/${panel}?runs=${run},${log}${query}`);
  await page.reload();
  await page.waitForFunction((id) => document.body.dataset.ready === id, panel, { timeout: 30000 });
  // Charts ask once they are seen.
  await page.waitForFunction(() => [...document.querySelectorAll(".chart-body")].filter((body) => body.getBoundingClientRect().top < innerHeight).every((body) => body.querySelector("[data-points]") || body.querySelector(".chart-note")), null, { timeout: 30000 });
};
const points = (page) => page.evaluate(() => [...document.querySelectorAll("[data-points]")].reduce((sum, node) => sum + Number(node.dataset.points || 0), 0));
const tooWide = (page) => page.evaluate(() => document.documentElement.scrollWidth > innerWidth || [...document.querySelectorAll(".page")].some((node) => node.scrollWidth > node.clientWidth));

const visit = async (browser, base, width, colorScheme) => {
  const page = await (await browser.newContext({ viewport: { width, height: 900 }, colorScheme })).newPage();
  page.on("console", (message) => { if (message.type() === "error") faults.push(`${width}: console: ${message.text()}`); });
  page.on("pageerror", (error) => faults.push(`${width}: ${error.message}`));
  for (const panel of PANELS) {
    await open(page, base, panel);
    const found = await points(page);
    expect(`${width}: ${panel} shows ${found} points`, found > 0);
    expect(`${width}: ${panel} is wider than the screen`, !(await tooWide(page)));
    expect(`${width}: ${panel} could not be read`, (await page.locator(".empty.trouble").count()) === 0);
  }
  return page;
};

(async () => {
  const browser = await chromium.launch({ executablePath: browserPath, args: ["--no-sandbox"] });
  const page = await visit(browser, url, 1280, "light");
  await visit(browser, url, 390, "dark");

  // Zoom by dragging, smoothing, a link that holds both, the way back.
  await open(page, url, "metrics", "&filter=" + encodeURIComponent("^critic/score/mean$"));
  expect("the filter leaves one chart (and its pin)", (await page.locator(".chart").count()) <= 2);
  const plot = page.locator(".plot").first();
  await page.waitForFunction(() => Number(document.querySelector(".plot").dataset.points) > 3);
  const box = await plot.boundingBox();
  await page.mouse.move(box.x + 100, box.y + 60);
  expect("a tip at the cursor", await page.locator(".tip:not([hidden])").first().isVisible());
  await page.mouse.down();
  await page.mouse.move(box.x + 220, box.y + 60, { steps: 4 });
  await page.mouse.up();
  await page.waitForFunction(() => location.hash.includes("from="));
  await page.locator("input[type=range]").first().fill("0.6");
  await page.waitForFunction(() => location.hash.includes("smooth=0.6"));
  const link = page.url();
  await page.goto("about:blank");
  await page.goto(link);
  await page.waitForFunction(() => document.body.dataset.ready === "metrics" && lego.state.smooth === "0.6" && lego.state.from !== "");
  await page.keyboard.press("r");
  await page.waitForFunction(() => !location.hash.includes("from="));
  await page.keyboard.press("l");
  await page.waitForFunction(() => location.hash.includes("log=1"));
  const download = page.waitForEvent("download");
  await page.locator(".chart").first().hover();
  await page.locator(".chart [aria-label=CSV]").first().click();
  expect("a CSV", (await download).suggestedFilename().endsWith(".csv"));

  // What an agent wrote stays text.
  await open(page, url, "trajectory");
  expect("an agent's markup is shown as text", (await page.locator(".turns").textContent()).includes("<img src=x onerror=owned=1><script>"));
  expect("what turns a text's direction is seen", (await page.locator(".turns").textContent()).includes("\u27e8U+202E\u27e9gpj"));
  expect("an agent's markup did nothing", await page.evaluate(() => typeof owned === "undefined"));
  expect("no element of an agent's", (await page.evaluate(() => document.querySelectorAll("img, iframe, object").length)) === 0);
  const episodes = await page.context().newPage();
  await open(episodes, url, "trajectory", "&view=tokens");
  expect("tokens are shown", (await episodes.locator(".token").count()) > 10);

  // The engine's own figures, and a panel without data that is looked at from another side.
  await open(page, url, "balance");
  const own = await page.evaluate(() => [...document.querySelectorAll('.chart[data-metric^="inference/"] [data-points]')].reduce((sum, node) => sum + Number(node.dataset.points), 0));
  expect(`balance shows ${own} points of the engine`, own > 0);
  await page.goto(`${url}#/tasks?runs=${log}`);
  await page.reload();
  await page.waitForFunction(() => document.body.dataset.ready === "tasks");
  await page.evaluate(() => lego.set({ smooth: "0.4" }));
  await page.waitForFunction(() => document.body.dataset.ready === "tasks" && document.querySelector(".empty"));

  // News arrive by themselves: the test appends a step to the log now.
  await open(page, url, "overview");
  const before = await page.evaluate((id) => lego.runs.find((one) => one.id === id).step, log);
  console.log("append");
  await page.waitForFunction(([id, step]) => lego.runs.find((one) => one.id === id).step > step, [log, before], { timeout: 30000 });

  await visit(browser, "file://" + exported, 1280, "light");
  await browser.close();
  for (const fault of faults) console.log("FAULT " + fault);
  console.log(faults.length ? "bad" : "good");
})().catch((error) => { console.log("FAULT " + error.stack); process.exit(1); });
