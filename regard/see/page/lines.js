// Lines from the words that look to the words that are looked at, beside the matrix of the same.

import { DOWN, make, percent, rem, rove } from "./dom.js";
import { weightsMatrix } from "./matrix.js";
import { between, quote, strongest, word } from "./tokens.js";

const LEAST = 0.01; // of a weight that is drawn as a line
const MANY = 200; // tokens, from which on only few lines are drawn
const DASHES = ["", "7 3", "2 3", "9 3 2 3"]; // a head is known by its dash too, not by colour alone

/** The strongest of all weights, and how many there are; a million are counted, not sorted. */
function strongestLines(shown, most) {
  const counts = new Uint32Array(1001), over = (least, visit) => shown.forEach((drawn, which) => drawn.weights.forEach((row, t) => {
    for (let s = 0; s < row.length; s++) if (row[s] >= least) visit(row[s], t, s, which);
  }));
  let all = 0, least = 1000;
  over(LEAST, weight => { counts[Math.min(1000, Math.floor(1000 * weight))]++; all++; });
  for (let sum = counts[1000]; least > 1000 * LEAST && sum < most;) sum += counts[--least];
  const lines = [];
  over(Math.max(LEAST, least / 1000), (...line) => lines.push(line));
  return [lines.sort((one, two) => two[0] - one[0]).slice(0, most), all];
}

/** The words of one side, as buttons. */
function side(page, tokens, names, role, title) {
  const items = tokens.map((token, at) => make("button.token", { type: "button", "data-side": role, "data-role": role,
    "data-at": at, "data-word": names[at] }, word(token)));
  const box = make(`div.side.${role === "row" ? "from" : "to"}.linked`, { role: "group", "aria-label": title }, items);
  return [items, box];
}

export function linesView(page) {
  const shown = page.heads.map(head => page.picture(head));
  const { rows, columns, first } = shown[0];
  const longest = Math.max(rows.length, columns.length), tall = Math.max(rem(27), innerHeight - rem(24));
  const high = Math.max(rem(1.85), Math.min(rem(3.2), tall / longest)); // of a word
  const height = longest * high;
  const many = longest > MANY, [drawn, all] = strongestLines(shown, many ? 1000 : 4000);
  const hue = which => page.heads[which] === "mean" || page.heads.length === 1 ? "c0" : `c${page.heads[which] % 8}`;
  const line = ([weight, t, s, which]) => {
    const [y1, y2] = [(t + 0.5) * high, (s + 0.5) * high];
    return make(`path.${hue(which)}`, { d: `M0 ${y1} C45 ${y1} 55 ${y2} 100 ${y2}`,
      "stroke-opacity": Math.min(1, 0.05 + 0.95 * weight).toFixed(3),
      "stroke-width": (0.8 + rem(0.28) * weight).toFixed(2), "stroke-dasharray": (shown.length > 1 && DASHES[which % DASHES.length]) || null });
  };
  const own = make("g.own");
  const lines = make("svg.lines", { viewBox: `0 0 100 ${height}`, preserveAspectRatio: "none", "aria-hidden": "true",
    "--height": `${height}px` }, make("g.every", {}, drawn.map(line)), own);
  const [from, to] = between(page.look, page.data.looks).split(" → ");
  const [left, leftBox] = side(page, rows, page.names.rows, "row", `${from}, which looks`);
  const [right, rightBox] = side(page, columns, page.names.columns, "column", `${to === "itself" ? from : to}, which is looked at`);

  page.link.listen(now => {
    lines.classList.toggle("quiet", now !== null);
    own.replaceChildren();
    if (now === null) return page.say();
    const looking = now.role === "row";
    const parts = shown.map((one, which) => {
      const weights = looking ? one.weights[now.at] : one.weights.map(row => row[now.at]);
      strongest(weights, MANY).forEach(other => {
        const weight = weights[other];
        if (weight >= 0.002) own.append(line([weight, looking ? now.at : other, looking ? other : now.at, which]));
      });
      const best = strongest(weights, 4).map(other => `${quote((looking ? columns : rows)[other])} ${percent(weights[other])}`);
      return (shown.length > 1 ? `head ${page.heads[which] + 1}: ` : "") + best.join(", ");
    });
    page.say(`${quote((looking ? rows : columns)[now.at])} ${looking ? "looks at" : "is looked at by"} ${parts.join("; ")}`);
  });
  leftBox.addEventListener("click", event => {
    const token = event.target.closest("button.token");
    if (!token) return;
    const at = page.link.pinned === +token.dataset.at ? null : +token.dataset.at;
    page.keep({ token: at === null ? undefined : first[at] });
    page.link.pin(at);
  });
  rove(leftBox, left, DOWN, Math.max(0, page.link.pinned ?? 0));
  rove(rightBox, right, DOWN);
  const wide = page.room > rem(36);
  const matrix = many ? null : weightsMatrix(page, shown[0], wide ? page.room * 0.52 : page.room);
  const note = drawn.length < all ? `Only the ${drawn.length} strongest of ${all} lines are drawn; a word’s own lines are all drawn when it is pointed at.` : "";
  return make(`div.both${wide && matrix ? ".wide" : ""}`, {},
    make("div", {}, make("div.sides.heads-on", { "aria-hidden": "true" }, make("span.from", {}, `${from} looks`), make("span"), make("span", {}, `at ${to === "itself" ? "itself" : `the ${to}`}`)),
      make("div.sides.linked", { "--high": `${high}px` }, leftBox, lines, rightBox), note ? make("p.hint", {}, note) : null),
    matrix);
}
