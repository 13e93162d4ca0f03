// Numbers of heads: hops over a story, means and likenesses, and what each head is for.

import { bar, make, number, table, tick } from "./dom.js";
import { legend, opposed } from "./colour.js";
import { heatmap } from "./matrix.js";
import { between, looksAtItself, picture, special, word } from "./tokens.js";

export function hopsView(page) {
  const hops = page.data.looks.filter(look => look.kind === "hops");
  const rows = hops.map(look => picture(look, "mean", false).weights[0]);
  return make("div", {}, make("p.hint", {}, `Question: ${hops[0].rows.map(word).join(" ")} ★ marks a supporting fact.`),
    table(["sentence", ...hops.map(look => `hop ${look.layer + 1}`)], hops[0].columns.map((sentence, s) =>
      make(sentence.startsWith("★") ? "tr.best" : "tr", {}, make("th", { scope: "row" }, word(sentence)),
        rows.map(weights => bar(weights[s], number(weights[s]))))), ".wide"));
}

/** Means over the rows of one head. */
function measure(weights, specials, same) {
  let entropy = 0, distance = 0, share = 0;
  weights.forEach((row, t) => row.forEach((weight, s) => {
    if (!(weight > 0)) return;
    entropy -= weight * Math.log2(weight);
    distance += weight * Math.abs(t - s);
    if (specials[s]) share += weight;
  }));
  const rows = weights.length || 1;
  return { entropy: entropy / rows, distance: same ? distance / rows : null, share: specials.includes(true) ? share / rows : null };
}

/** The correlation of every two heads, by at most 4,096 of their weights. */
function similarity(heads) {
  const size = heads[0].length * heads[0][0].length, step = Math.ceil(size / 4096);
  const units = heads.map(weights => {
    const wide = weights[0].length, taken = [];
    for (let at = 0; at < size; at += step) taken.push(weights[Math.floor(at / wide)][at % wide]);
    const mean = taken.reduce((sum, one) => sum + one, 0) / taken.length;
    const length = Math.hypot(...taken.map(one => one - mean)) || 1;
    return taken.map(one => (one - mean) / length);
  });
  return units.map(one => units.map(two => one.reduce((sum, value, at) => sum + value * two[at], 0)));
}

/** What is measured of a head; a distance is none where two texts look at each other. */
const MEASURES = { entropy: "entropy (bits)", distance: "distance (tokens)", share: "on special tokens" };

export function statisticsView(page) {
  const all = page.stack.flatMap(look => {
    const { rows, columns } = picture(look, 0, page.words), specials = columns.map(special), same = looksAtItself({ rows, columns });
    return look.weights.map((_, head) => {
      const { weights } = picture(look, head, page.words);
      return { look, head, weights, ...measure(weights, specials, same) };
    });
  });
  const high = key => Math.max(1e-9, ...all.map(one => one[key] ?? 0));
  const tops = { entropy: high("entropy"), distance: high("distance"), share: 1 };
  const told = Object.entries(MEASURES).filter(([key]) => all.some(one => one[key] !== null));
  const cell = (one, key) => one[key] === null ? make("td", {}, "–") : bar(one[key] / tops[key], number(one[key]));
  const alike = all.filter(one => one.weights.length === all[0].weights.length && one.weights[0].length === all[0].weights[0].length);
  const same = similarity(alike.map(one => one.weights));
  const names = alike.map(one => `${one.look.layer + 1}.${one.head + 1}`);
  return make("div", {}, make("p.hint", {}, "Means over the rows." + (told.some(([key]) => key === "distance") ? " Distance counts the tokens between." : "")),
    table(["layer", "head", ...told.map(([, title]) => title)], all.map(one => make("tr", {},
      make("th", { scope: "row" }, `${one.look.layer + 1}`), make("th", { scope: "row" }, `${one.head + 1}`),
      told.map(([key]) => cell(one, key))))),
    make("h3", {}, "How alike the heads are"), make("p.hint", {}, "Correlation of the weights; names are layer.head."),
    heatmap(page, { rows: names, columns: names, label: "correlation of heads", colours: opposed(), share: (t, s) => (same[t][s] + 1) / 2,
      tell: (t, s) => `heads ${names[t]} and ${names[s]}: correlation ${number(same[t][s], 2)}` }),
    legend(opposed(), ["−1", "+1"]));
}

export function ablationView(page) {
  if (!page.data.ablation) {
    return make("div", {}, make("p.hint", {}, "Each head is switched off in turn, and what the answer then loses is told. That takes a pass for every head."),
      make("button.first", { type: "button", id: "ablate", onclick: page.ablate }, "Switch each head off"));
  }
  const { metric, whole, heads } = page.data.ablation;
  const sorted = page.state.sort !== "0";
  const order = sorted ? heads.toSorted((one, two) => Math.abs(two.value - whole) - Math.abs(one.value - whole)) : heads;
  const low = Math.min(0, whole, ...heads.map(one => one.value)), high = Math.max(0, whole, ...heads.map(one => one.value));
  const place = value => `${(100 * (value - low) / (high - low || 1)).toFixed(1)}%`;
  const gauge = value => make("td", {}, make("div.gauge", { "--from": place(Math.min(0, value)), "--to": place(Math.max(0, value)), "--whole": place(whole) }));
  const told = heads.some(one => one.output !== undefined);
  const same = output => output === page.data.output ? "the same" : output ?? "";
  const row = (name, value, output, kind = "tr") => make(kind, {}, make("th", { scope: "row" }, name), make("td", {}, number(value)),
    make("td", {}, kind === "tr" ? (value > whole ? "+" : value < whole ? "−" : "") + number(Math.abs(value - whole)) : ""),
    gauge(value), told ? make(output === "the same" ? "td.text.soft" : "td.text", {}, output ?? "") : null);
  const name = one => {
    const look = page.data.looks.find(other => other.name === one.name);
    return look ? `${between(look, page.data.looks)}, layer ${look.layer + 1}, head ${one.head + 1}` : `${one.name}, head ${one.head + 1}`;
  };
  return make("div", {}, make("p.hint", {}, `${metric} with one head switched off at a time; the upright mark is the whole model's ${number(whole)}.`),
    tick(page, "sort", "largest change first", sorted, on => on ? undefined : "0"),
    table(["switched off", metric, "change", "", ...(told ? ["answer"] : [])], [row("nothing (the whole)", whole, page.data.output, "tr.best"),
      ...order.map(one => row(name(one), one.value, same(one.output)))], ".wide.off"));
}
