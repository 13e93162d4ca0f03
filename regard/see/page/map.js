// All heads as a small map to pick from: a row is a layer, a column a head.

import { ACROSS, make, percent, rove } from "./dom.js";
import { bitmap, most, ramp } from "./colour.js";
import { inWords, kindsOf } from "./kinds.js";
import { picture } from "./tokens.js";

const SMALL = 48; // pixels a side: longer inputs show the largest weight of each block
const AT_ONCE = 3_000_000; // weights that are drawn before the page is shown; the rest follow

/** A head's weights, made small. */
function blocks(weights, columns, side) {
  const height = Math.min(side, weights.length), width = Math.min(side, columns);
  const found = Array.from({ length: height }, () => new Float32Array(width));
  for (let t = 0; t < weights.length; t++) {
    const row = weights[t], block = found[Math.floor(t * height / weights.length)];
    for (let s = 0; s < columns; s++) {
      const at = Math.floor(s * width / columns);
      if (row[s] > block[at]) block[at] = row[s];
    }
  }
  return found;
}

function thumbnail(look, head, words, side) {
  const { columns, weights } = picture(look, head, words);
  const small = blocks(weights, columns.length, side), high = most(small);
  return bitmap(small.length, small[0]?.length ?? 1, ramp(), (t, s) => Math.sqrt(small[t][s] / high));
}

/** Canvases that fill in: at once where that is quick, else one after the other. */
function fill(jobs, weights) {
  if (weights <= AT_ONCE) return jobs.forEach(job => job());
  const next = () => { const job = jobs.shift(); if (job) { job(); setTimeout(next); } };
  setTimeout(next);
}

const nameOf = (page, look, head) => {
  const { kind, share } = kindsOf(look, page.stack)[head] ?? {};
  const what = kind && kind !== "mixed" ? `: ${inWords(kind)}${kind === "broad" ? "" : `, ${percent(share)}`}` : "";
  return `layer ${look.layer + 1}, head ${head + 1}${what}`;
};

function buttons(page, side, kind, click) {
  const jobs = [];
  const items = page.stack.flatMap(look => look.weights.map((_, head) => {
    const chosen = look.layer === page.layer && page.heads.includes(head), name = nameOf(page, look, head);
    const button = make(`button.${kind}`, { type: "button", "aria-label": name, title: name, "aria-pressed": String(chosen),
      "data-key": `${kind} ${look.layer} ${head}`, "data-kind": kindsOf(look, page.stack)[head]?.kind, onclick: event => click(look, head, event) });
    jobs.push(() => button.prepend(thumbnail(look, head, page.words, side)));
    return button;
  }));
  fill(jobs, page.stack.reduce((sum, look) => sum + look.weights.length * look.rows.length * look.columns.length, 0));
  return items;
}

/** The map beside a drawing: picks one head or, with Ctrl or Shift, several; a layer's mean; the mean of all. */
export function headMap(page, { several, mean }) {
  const across = Math.max(...page.stack.map(look => look.weights.length));
  const pick = (look, head, event) => {
    let heads = [head];
    if (several && (event.ctrlKey || event.shiftKey || event.metaKey) && look.layer === page.layer) {
      const others = page.heads.filter(other => other !== "mean");
      heads = others.includes(head) ? others.filter(other => other !== head) : [...others, head].sort((one, two) => one - two);
    }
    page.change({ layer: look.layer, head: heads.join(",") || "mean" });
  };
  const items = buttons(page, SMALL, "thumb", pick);
  const rows = page.stack.map((look, at) => {
    const before = page.stack.slice(0, at).reduce((sum, other) => sum + other.weights.length, 0);
    const whole = mean ? make("button.layer", { type: "button", "data-key": `layer ${look.layer}`, title: `the mean of layer ${look.layer + 1}’s heads`,
      "aria-label": `layer ${look.layer + 1}: mean of its heads`, "aria-pressed": String(page.layer === look.layer && page.heads[0] === "mean"),
      onclick: () => page.change({ layer: look.layer, head: "mean" }) }, `${look.layer + 1}`) : make("span.layer", {}, `${look.layer + 1}`);
    return [whole, ...items.slice(before, before + look.weights.length), ...Array.from({ length: across - look.weights.length }, () => make("span"))];
  });
  const grid = make("div.map", { role: "group", "aria-label": "layers and heads", "--across": across }, rows.flat());
  rove(grid, items, { ...ACROSS, ArrowDown: across, ArrowUp: -across }, Math.max(0, items.findIndex(item => item.getAttribute("aria-pressed") === "true")));
  const all = mean && page.stack.length > 1 ? make("button.whole", { type: "button", "data-key": "layer mean", "aria-pressed": String(page.layer === "mean"),
    onclick: () => page.change({ layer: "mean", head: "mean" }) }, "all heads together") : null;
  return make("div.mapped", {}, make("div.axis", { "aria-hidden": "true" }, make("span", {}, "layer"), make("span", {}, "heads →")), grid, all,
    make("p.picked", { role: "status" }, said(page)));
}

/** What is picked, in words. */
function said(page) {
  if (page.layer === "mean") return "The mean of all heads in all layers.";
  if (page.heads[0] === "mean") return `The mean of the heads in layer ${page.layer + 1}.`;
  const [head, ...others] = page.heads;
  if (others.length) return `Layer ${page.layer + 1}, heads ${page.heads.map(one => one + 1).join(", ")}.`;
  const { kind, share } = kindsOf(page.look, page.stack)[head] ?? {};
  const what = !kind || kind === "mixed" ? "." : kind === "broad" ? " looks at everything alike." : ` looks at ${inWords(kind)}: ${percent(share)} of its attention.`;
  return `Layer ${page.layer + 1}, head ${head + 1}${what}`;
}

/** The same, large, each with its name. */
export function allView(page) {
  const across = Math.max(...page.stack.map(look => look.weights.length));
  const items = buttons(page, 96, "small", (look, head) => page.change({ view: "heads", layer: look.layer, head }));
  let at = 0;
  for (const look of page.stack) {
    look.weights.forEach((_, head) => {
      const kind = kindsOf(look, page.stack)[head]?.kind;
      items[at++].append(make("span", {}, `${look.layer + 1}.${head + 1}${kind && kind !== "mixed" ? ` ${kind}` : ""}`));
    });
  }
  const grid = make("div.grid", { "--across": across }, items);
  rove(grid, items, { ...ACROSS, ArrowDown: across, ArrowUp: -across });
  return make("div", {}, make("p.hint", {}, "A row is a layer, a column a head; each is coloured up to its own largest weight. A click opens one."),
    make("div.scroll", {}, grid));
}
