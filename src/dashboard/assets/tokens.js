// Tokens and importance: how likely sampled tokens were, how old their weights, and what engine and trainer disagree on.
"use strict";
{
  const { h } = lego;
  const CHARTS = ["training/rollout_actor_probs_pearson_corr", "training/rollout_probs_diff_mean", "rollout_corr/is_mean", "rollout_corr/is_max", "rollout_corr/eff_sample_size", "rollout_corr/kl", "rollout_corr/k3_kl", "actor/ratio/max", "actor/pg_clipfrac", "capture/delivered_fraction", "capture/rewrites", "capture/segments", "capture/discarded", "training/trained_tokens", "rollout/sampled_tokens"];
  lego.panels.push({
    id: "tokens", title: "Tokens & importance", key: "k", group: "Detail",
    async render(root, { run, runs }) {
      if (!run) return lego.add(root, lego.firstRun());
      const [detail, spread] = await Promise.all([lego.ask("run", { run: run.id }), lego.ask("spread", { run: run.id })]);
      const bar = lego.chartTools({});
      const about = new Map(detail.keys.map((one) => [one.key, one]));
      const shown = CHARTS.filter((key) => about.has(key));
      const cards = shown.map((key) => new lego.ChartCard(key, runs, { about: about.get(key) }));
      const probs = h("div", { class: "chart-body" }), ages = h("div", { class: "chart-body" });
      lego.add(root, spread.tokens ? h("div", { class: "columns" },
        lego.section("Likelihood of sampled tokens", `${spread.tokens.toLocaleString("en")} tokens, steps ${spread.steps?.join("–")}; −log p, nats`, probs),
        lego.section("Age of their weights", "updates behind the newest of their step", ages)) : null,
        shown.length ? [bar, h("div", { class: "charts" }, cards.map((card) => card.box))] : lego.empty("Nothing about tokens", "this run has written no log-prob comparison and no capture figures"));
      root.dataset.points = spread.tokens + shown.length;
      if (spread.tokens) {
        new lego.Bars(probs, { height: 190, label: "log-probs of sampled tokens" }).set(spread.logprobs.map((count, n) => ({ label: (n * spread.bin).toFixed(1), title: n === spread.logprobs.length - 1 ? `${(n * spread.bin).toFixed(2)} and more` : `${(n * spread.bin).toFixed(2)}–${((n + 1) * spread.bin).toFixed(2)}`, parts: { tokens: count } })), [{ name: "tokens", colour: lego.colour(run.id) }], false);
        new lego.Bars(ages, { height: 190, label: "age of weights" }).set(spread.ages.map(([age, count]) => ({ label: age, title: lego.count(age, "update") + " old", parts: { tokens: count } })), [{ name: "tokens", colour: lego.colour(run.id) }], false);
      }
      return Object.assign(lego.cardsRefresh(() => cards, bar), { destroy: () => cards.forEach((card) => card.destroy()) });
    },
  });
}
