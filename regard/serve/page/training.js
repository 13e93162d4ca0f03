// How a run was trained: its losses and scores by step, as small curves.

import { askJson } from "./api.js";
import { make, number, table } from "./dom.js";

const WIDE = 300, HIGH = 130, LEFT = 44, LOW = 22;
const CURVES = { loss: "loss in training", rate: "learning rate" };

/** A number as short as it may be: 0.0005 is not 0.00. */
const brief = value => value === 0 || Math.abs(value) >= 0.1 ? number(value, 2) : String(+value.toPrecision(2));

/** One curve with its axes; the last value stands beside it. */
function curve(title, points) {
  const xs = points.map(point => point[0]), ys = points.map(point => point[1]);
  const [first, last] = [Math.min(...xs), Math.max(...xs)], [low, high] = [Math.min(...ys), Math.max(...ys)];
  const x = step => LEFT + (WIDE - LEFT - 6) * (step - first) / (last - first || 1);
  const y = value => 8 + (HIGH - LOW - 8) * (1 - (value - low) / (high - low || 1));
  const text = (value, place) => make("text", place, value);
  const told = `${title}: from ${brief(ys[0])} to ${brief(ys.at(-1))} at step ${last}`;
  return make("figure.curve", { title: told }, make("figcaption", {}, title, make("b", {}, ` ${brief(ys.at(-1))}`)),
    make("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": told },
      make("line.axis", { x1: LEFT, x2: WIDE - 6, y1: HIGH - LOW, y2: HIGH - LOW }),
      text(brief(high), { x: LEFT - 5, y: 12, "text-anchor": "end" }), text(brief(low), { x: LEFT - 5, y: HIGH - LOW, "text-anchor": "end" }),
      text(`${first}`, { x: LEFT, y: HIGH - 7 }), text(`step ${last}`, { x: WIDE - 6, y: HIGH - 7, "text-anchor": "end" }),
      make("path.run", { d: `M${points.map(([step, value]) => `${x(step).toFixed(1)} ${y(value).toFixed(1)}`).join("L")}` }),
      points.length < 60 ? points.map(([step, value]) => make("circle", { cx: x(step), cy: y(value), r: 1.8 })) : []));
}

/** All curves of a run into a box. */
export async function drawTraining(box, model) {
  const { steps, scored } = await askJson(`/training?model=${encodeURIComponent(model)}`);
  const series = (rows, name) => rows.filter(row => typeof row[name] === "number").map(row => [row.step, row[name]]);
  const scores = [...new Set(scored.flatMap(Object.keys))].filter(name => !["step", "seconds"].includes(name));
  const all = [...Object.entries(CURVES).map(([name, title]) => [title, series(steps, name)]),
    ...scores.map(name => [`${name} on validation data`, series(scored, name)])].filter(([, points]) => points.length > 1);
  if (!all.length) return box.replaceChildren(make("p.hint", {}, "This run’s folder keeps no record of its training."));
  box.replaceChildren(make("div.curves", {}, all.map(([title, points]) => curve(title, points))),
    scored.length ? make("details", {}, make("summary", {}, "the same as a table"), table(["step", ...scores],
      scored.map(row => make("tr", {}, make("th", { scope: "row" }, `${row.step}`), scores.map(name => make("td", {}, typeof row[name] === "number" ? number(row[name]) : ""))))))
      : "");
}
