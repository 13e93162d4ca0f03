// Weights as a matrix: a row for each word that looks, a column for each that is looked at.

import { make, number, percent, rem } from "./dom.js";
import { bitmap, legend, most, ramp } from "./colour.js";
import { quote, word } from "./tokens.js";

const trim = (text, most) => text.length > most ? text.slice(0, most - 1) + "…" : text;

/** How large cells are, and how much room names need, within so many pixels across. */
function measure(rows, columns, room) {
  const letter = rem(0.5), most = 16;
  const margin = names => rem(0.7) + letter * Math.max(3, ...names.map(name => trim(name, most).length));
  const left = margin(rows), top = margin(columns);
  const fits = Math.floor((room - left - 4) / columns.length), high = Math.floor(rem(40) / rows.length);
  const cell = Math.max(2, Math.min(rem(2.7), fits, Math.max(rem(0.3), high)));
  return { cell, left, top, most, every: Math.ceil(rem(0.95) / cell),
    width: left + cell * columns.length + 4, height: top + cell * rows.length + 4 };
}

/**
 * A labelled matrix on a canvas; the mouse or the arrow keys move over its cells, `tell` says what is
 * there. What is pointed at elsewhere is framed here, and the other way round.
 */
export function heatmap(page, { rows, columns, label, colours, share, tell, start = 0, moved = () => {}, link, room }) {
  const { cell, left, top, most: longest, every, width, height } = measure(rows, columns, room ?? rem(48));
  const cells = bitmap(rows.length, columns.length, colours, share);
  const sharp = cell < 6 ? 1 : Math.min(2, globalThis.devicePixelRatio || 1); // browsers bound a canvas
  const canvas = make("canvas.heatmap.linked", { width: Math.round(width * sharp), height: Math.round(height * sharp),
    tabindex: 0, role: "application", "aria-label": `${label}; arrow keys move over the cells`, "data-key": "heatmap",
    "--width": `${width}px`, "--height": `${height}px` });
  const pen = canvas.getContext("2d");
  const { color: ink, caretColor: mark, fontFamily } = getComputedStyle(page.container); // the caret has the mark's colour
  let [t, s] = [start, 0];

  function paint(row, column) {
    pen.setTransform(sharp, 0, 0, sharp, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(cells, left, top, cell * columns.length, cell * rows.length);
    if (cell >= 12) grid();
    pen.fillStyle = ink;
    pen.textBaseline = "middle";
    // Where cells are lower than letters, every so many are named, and those that are pointed at.
    const named = (at, chosen) => at === chosen || (at % every === 0 && !(chosen >= 0 && every > 1 && Math.abs(at - chosen) < every));
    const name = (text, on) => {
      pen.font = `${on ? "600 " : ""}${rem(0.85)}px ${fontFamily}`;
      pen.fillText(trim(text, longest), 0, 0);
    };
    pen.textAlign = "right";
    rows.forEach((text, at) => {
      if (!named(at, row)) return;
      pen.setTransform(sharp, 0, 0, sharp, (left - rem(0.4)) * sharp, (top + cell * (at + 0.5)) * sharp);
      name(text, at === row);
    });
    pen.textAlign = "left";
    columns.forEach((text, at) => {
      if (!named(at, column)) return;
      pen.setTransform(0, -sharp, sharp, 0, (left + cell * (at + 0.5)) * sharp, (top - rem(0.4)) * sharp);
      name(text, at === column);
    });
    pen.setTransform(sharp, 0, 0, sharp, 0, 0);
    pen.strokeStyle = mark;
    pen.lineWidth = Math.max(1.5, rem(0.12));
    if (row >= 0) pen.strokeRect(left, top + cell * row, cell * columns.length, cell);
    if (column >= 0) pen.strokeRect(left + cell * column, top, cell, cell * rows.length);
  }
  function grid() {
    pen.strokeStyle = ink;
    pen.globalAlpha = 0.08;
    pen.lineWidth = 1;
    pen.beginPath();
    for (let at = 0; at <= columns.length; at++) { pen.moveTo(left + cell * at, top); pen.lineTo(left + cell * at, top + cell * rows.length); }
    for (let at = 0; at <= rows.length; at++) { pen.moveTo(left, top + cell * at); pen.lineTo(left + cell * columns.length, top + cell * at); }
    pen.stroke();
    pen.globalAlpha = 1;
  }
  const rest = () => { if (link) link.rest(); else paint(-1, -1); };
  function go(row, column) {
    if (!(row >= 0 && row < rows.length && column >= 0 && column < columns.length)) return rest();
    [t, s] = [row, column];
    link?.light("row", t);
    paint(t, s);
    page.say(tell(t, s));
  }
  link?.listen(now => paint(now?.role === "row" ? now.at : -1, now?.role === "column" ? now.at : -1));
  canvas.addEventListener("mousemove", event => {
    const shown = canvas.clientWidth / width; // a print or a phone may show it smaller
    go(Math.floor((event.offsetY / shown - top) / cell), Math.floor((event.offsetX / shown - left) / cell));
  });
  canvas.addEventListener("mouseleave", rest);
  canvas.addEventListener("click", () => moved(t));
  canvas.addEventListener("focus", () => { if (canvas.matches(":focus-visible")) go(t, s); });
  canvas.addEventListener("blur", rest);
  canvas.addEventListener("keydown", event => {
    const to = { ArrowDown: [t + 1, s], ArrowUp: [t - 1, s], ArrowRight: [t, s + 1], ArrowLeft: [t, s - 1],
      Home: [t, 0], End: [t, columns.length - 1] }[event.key];
    if (!to || !(to[0] >= 0 && to[0] < rows.length && to[1] >= 0 && to[1] < columns.length)) return;
    event.preventDefault();
    go(...to);
    moved(t);
  });
  paint(-1, -1);
  return make("div.scroll", {}, canvas);
}

/** The matrix of what is on show; darker is more. */
export function weightsMatrix(page, drawn, room) {
  const { rows, columns, weights, first } = drawn, high = most(weights);
  return make("div.matrix", {},
    heatmap(page, { rows: rows.map(word), columns: columns.map(word), label: "weights, a row for each word that looks", colours: ramp(),
      share: (t, s) => Math.sqrt(weights[t][s] / high), start: Math.max(0, first.findLastIndex(at => at <= page.token)),
      tell: (t, s) => `${quote(rows[t])} looks at ${quote(columns[s])}: ${number(weights[t][s])}, ${percent(weights[t][s])} of its attention`,
      moved: t => page.keep({ token: first[t] }), link: page.link, room }),
    legend(ramp(), ["0", `${number(high, 2)} the most`]));
}

export function matrixView(page) {
  return weightsMatrix(page, page.picture(page.heads[0]), page.room);
}
