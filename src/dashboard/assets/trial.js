// One trial: turn by turn, its tokens, what the tests said, its files. All of it is text of an agent: shown as text.
"use strict";
{
  const { h } = lego;
  const LONG = 4000;

  const text = (content) => {
    const shown = lego.visible(typeof content === "string" ? content : JSON.stringify(content, null, 2));
    if (shown.length <= LONG) return h("pre", { class: "text" }, shown);
    const pre = h("pre", { class: "text" }, shown.slice(0, LONG) + "…");
    return h("div", {}, pre, h("button", { type: "button", class: "button small", on: { click: (event) => { pre.textContent = shown; event.target.remove(); } } }, `show all ${shown.length.toLocaleString("en")} characters`));
  };

  const call = (one) => {
    const args = one.arguments || {};
    const only = Object.keys(args).length === 1 ? Object.values(args)[0] : null;
    return h("div", { class: "call" }, h("div", { class: "call-name" }, one.function_name || "tool"), text(typeof only === "string" ? only : args));
  };

  const turns = (trajectory) => {
    let turn = 0;
    return h("ol", { class: "turns", data: { points: trajectory.steps.length } }, trajectory.steps.map((step) => {
      const agent = step.source === "agent";
      if (agent) turn++;
      return h("li", { class: "turn " + step.source }, h("header", {}, h("b", {}, agent ? `turn ${turn}` : step.source), step.metrics ? h("span", { class: "note" }, `${step.metrics.completion_tokens ?? "–"} tokens sampled · ${step.metrics.prompt_tokens ?? "–"} in the prompt`) : null),
        step.reasoning_content ? h("details", { class: "thought", open: true }, h("summary", {}, "thinking"), text(step.reasoning_content)) : null,
        step.message ? text(step.message) : null, (step.tool_calls || []).map(call),
        (step.observation?.results || []).map((result) => h("div", { class: "observation" }, text(result.content ?? ""))));
    }));
  };

  const times = (trial) => {
    const parts = [["setup_s", "setup", "#94812a"], ["model_s", "model", "#3b6fd4"], ["tool_s", "tools", "#1795a8"], ["verify_s", "tests", "#2f9e6e"]];
    return h("div", {}, h("div", { class: "mix tall" }, parts.filter(([key]) => trial[key] > 0).map(([key, name, colour]) => h("div", { title: `${name} ${lego.duration(trial[key])}`, style: { background: colour, flex: String(trial[key]) } }))), lego.legend(parts.map(([key, name, colour]) => ({ name, colour, note: lego.duration(trial[key]) }))));
  };

  // Tokens as text, coloured by how likely they were; masked ones are pale. Hover tells the rest.
  const tokenView = async (run, index, box) => {
    const segment = Number(lego.state.segment || 0), from = Number(lego.state.tokens_from || 0);
    const found = await lego.ask("tokens", { run: run.id, i: String(index), segment: String(segment), from: String(from) });
    if (!found.segments.length) return lego.fill(box, lego.empty("No token was kept", "this trial ended before the policy said anything"));
    const about = found.segments[segment] || found.segments[0], { tokens } = found;
    const versions = [...new Set(about.versions.map((span) => span.version))];
    const info = h("div", { class: "token-info", "aria-live": "polite" }, "Point at a token.");
    const version = (at) => about.versions.find((span) => at >= span.start && at < span.end)?.version;
    const shown = h("div", { class: "tokens", tabIndex: 0, data: { points: tokens.ids.length } });
    tokens.ids.forEach((id, n) => {
      const position = tokens.from + n, response = position - tokens.prompt;
      if (response === 0) shown.append(h("span", { class: "edge" }, "response"));
      const raw = tokens.text ? tokens.text[n] : `${id} `;
      const logprob = tokens.logprobs[n];
      const kind = tokens.mask[n] ? (logprob === null ? "sampled" : logprob > -0.1 ? "sampled p4" : logprob > -0.7 ? "sampled p3" : logprob > -2 ? "sampled p2" : "sampled p1") : response < 0 ? "prompt" : "masked";
      const token = h("span", { class: "token " + kind }, lego.visible(raw.replace(/\n/g, "⏎")).replace(/^$/, "∅"));
      token.about = [`#${position}`, `id ${id}`, response < 0 ? "prompt" : tokens.mask[n] ? "sampled, trains" : "mask 0: context", logprob !== null ? `log-prob ${logprob} (p = ${Math.exp(logprob).toFixed(3)})` : null, response >= 0 && version(response) ? `weights ${version(response)}` : null].filter(Boolean).join(" · ");
      shown.append(token);
      if (raw.includes("\n")) shown.append(h("br"));
    });
    const point = (event) => { if (event.target.about) info.textContent = event.target.about; };
    shown.addEventListener("pointerover", point);
    shown.addEventListener("click", point);
    let at = -1;
    shown.addEventListener("keydown", (event) => {
      if (!["ArrowLeft", "ArrowRight"].includes(event.key)) return;
      event.preventDefault(); event.stopPropagation();
      const all = shown.querySelectorAll(".token");
      all[at]?.classList.remove("here");
      at = Math.min(all.length - 1, Math.max(0, at + (event.key === "ArrowRight" ? 1 : -1)));
      all[at].classList.add("here"); all[at].scrollIntoView({ block: "nearest" });
      info.textContent = all[at].about;
    });
    const end = tokens.from + tokens.ids.length;
    lego.fill(box, h("div", { class: "toolbar" }, found.segments.length > 1 ? h("div", { class: "segments", role: "group", "aria-label": "segment" }, found.segments.map((one, n) => h("button", { type: "button", "aria-pressed": String(n === segment), on: { click: () => lego.set({ segment: String(n), tokens_from: "" }) } }, (one.main ? "" : "side ") + "segment " + (n + 1)))) : null,
      h("span", { class: "note" }, `${about.prompt} prompt · ${about.response} response · ${about.trained} train` + (about.finish ? ` · ended by ${about.finish}` : "") + (versions.length > 1 ? ` · ${versions.length} versions of the weights` : versions[0] ? ` · weights ${versions[0]}` : "")),
      tokens.from > 0 ? h("button", { type: "button", class: "button small", on: { click: () => lego.set({ tokens_from: String(Math.max(0, tokens.from - 4000)) }) } }, "← earlier") : null, end < tokens.total ? h("button", { type: "button", class: "button small", on: { click: () => lego.set({ tokens_from: String(end) }) } }, `later → (${tokens.total - end} more)`) : null),
      lego.legend([{ name: "p > 0.9", colour: "var(--p4)" }, { name: "0.5–0.9", colour: "var(--p3)" }, { name: "0.14–0.5", colour: "var(--p2)" }, { name: "below", colour: "var(--p1)" }, { name: "not trained", colour: "var(--line)" }]), info, shown,
      found.text ? null : h("p", { class: "note" }, "The run's tokenizer is no longer where run.toml says: ids are shown."));
  };

  lego.panels.push({
    id: "trajectory", title: "Trajectory", key: "t", group: "Run",
    async render(root, { run }) {
      if (!run) return lego.add(root, lego.firstRun());
      const query = lego.trialQuery();
      const near = await lego.ask("trials", { run: run.id, ...query, limit: "2000" });
      if (!near.all) { root.dataset.points = 0; return lego.add(root, run.kind === "lego" ? lego.empty("No trial yet", "the first trials appear when their step's shard is written") : lego.empty("A log has no trials", "only the metrics of this run are known")); }
      const index = lego.state.i === undefined ? near.rows[0]?.i : Number(lego.state.i);
      if (index === undefined) return lego.add(root, lego.empty("Nothing fits", "no trial fits the filters of Episodes: take one off there"));
      const place = near.rows.findIndex((row) => row.i === index);
      const step = (by) => { const next = near.rows[place + by]; if (next) lego.set({ i: String(next.i), segment: "", tokens_from: "" }); };
      const found = await lego.ask("trial", { run: run.id, i: String(index) });
      const { trial } = found;
      const view = lego.state.view || "turns";
      const tab = (id, title) => h("button", { type: "button", role: "tab", "aria-selected": String(view === id), on: { click: () => lego.set({ view: id }) } }, title);
      const body = h("div", { class: "trial-body" });
      lego.add(root,
        h("div", { class: "trial-head" }, h("div", { class: "trial-name" }, h("h2", {}, trial.task), h("span", { class: "note mono" }, trial.name)),
          h("div", { class: "stepper" }, lego.button("left", "previous trial (←)", () => step(-1), { disabled: place <= 0 }), h("span", { class: "note" }, place < 0 ? "not among those filtered" : `${place + 1} of ${near.total.toLocaleString("en")}`), lego.button("right", "next trial (→)", () => step(1), { disabled: place < 0 || place >= near.rows.length - 1 }))),
        h("div", { class: "facts card" }, [["outcome", lego.outcomeChip(trial.outcome === "completed" ? (trial.reward >= 1 ? "solved" : "unsolved") : trial.outcome)], ["reward", lego.number(trial.reward)], ["step", `${trial.step}${trial.set === "val" ? ", validation" : ""}`], ["turns", trial.turns], ["tool calls", trial.tools], ["trained tokens", trial.trained.toLocaleString("en")], ["time", lego.duration(trial.total_s)], ["agent", trial.agent], trial.attempt ? ["attempt", trial.attempt + 1] : null, trial.dropped ? ["left out", lego.chip(trial.dropped, "warn")] : null, trial.flags.length ? ["evidence", trial.flags.map((flag) => lego.chip(flag, "bad"))] : null].filter(Boolean).map(([name, value]) => h("div", {}, h("span", {}, name), h("b", {}, value)))),
        found.group.length > 1 ? h("div", { class: "group-row" }, h("span", { class: "note" }, "same task, same step"), found.group.map((one) => h("button", { type: "button", class: "member" + (one.i === index ? " here" : ""), title: `${one.outcome}, reward ${lego.number(one.reward)}`, "aria-label": `trial with reward ${lego.number(one.reward)}`, style: { "--fill": one.reward === null ? "var(--line)" : one.reward >= 1 ? "var(--good)" : one.reward > 0 ? "var(--warn)" : "var(--bad)" }, on: { click: () => lego.set({ i: String(one.i), segment: "", tokens_from: "" }) } }))) : null,
        h("div", { class: "tabs", role: "tablist" }, tab("turns", "Turns"), tab("tokens", "Tokens"), tab("verifier", "Tests"), tab("files", "Files"), tab("result", "Result")), body);
      root.dataset.points = 1;
      if (found.missing || found.trouble) body.append(h("p", { class: "message" }, found.missing || found.trouble));
      if (view === "turns") body.append(found.trajectory ? turns(found.trajectory) : lego.empty("No transcript", "the trial ended before the agent said anything; see Tests and Result"), lego.section("Time", lego.duration(trial.total_s), times(trial)));
      else if (view === "tokens") await tokenView(run, index, body).catch((error) => body.append(lego.trouble(error)));
      else if (view === "verifier") body.append(...(found.verifier || []).map((file) => lego.section(file.name, null, file.text ? h("pre", { class: "text" }, lego.visible(file.text)) : h("p", { class: "note" }, "empty"))), ...(found.verifier?.length ? [] : [lego.empty("The tests wrote nothing", "the verifier never began, or its output is gone")]));
      else if (view === "result") body.append(found.result ? lego.section("result.json", null, h("pre", { class: "text" }, lego.visible(JSON.stringify(found.result, null, 2)))) : lego.empty("No result", "the trial's result.json is gone"));
      else {
        const shown = h("div", {});
        const open = async (file) => { const one = await lego.ask("file", { run: run.id, i: String(index), n: String(file.n) }); lego.fill(shown, lego.section(one.name, lego.bytes(one.size), h("pre", { class: "text" }, lego.visible(one.text)))); };
        body.append(found.files?.length ? lego.table([{ key: "name", title: "file", kind: "mono" }, { key: "size", title: "size", numeric: true, show: (row) => lego.bytes(row.size) }], found.files, { onPick: (file) => open(file).catch((error) => lego.fill(shown, lego.trouble(error))) }) : lego.empty("No file", "the trial's folder is gone"), shown, found.folder ? h("p", { class: "note" }, "in ", h("code", {}, found.folder)) : "");
      }
      const asked = JSON.stringify([lego.state.i, view, lego.state.segment, lego.state.tokens_from]);
      return Object.assign(() => { if (JSON.stringify([lego.state.i, lego.state.view || "turns", lego.state.segment, lego.state.tokens_from]) !== asked) lego.again(); }, { arrow: step });
    },
  });
}
