// Weights on what they are of: the patches of a picture, the seconds of a sound.

import { make, number } from "./dom.js";
import { CHOSEN } from "./colour.js";
import { full, picture, quote, rollout, strongest, word } from "./tokens.js";

// What is drawn on a picture: the weights of a row on the patches that they are of
export const onPicture = look => look.column_kind === "patches" && look.column_shape?.length === 2;

/** One picture with weights over it. */
function panel(page, weights, title, name) {
  const [tall, wide] = page.look.column_shape, most = full(weights);
  const over = make("canvas", { width: wide, height: tall, "aria-hidden": "true" });
  const draw = over.getContext("2d");
  weights.forEach((weight, at) => {
    draw.fillStyle = `rgba(${CHOSEN}, ${(0.85 * weight / most).toFixed(3)})`;
    draw.fillRect(at % wide, Math.floor(at / wide), 1, 1);
  });
  const [best] = strongest(weights, 1);
  const told = `${title}: most at row ${Math.floor(best / wide) + 1}, column ${best % wide + 1} (${number(weights[best])})`;
  return make("figure.panel.linked", { title: told, "data-word": name, "data-role": name && "row" }, make("div.seen", {}, make("img", { src: page.data.picture, alt: told }), over),
    make("figcaption", {}, title));
}

/** Where looks went one after the other, numbered. */
function path(page, rows) {
  const [tall, wide] = page.look.column_shape;
  const places = rows.map(row => { const [at] = strongest(row, 1); return [(at % wide) + 0.5, Math.floor(at / wide) + 0.5]; });
  const one = make("svg.path", { viewBox: `0 0 ${wide} ${tall}`, "aria-hidden": "true" },
    make("path", { d: `M${places.map(place => place.join(" ")).join("L")}` }),
    places.map(([x, y], at) => make("text", { x, y: y + 0.12 }, String(at + 1))));
  return make("figure.panel", {}, make("div.seen", {}, make("img", { src: page.data.picture, alt: "where it looked, one after the other" }), one),
    make("figcaption", {}, "path"));
}

export function pictureView(page) {
  if (!page.look || !onPicture(page.look)) return "This attention does not look at the picture; choose another.";
  const look = page.look, [tall, wide] = look.column_shape, before = look.columns.length - tall * wide;
  const patches = row => Array.from(row).slice(before);
  const many = look.weights.map((_, head) => head), shown = page.heads[0] === "mean" ? many : page.heads;
  if (look.row_kind !== "patches") {
    const { rows, weights } = page.picture(page.heads[0]);
    const each = rows.map((name, t) => panel(page, patches(weights[t]), word(name), page.names.rows[t]));
    const first = look.row_kind === "steps" ? [path(page, weights.map(patches))] : [];
    return make("div", {}, make("p.hint", {}, "One picture for each word or step: where it looked then."), make("div.panels", {}, first, each));
  }
  // Patches look at patches: what speaks for the picture, or the patch that was clicked.
  const speaks = before ? 0 : Math.floor(tall / 2) * wide + Math.floor(wide / 2); // or, where none does, the middle
  const at = page.token >= 0 && page.token < look.rows.length ? page.token : speaks;
  const whole = look.rows.length * look.columns.length <= 400 * 400 ? rollout(page.stack) : null;
  const items = [make("button.panel", { type: "button", "data-key": "where", onclick: event => {
    const box = event.currentTarget.querySelector("img").getBoundingClientRect();
    const place = (value, size) => Math.max(0, Math.min(size - 1, Math.floor(value * size)));
    const row = place((event.clientY - box.top) / box.height, tall), column = place((event.clientX - box.left) / box.width, wide);
    page.change({ token: event.detail ? before + row * wide + column : "" });
  } }, panel(page, look.columns.map((_, s) => s === at ? 1 : 0).slice(before), at < before ? look.rows[at] : `patch ${look.rows[at]}`)),
  ...(whole ? [panel(page, patches(whole[at]), "rollout, all layers")] : []),
  ...shown.map(head => panel(page, patches(picture(look, head, false).weights[at]), `head ${head + 1}`))];
  return make("div", {}, make("p.hint", {}, `Where ${at < before ? quote(look.rows[at]) : `the patch in row and column ${look.rows[at]}`} looks in layer ${look.layer + 1}. A click on the first picture chooses a patch.`), make("div.panels", {}, items));
}

// What is drawn on a sound: a row of weights for each word below the spectrogram
export const onSound = look => look.column_kind === "frames" && look.row_kind !== "frames";

export function soundView(page) {
  if (!page.look || !onSound(page.look)) return "This attention does not look at the sound from words; choose another.";
  const { rows, columns, weights } = page.picture(page.heads[0]);
  const lines = rows.map((name, t) => {
    const most = full(weights[t]), over = make("canvas", { width: columns.length, height: 1, "aria-hidden": "true" });
    const draw = over.getContext("2d");
    weights[t].forEach((weight, s) => { draw.fillStyle = `rgba(${CHOSEN}, ${(weight / most).toFixed(3)})`; draw.fillRect(s, 0, 1, 1); });
    const [best] = strongest(weights[t], 1), told = `${word(name)}: most at ${columns[best]} (${number(weights[t][best])})`;
    return make("tr.linked", { title: told, "data-word": page.names.rows[t], "data-role": "row" }, make("th", { scope: "row" }, word(name)), make("td", {}, over), make("td.soft", {}, columns[best]));
  });
  const shown = make("img", { src: page.data.picture, alt: `the spectrogram, up to ${columns.at(-1)}; high sounds above` });
  return make("div", {}, make("p.hint", {}, "Time goes to the right. For each word, where in the sound it looked, strongest where it looked most; beside it that second."),
    make("table.heard", {}, make("tr", {}, make("th", {}), make("td", {}, shown), make("td", {})), lines,
      make("tr.soft", {}, make("th", {}), make("td.times", {}, make("span", {}, "0 s"), make("span", {}, columns.at(-1))), make("td", {}))));
}
