// Weights between the nodes of a graph, and along the steps of a history.

import { make, number } from "./dom.js";
import { CHOSEN } from "./colour.js";
import { full, picture, quote, rollout, strongest } from "./tokens.js";

// What is drawn on a graph: weights as lines between its nodes
export const onGraph = look => look.column_kind === "nodes";

/** One graph; of a chosen node the weights to all others, else those along every edge and how much each node is looked at. */
function mesh(page, weights, title, at, choose) {
  const { places, edges } = page.data.layout, side = 200, room = 14, size = places.length;
  const spot = node => places[node].map(value => room + value * (side - 2 * room));
  const line = (one, other, strength, kind) => {
    const [[x1, y1], [x2, y2]] = [spot(one), spot(other)];
    return make(`line.${kind}`, { x1, y1, x2, y2, "stroke-width": (0.6 + 5 * strength).toFixed(2), "stroke-opacity": Math.min(1, 0.25 + strength).toFixed(2) });
  };
  const got = node => at >= 0 ? weights[at][node] : weights.reduce((sum, row) => sum + row[node], 0) / weights.length;
  const all = Array.from({ length: size }, (_, node) => got(node)), high = Math.max(...all, 1e-9);
  const reached = at >= 0 ? strongest(all, 40).filter(node => node !== at && all[node] > 0.005).map(node => line(at, node, all[node], "look"))
    : edges.map(([one, other]) => [one, other, Math.max(weights[one][other], weights[other][one])])
      .filter(([, , weight]) => weight > 0.005).map(([one, other, weight]) => line(one, other, weight, "look"));
  const [best] = strongest(all, 1), names = page.look.rows;
  const told = at >= 0 ? `${title}: ${names[at]} looks most at ${names[best]} (${number(all[best])})` : `${title}: most looked at is ${names[best]}`;
  const nodes = places.map((_, node) => {
    const [cx, cy] = spot(node);
    return make(node === at ? "circle.node.on" : "circle.node", { cx, cy, r: (3 + 6 * Math.sqrt(all[node] / high)).toFixed(1),
      "fill-opacity": (0.15 + 0.85 * all[node] / high).toFixed(2), "data-word": page.names.rows[node], "data-role": "word", onclick: choose && (() => choose(node)) }, make("title", {}, `${names[node]} ${number(all[node])}`));
  });
  const named = size <= 40 ? places.map((_, node) => make("text", { x: spot(node)[0], y: spot(node)[1] + 2.7 }, names[node].split(" ")[0])) : [];
  return make("figure.panel.mesh", { title: told }, make("svg", { viewBox: `0 0 ${side} ${side}`, role: "img", "aria-label": told },
    edges.map(([one, other]) => line(one, other, 0, "edge")), reached, nodes, named), make("figcaption", {}, title));
}

export function graphView(page) {
  if (!page.look || !onGraph(page.look)) return "This attention does not look at nodes; choose another.";
  const { look } = page, at = page.token < page.data.layout.places.length ? page.token : -1;
  const shown = page.heads[0] === "mean" ? look.weights.map((_, head) => head) : page.heads;
  const choose = node => page.change({ token: node === at ? "" : node });
  const pick = make("select", { "data-key": "node", onchange: event => page.change({ token: event.target.value }) },
    make("option", { value: "" }, "all nodes"), look.rows.slice(0, page.data.layout.places.length).map((name, node) =>
      make("option", { value: node, selected: node === at }, name)));
  const whole = look.rows.length <= 400 ? rollout(page.stack) : null;
  return make("div", {}, make("p.hint", {}, at >= 0 ? `Where ${quote(look.rows[at])} looks in layer ${look.layer + 1}.` : `Who is looked at along which edges in layer ${look.layer + 1}; a click on a node shows where it looks.`),
    make("label.pick", {}, make("span", {}, "which node looks"), pick),
  make("div.panels", {}, mesh(page, picture(look, "mean", false).weights, "mean of heads", at, choose),
    ...(whole ? [mesh(page, whole, "rollout, all layers", at, choose)] : []),
    ...shown.map(head => mesh(page, picture(look, head, false).weights, `head ${head + 1}`, at, choose))));
}

// What is drawn along a history: for a decision, how much it looked at each part of each step
export const onHistory = look => look.column_kind === "history" && look.column_shape?.length === 2;

/** One line for each part of a step, steps from left to right. */
function strip(page, weights, title) {
  const { look } = page, [steps, parts] = look.column_shape, most = full(weights);
  const what = ["wished", "seen", "done"];
  return Array.from({ length: parts }, (_, part) => make("tr", {},
    part === 0 ? make("th", { scope: "rowgroup", rowspan: parts }, title) : null, make("td.soft", {}, what[part] ?? ""),
    Array.from({ length: steps }, (_, step) => {
      const at = step * parts + part, weight = weights[at];
      const cell = make("td.cell", { title: `${look.columns[at]}: ${number(weight)}` }, weight >= 0.1 ? number(weight, 2) : "");
      cell.style.backgroundColor = `rgba(${CHOSEN}, ${(0.9 * weight / most).toFixed(3)})`;
      return cell;
    })));
}

export function historyView(page) {
  if (!page.look || !onHistory(page.look)) return "This attention does not look at a history; choose another.";
  const { look } = page, [steps, parts] = look.column_shape, last = (steps - 1) * parts + 1;
  const at = page.token >= 0 && page.token < look.rows.length ? page.token : last; // a decision stands at what is seen
  const shown = page.heads[0] === "mean" ? look.weights.map((_, head) => head) : page.heads;
  const pick = make("select", { "data-key": "decision", onchange: event => page.change({ token: event.target.value }) },
    Array.from({ length: steps }, (_, step) => step * parts + 1).map(place => make("option", { value: place, selected: place === at }, look.rows[place])));
  const whole = look.rows.length <= 400 ? rollout(page.stack) : null;
  const names = Array.from({ length: steps }, (_, step) => look.rows[step * parts + 1].split(" ")[0]);
  return make("div", {}, make("p.hint", {}, `Which past steps the decision at ${quote(look.rows[at])} looked at in layer ${look.layer + 1}: what was wished for, seen and done.`),
    make("label.pick", {}, make("span", {}, "which decision"), pick),
  make("div.scroll", {}, make("table.along", {}, make("thead", {}, make("tr", {}, make("th", { colspan: 2 }, "step"), names.map(name => make("th", { scope: "col" }, name)))),
    make("tbody", {}, strip(page, Array.from(picture(look, "mean", false).weights[at]), "mean of heads")),
    whole ? make("tbody", {}, strip(page, whole[at], "rollout, all layers")) : null,
    shown.map(head => make("tbody", {}, strip(page, Array.from(picture(look, head, false).weights[at]), `head ${head + 1}`))))));
}
