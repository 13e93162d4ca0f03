// What a model attended to, drawn from one plain object; the server's page and the standalone file
// both draw with this. Text from a model only ever becomes text nodes, so that it cannot be markup.

const TITLES = {
  picture: "On the picture", sound: "On the sound", graph: "On the graph", history: "Along the history", heads: "Heads", all: "All heads", matrix: "Matrix", step: "Step by step", generation: "Generation",
  hops: "Hops", statistics: "Statistics", ablation: "Ablation",
};
const SVG = new Set(["svg", "g", "line", "path", "rect", "circle", "text", "title"]);
const LIGHT = ["#fbfaf7", "#cfdfee", "#86b4d8", "#3f86bf", "#175a98", "#08294f"];
const DARK = ["#181c22", "#16344f", "#1c5b8e", "#3a90c8", "#8cc6f0", "#f0f8ff"];
const BOTH = ["#0b4f9c", "#6fa6d6", "#f3f1ea", "#eba24f", "#a85400"]; // blue, none, orange
const DASHES = ["", "7 3", "2 3", "9 3 2 3"]; // a head is known by its dash too, not by colour alone
const MANY = 200; // tokens, from which on only few lines are drawn

/** The state in a URL's hash, and back. */
export const stateOf = hash => Object.fromEntries(new URLSearchParams(hash.replace(/^#/, "")));
export const hashOf = state =>
  "#" + new URLSearchParams(Object.entries(state).filter(([, value]) => value !== undefined && value !== ""));

/** An element: "tag.class", attributes, --variables and onevents, children. */
export function make(name, given = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  const one = SVG.has(tag)
    ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  if (classes.length) one.classList.add(...classes);
  for (const [key, value] of Object.entries(given)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("--")) one.style.setProperty(key, value);
    else if (key.startsWith("on")) one.addEventListener(key.slice(2), value);
    else one.setAttribute(key, value === true ? "" : value);
  }
  one.append(...children.flat().filter(child => child !== undefined && child !== null && child !== ""));
  return one;
}

/** One tab stop for many items: arrow keys go between them. */
export function rove(box, items, steps, start = 0) {
  items.forEach((item, at) => { item.tabIndex = at === start ? 0 : -1; });
  box.addEventListener("keydown", event => {
    const at = items.indexOf(document.activeElement);
    const ends = { Home: 0, End: items.length - 1 };
    const next = event.key in steps ? at + steps[event.key] : ends[event.key];
    if (at < 0 || next === undefined || !items[next]) return;
    event.preventDefault();
    items[at].tabIndex = -1;
    items[next].tabIndex = 0;
    items[next].focus();
  });
}
const ACROSS = { ArrowRight: 1, ArrowLeft: -1 };
const DOWN = { ArrowDown: 1, ArrowUp: -1 };

// Tokens and words

const special = token => /^(<[^<>\s]+>|\[[A-Z]+\])$/.test(token) && !token.startsWith("<0x");
export const word = token => token.replace(/[▁Ġ]/g, " ").replace(/[Ċ\n]/g, "⏎").trim() || "␣";
const quote = token => `“${word(token)}”`;
const number = (value, digits = 3) => value && Math.abs(value) < 0.5 * 10 ** -digits
  ? value.toExponential(1) : value.toFixed(digits);
const short = value => String(+value.toFixed(2)); // 112, not 112.00
const sameTokens = look =>
  look.rows.length === look.columns.length && look.rows.every((token, at) => token === look.columns[at]);
const strongest = (weights, many) => Array.from(weights.keys())
  .sort((one, two) => weights[two] - weights[one]).slice(0, many);

/** What rows and columns can stand for: whether pieces of one can be joined. */
const AXES = {
  words: { joins: true },
  sentences: { joins: false },
  patches: { joins: false },
  steps: { joins: false },
  nodes: { joins: false },
  history: { joins: false },
};
const joins = kind => AXES[kind ?? "words"]?.joins ?? false;

/** The places of the pieces of each word. */
function wordsOf(tokens, kind) {
  if (!joins(kind)) return tokens.map((_, at) => [at]);
  const marked = tokens.some(token => /^[▁Ġ]/.test(token));
  const found = [];
  tokens.forEach((token, at) => {
    const before = tokens[at - 1];
    const goesOn = at > 0 && !special(token) && !special(before) && !before.endsWith("Ċ")
      && (token.startsWith("##") || (marked && !/^[▁ĠĊ]/.test(token)));
    if (goesOn) found.at(-1).push(at);
    else found.push([at]);
  });
  return found;
}

const spell = (tokens, pieces) =>
  pieces.map((at, first) => first ? tokens[at].replace(/^##/, "") : tokens[at]).join("");

function average(all) {
  return all[0].map((row, t) => {
    const sum = new Float32Array(row.length);
    for (const one of all) for (let s = 0; s < sum.length; s++) sum[s] += one[t][s] / all.length;
    return sum;
  });
}

// What a word gets is the sum over its pieces; what it gives is their mean, so that rows still sum to 1.
function join(weights, rows, columns) {
  return rows.map(group => {
    const sum = new Float32Array(columns.length);
    for (const t of group) {
      columns.forEach((pieces, s) => { for (const at of pieces) sum[s] += weights[t][at] / group.length; });
    }
    return sum;
  });
}

const kept = new WeakMap(); // a look's pictures, since means and joins of long inputs take a while

/** Rows, columns and weights of one head, or of the mean of all; `first` is each row's first piece. */
function picture(look, head, words) {
  if (!kept.has(look)) kept.set(look, new Map());
  const known = kept.get(look);
  const key = `${head} ${words}`;
  if (!known.has(key)) {
    const weights = head === "mean" ? average(look.weights) : look.weights[head];
    const rows = wordsOf(look.rows, look.row_kind), columns = wordsOf(look.columns, look.column_kind);
    known.set(key, words
      ? { rows: rows.map(pieces => spell(look.rows, pieces)), first: rows.map(pieces => pieces[0]),
          columns: columns.map(pieces => spell(look.columns, pieces)), weights: join(weights, rows, columns) }
      : { rows: look.rows, first: look.rows.map((_, at) => at), columns: look.columns, weights });
  }
  return known.get(key);
}

/** The mean over the heads of all layers that have the first one's shape. */
function overLayers(stack, words) {
  const all = stack.map(look => picture(look, "mean", words)).filter((one, _, [first]) =>
    one.rows.length === first.rows.length && one.columns.length === first.columns.length);
  return { ...all[0], weights: average(all.map(one => one.weights)) };
}

// Colours

const dark = () => matchMedia("(prefers-color-scheme: dark)").matches;

/** 256 colours between the stops, as rgb bytes. */
function colours(stops) {
  const rgb = stops.map(stop => [1, 3, 5].map(at => parseInt(stop.slice(at, at + 2), 16)));
  return Array.from({ length: 256 }, (_, at) => {
    const place = at / 255 * (rgb.length - 1), low = Math.min(Math.floor(place), rgb.length - 2);
    return rgb[low].map((byte, part) => Math.round(byte + (rgb[low + 1][part] - byte) * (place - low)));
  });
}

/** A canvas with one pixel a cell; `shade` gives 0 to 1. */
function bitmap(height, width, stops, shade) {
  const canvas = make("canvas", { width, height });
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(width, height);
  const table = colours(stops);
  for (let t = 0, at = 0; t < height; t++) {
    for (let s = 0; s < width; s++, at += 4) {
      const colour = table[Math.max(0, Math.min(255, Math.round(shade(t, s) * 255)))];
      image.data.set(colour, at);
      image.data[at + 3] = 255;
    }
  }
  pen.putImageData(image, 0, 0);
  return canvas;
}

function most(weights) {
  let high = 1e-9;
  for (const row of weights) for (const weight of row) if (weight > high) high = weight;
  return high;
}

const ramp = () => dark() ? DARK : LIGHT;

function legend(stops, labels) {
  const strip = bitmap(1, 64, stops, (_, s) => s / 63);
  strip.setAttribute("aria-hidden", "true");
  return make("p.legend", {}, make("span", {}, labels[0]), strip, make("span", {}, labels[1]));
}

/** A labelled matrix on a canvas; the mouse or the arrow keys move over its cells, `tell` says what is there. */
function heatmap(page, { rows, columns, label, stops, shade, tell, start = 0, moved = () => {} }) {
  const longest = Math.max(rows.length, columns.length);
  const cell = Math.max(2, Math.min(32, Math.floor(720 / longest)));
  const every = Math.ceil(13 / cell); // labels would lie on each other
  const cells = bitmap(rows.length, columns.length, stops, shade);
  const trim = text => text.length > 18 ? text.slice(0, 17) + "…" : text;
  const margin = names => 12 + 7.5 * Math.max(3, ...names.map(name => trim(name).length));
  const left = margin(rows), top = margin(columns);
  const width = left + cell * columns.length + 4, height = top + cell * rows.length + 4;
  const sharp = cell < 6 ? 1 : Math.min(2, globalThis.devicePixelRatio || 1); // browsers bound a canvas
  const canvas = make("canvas.heatmap", { width: Math.round(width * sharp), height: Math.round(height * sharp),
    tabindex: 0, role: "application", "aria-label": `${label}; arrow keys move over the cells`, "data-key": "heatmap",
    "--width": `${width}px`, "--height": `${height}px` });
  const pen = canvas.getContext("2d");
  const style = getComputedStyle(page.container);
  const ink = style.getPropertyValue("--ink").trim() || "#000";
  const mark = style.getPropertyValue("--mark").trim() || "#c60";
  let [t, s] = [start, 0];

  function paint(chosen) {
    pen.setTransform(sharp, 0, 0, sharp, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(cells, left, top, cell * columns.length, cell * rows.length);
    pen.fillStyle = ink;
    pen.textBaseline = "middle";
    const name = (text, on) => {
      pen.font = `${on ? "bold " : ""}12px system-ui, sans-serif`;
      pen.fillText(trim(text), 0, 0);
    };
    const near = (at, here) => chosen && every > 1 && at !== here && Math.abs(at - here) < every;
    rows.forEach((text, at) => {
      if ((at % every && !(chosen && at === t)) || near(at, t)) return;
      pen.setTransform(sharp, 0, 0, sharp, (left - 6) * sharp, (top + cell * (at + 0.5)) * sharp);
      pen.textAlign = "right";
      name(text, chosen && at === t);
    });
    columns.forEach((text, at) => {
      if ((at % every && !(chosen && at === s)) || near(at, s)) return;
      pen.setTransform(0, -sharp, sharp, 0, (left + cell * (at + 0.5)) * sharp, (top - 6) * sharp);
      pen.textAlign = "left";
      name(text, chosen && at === s);
    });
    pen.setTransform(sharp, 0, 0, sharp, 0, 0);
    if (!chosen) return;
    pen.strokeStyle = mark;
    pen.lineWidth = 2;
    pen.strokeRect(left + cell * s, top + cell * t, cell, cell);
  }
  function go(row, column) {
    if (!(row >= 0 && row < rows.length && column >= 0 && column < columns.length)) return;
    [t, s] = [row, column];
    paint(true);
    page.say(tell(t, s));
  }
  canvas.addEventListener("mousemove", event =>
    go(Math.floor((event.offsetY - top) / cell), Math.floor((event.offsetX - left) / cell)));
  canvas.addEventListener("mouseleave", () => paint(document.activeElement === canvas));
  canvas.addEventListener("click", () => moved(t));
  canvas.addEventListener("focus", () => go(t, s));
  canvas.addEventListener("blur", () => paint(false));
  canvas.addEventListener("keydown", event => {
    const to = { ArrowDown: [t + 1, s], ArrowUp: [t - 1, s], ArrowRight: [t, s + 1], ArrowLeft: [t, s - 1],
      Home: [t, 0], End: [t, columns.length - 1] }[event.key];
    if (!to) return;
    event.preventDefault();
    go(...to);
    moved(t);
  });
  paint(false);
  return make("div.scroll", {}, canvas);
}

/** A table's cell with a bar behind its number. */
const bar = (share, text) => make("td.bar", { "--w": `${(100 * Math.max(0, Math.min(1, share))).toFixed(1)}%` },
  make("span", {}, text));

function table(heads, rows, kind = "") {
  return make("div.scroll", {}, make(`table.numbers${kind}`, {},
    make("thead", {}, make("tr", {}, heads.map(text => make("th", { scope: "col" }, text)))),
    make("tbody", {}, rows)));
}

// The views; each takes the page and gives an element

function headsView(page) {
  const shown = page.heads.map(head => page.picture(head));
  const { rows, columns, first } = shown[0];
  const high = 24; // pixels of a token, as in the style sheet
  const all = [];
  shown.forEach((one, which) => one.weights.forEach((row, t) => row.forEach((weight, s) => {
    if (weight >= 0.01) all.push([weight, t, s, which]);
  })));
  all.sort((one, two) => two[0] - one[0]);
  const many = Math.max(rows.length, columns.length) > MANY;
  const drawn = all.slice(0, many ? 1000 : 4000);
  const line = ([weight, t, s, which]) => make(`line.c${page.heads[which] === "mean" ? 0 : page.heads[which] % 8}`, {
    x1: 0, y1: (t + 0.5) * high, x2: 100, y2: (s + 0.5) * high, "stroke-opacity": Math.min(1, 0.08 + weight).toFixed(3),
    "stroke-width": (0.6 + 2.4 * weight).toFixed(2), "stroke-dasharray": DASHES[which % DASHES.length] || null });
  const tall = Math.max(rows.length, columns.length) * high;
  const own = make("g.own");
  const lines = make("svg.lines", { viewBox: `0 0 100 ${tall}`, preserveAspectRatio: "none", "aria-hidden": "true",
    "--height": `${tall}px` }, make("g.every", {}, drawn.map(line)), own);
  const side = (tokens, name, text) => {
    const items = tokens.map((token, at) => make("button.token", { type: "button", "data-side": name, "data-at": at }, word(token)));
    return [items, make(`div.side.${name === "row" ? "from" : "to"}`, { role: "group", "aria-label": text }, items)];
  };
  const [left, leftBox] = side(rows, "row", "looking");
  const [right, rightBox] = side(columns, "column", "looked at");
  let lit = [], pinned = first.findLastIndex(at => at <= page.token);

  function light(name, at) {
    lit.forEach(one => { one.classList.remove("lit", "on"); one.style.removeProperty("--w"); });
    lit = [];
    lines.classList.toggle("quiet", at >= 0);
    own.replaceChildren();
    if (!(at >= 0)) return page.say("Hover or focus a token: on the left to see where it looks, on the right to see who looks at it.");
    const looking = name === "row";
    const others = looking ? right : left, chosen = (looking ? left : right)[at];
    const told = shown.map((one, which) => {
      const weights = looking ? one.weights[at] : one.weights.map(row => row[at]);
      weights.forEach((weight, other) => {
        if (weight < 0.002) return;
        own.append(line([weight, looking ? at : other, looking ? other : at, which]));
        const before = parseFloat(others[other].style.getPropertyValue("--w")) || 0;
        others[other].style.setProperty("--w", `${Math.max(before, 100 * weight).toFixed(1)}%`);
        others[other].classList.add("lit");
        lit.push(others[other]);
      });
      const best = strongest(weights, 5).map(other => `${quote((looking ? columns : rows)[other])} ${number(weights[other])}`);
      return (shown.length > 1 ? `head ${page.heads[which] + 1}: ` : "") + best.join(", ");
    });
    chosen.classList.add("on");
    lit.push(chosen);
    page.say(`${quote((looking ? rows : columns)[at])} ${looking ? "looks at" : "is looked at by"} ${told.join("; ")}`);
  }
  const over = event => {
    const token = event.target.closest("button.token");
    if (token) light(token.dataset.side, +token.dataset.at);
  };
  const box = make("div.sides", { onmouseover: over, onfocusin: over, onmouseleave: () => light("row", pinned),
    onclick: event => {
      const token = event.target.closest("button.token");
      if (!token || token.dataset.side !== "row") return;
      pinned = pinned === +token.dataset.at ? -1 : +token.dataset.at;
      page.keep({ token: pinned < 0 ? undefined : first[pinned] });
      light("row", pinned);
    } }, leftBox, lines, rightBox);
  rove(leftBox, left, DOWN, Math.max(0, pinned));
  rove(rightBox, right, DOWN);
  light("row", pinned);
  return make("div", {}, make("p.hint", {},
    `A line's strength is its weight; weights under 0.01 are left out. A click keeps a token on the left. `,
    drawn.length < all.length || many
      ? `${many ? `More than ${MANY} tokens: only` : "Only"} the ${drawn.length} strongest of ${all.length} lines are drawn; a token's own lines are all drawn when it is hovered or focused.` : ""), box);
}

// What is drawn on a picture: the weights of a row on the patches that they are of
const onPicture = look => look.column_kind === "patches" && look.column_shape?.length === 2;

/** One picture with weights over it; the strongest is drawn full. */
function panel(page, weights, title) {
  const [tall, wide] = page.look.column_shape, most = Math.max(...weights, 1e-9);
  const over = make("canvas", { width: wide, height: tall, "aria-hidden": "true" });
  const draw = over.getContext("2d");
  weights.forEach((weight, at) => {
    draw.fillStyle = `rgba(255, 120, 0, ${(0.85 * weight / most).toFixed(3)})`;
    draw.fillRect(at % wide, Math.floor(at / wide), 1, 1);
  });
  const [best] = strongest(weights, 1);
  const told = `${title}: most at row ${Math.floor(best / wide) + 1}, column ${best % wide + 1} (${number(weights[best])})`;
  return make("figure.panel", { title: told }, make("div.seen", {}, make("img", { src: page.data.picture, alt: told }), over),
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

/** What each place of the first layer counts for in the last: half of every vector stays itself (Abnar and Zuidema 2020). */
function rollout(stack) {
  let whole = null;
  for (const look of stack) {
    const { weights } = picture(look, "mean", false), size = weights.length;
    const mixed = weights.map((row, t) => row.map((weight, s) => 0.5 * weight + (s === t ? 0.5 : 0)));
    whole = whole === null ? mixed : mixed.map(row => {
      const sum = new Float32Array(size);
      row.forEach((weight, t) => { if (weight > 1e-6) whole[t].forEach((value, s) => { sum[s] += weight * value; }); });
      return Array.from(sum);
    });
  }
  return whole;
}

function pictureView(page) {
  if (!page.look || !onPicture(page.look)) return "This attention does not look at the picture; choose another.";
  const look = page.look, [tall, wide] = look.column_shape, before = look.columns.length - tall * wide;
  const patches = row => Array.from(row).slice(before);
  const many = look.weights.map((_, head) => head), shown = page.heads[0] === "mean" ? many : page.heads;
  if (look.row_kind !== "patches") {
    const { rows, weights } = page.picture(page.heads[0]);
    const each = rows.map((name, t) => panel(page, patches(weights[t]), word(name)));
    const first = look.row_kind === "steps" ? [path(page, weights.map(patches))] : [];
    return make("div", {}, make("p.hint", {}, "One picture for each word or step: where it looked then."), make("div.panels", {}, first, each));
  }
  // Patches look at patches: what speaks for the picture, or the patch that was clicked.
  const at = page.token >= 0 && page.token < look.rows.length ? page.token : 0;
  const whole = look.rows.length * look.columns.length <= 400 * 400 ? rollout(page.stack) : null;
  const items = [make("button.panel", { type: "button", "data-key": "where", onclick: event => {
    const box = event.currentTarget.querySelector("img").getBoundingClientRect();
    const place = (value, size) => Math.max(0, Math.min(size - 1, Math.floor(value * size)));
    const row = place((event.clientY - box.top) / box.height, tall), column = place((event.clientX - box.left) / box.width, wide);
    page.change({ token: event.detail ? before + row * wide + column : 0 });
  } }, panel(page, look.columns.map((_, s) => s === at ? 1 : 0).slice(before), at < before ? look.rows[at] : `patch ${look.rows[at]}`)),
  ...(whole ? [panel(page, patches(whole[at]), "rollout, all layers")] : []),
  ...shown.map(head => panel(page, patches(picture(look, head, false).weights[at]), `head ${head + 1}`))];
  return make("div", {}, make("p.hint", {}, `Where ${quote(look.rows[at])} looks in layer ${look.layer + 1}. A click on the first picture chooses a patch.`), make("div.panels", {}, items));
}

// What is drawn on a sound: a row of weights for each word below the spectrogram
const onSound = look => look.column_kind === "frames" && look.row_kind !== "frames";

function soundView(page) {
  if (!page.look || !onSound(page.look)) return "This attention does not look at the sound from words; choose another.";
  const { rows, columns, weights } = page.picture(page.heads[0]);
  const lines = rows.map((name, t) => {
    const most = Math.max(...weights[t], 1e-9), over = make("canvas", { width: columns.length, height: 1, "aria-hidden": "true" });
    const draw = over.getContext("2d");
    weights[t].forEach((weight, s) => { draw.fillStyle = `rgba(255, 120, 0, ${(weight / most).toFixed(3)})`; draw.fillRect(s, 0, 1, 1); });
    const [best] = strongest(weights[t], 1), told = `${word(name)}: most at ${columns[best]} (${number(weights[t][best])})`;
    return make("tr", { title: told }, make("th", { scope: "row" }, word(name)), make("td", {}, over), make("td.soft", {}, columns[best]));
  });
  const shown = make("img", { src: page.data.picture, alt: `the spectrogram, up to ${columns.at(-1)}; high sounds above` });
  return make("div", {}, make("p.hint", {}, "Time goes to the right. For each word, where in the sound it looked; the second at which it looked most."),
    make("table.heard", {}, make("tr", {}, make("th", {}), make("td", {}, shown), make("td", {})), lines));
}

// What is drawn on a graph: weights as lines between its nodes
const onGraph = look => look.column_kind === "nodes";

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
      "fill-opacity": (0.15 + 0.85 * all[node] / high).toFixed(2), onclick: choose && (() => choose(node)) }, make("title", {}, `${names[node]} ${number(all[node])}`));
  });
  const named = size <= 40 ? places.map((_, node) => make("text", { x: spot(node)[0], y: spot(node)[1] + 2.7 }, names[node].split(" ")[0])) : [];
  return make("figure.panel.mesh", { title: told }, make("svg", { viewBox: `0 0 ${side} ${side}`, role: "img", "aria-label": told },
    edges.map(([one, other]) => line(one, other, 0, "edge")), reached, nodes, named), make("figcaption", {}, title));
}

function graphView(page) {
  if (!page.look || !onGraph(page.look)) return "This attention does not look at nodes; choose another.";
  const { look } = page, at = page.token < page.data.layout.places.length ? page.token : -1;
  const shown = page.heads[0] === "mean" ? look.weights.map((_, head) => head) : page.heads;
  const choose = node => page.change({ token: node === at ? "" : node });
  const pick = make("select", { "data-key": "node", onchange: event => page.change({ token: event.target.value }) },
    make("option", { value: "" }, "all nodes"), look.rows.slice(0, page.data.layout.places.length).map((name, node) =>
      make("option", { value: node, selected: node === at }, name)));
  const whole = look.rows.length <= 400 ? rollout(page.stack) : null;
  return make("div", {}, make("p.hint", {}, at >= 0 ? `Where ${quote(look.rows[at])} looks in layer ${look.layer + 1}.` : `Who is looked at along which edges in layer ${look.layer + 1}; a click on a node shows where it looks. `,
    make("label", {}, " node ", pick)),
  make("div.panels", {}, mesh(page, picture(look, "mean", false).weights, "mean of heads", at, choose),
    ...(whole ? [mesh(page, whole, "rollout, all layers", at, choose)] : []),
    ...shown.map(head => mesh(page, picture(look, head, false).weights, `head ${head + 1}`, at, choose))));
}

// What is drawn along a history: for a decision, how much it looked at each part of each step
const onHistory = look => look.column_kind === "history" && look.column_shape?.length === 2;

/** One line for each part of a step, steps from left to right. */
function strip(page, weights, title) {
  const { look } = page, [steps, parts] = look.column_shape, most = Math.max(...weights, 1e-9);
  const what = ["wished", "seen", "done"];
  return Array.from({ length: parts }, (_, part) => make("tr", {},
    part === 0 ? make("th", { scope: "rowgroup", rowspan: parts }, title) : null, make("td.soft", {}, what[part] ?? ""),
    Array.from({ length: steps }, (_, step) => {
      const at = step * parts + part, weight = weights[at];
      const cell = make("td.cell", { title: `${look.columns[at]}: ${number(weight)}` }, weight >= 0.1 ? number(weight, 2) : "");
      cell.style.backgroundColor = `rgba(255, 120, 0, ${(0.9 * weight / most).toFixed(3)})`;
      return cell;
    })));
}

function historyView(page) {
  if (!page.look || !onHistory(page.look)) return "This attention does not look at a history; choose another.";
  const { look } = page, [steps, parts] = look.column_shape, last = (steps - 1) * parts + 1;
  const at = page.token >= 0 && page.token < look.rows.length ? page.token : last; // a decision stands at what is seen
  const shown = page.heads[0] === "mean" ? look.weights.map((_, head) => head) : page.heads;
  const pick = make("select", { "data-key": "decision", onchange: event => page.change({ token: event.target.value }) },
    Array.from({ length: steps }, (_, step) => step * parts + 1).map(place => make("option", { value: place, selected: place === at }, look.rows[place])));
  const whole = look.rows.length <= 400 ? rollout(page.stack) : null;
  const names = Array.from({ length: steps }, (_, step) => look.rows[step * parts + 1].split(" ")[0]);
  return make("div", {}, make("p.hint", {}, `Which past steps the decision at ${quote(look.rows[at])} looked at in layer ${look.layer + 1}: what was wished for, seen and done. `,
    make("label", {}, " decision at ", pick)),
  make("div.scroll", {}, make("table.along", {}, make("thead", {}, make("tr", {}, make("th", { colspan: 2 }, "step"), names.map(name => make("th", { scope: "col" }, name)))),
    make("tbody", {}, strip(page, Array.from(picture(look, "mean", false).weights[at]), "mean of heads")),
    whole ? make("tbody", {}, strip(page, whole[at], "rollout, all layers")) : null,
    shown.map(head => make("tbody", {}, strip(page, Array.from(picture(look, head, false).weights[at]), `head ${head + 1}`))))));
}

function allView(page) {
  const small = 96; // pixels a side: longer inputs show the largest weight of each block
  const across = Math.max(...page.stack.map(look => look.weights.length));
  const items = page.stack.flatMap(look => look.weights.map((_, head) => {
    const { rows, columns, weights } = picture(look, head, page.words);
    const height = Math.min(small, rows.length), width = Math.min(small, columns.length);
    const blocks = Array.from({ length: height }, () => new Float32Array(width));
    weights.forEach((row, t) => row.forEach((weight, s) => {
      const block = blocks[Math.floor(t * height / rows.length)], at = Math.floor(s * width / columns.length);
      if (weight > block[at]) block[at] = weight;
    }));
    const high = most(blocks), name = `layer ${look.layer + 1}, head ${head + 1}`;
    const current = look === page.look && page.heads.includes(head);
    return make("button.small", { type: "button", "aria-label": `${name}: enlarge`, "aria-current": current ? "true" : null,
      "data-key": `small ${look.layer} ${head}`, onclick: () => page.change({ view: "matrix", layer: look.layer, head }) },
    bitmap(height, width, ramp(), (t, s) => Math.sqrt(blocks[t][s] / high)), make("span", {}, name));
  }));
  const grid = make("div.grid", { "--across": across }, items);
  rove(grid, items, { ...ACROSS, ArrowDown: across, ArrowUp: -across });
  return make("div", {}, make("p.hint", {},
    "A row is a layer, a column a head; each is coloured up to its own largest weight. Click or Enter enlarges one."),
  make("div.scroll", {}, grid));
}

function matrixView(page) {
  const { rows, columns, weights, first } = page.picture(page.heads[0]);
  const high = most(weights);
  return make("div", {},
    heatmap(page, { rows: rows.map(word), columns: columns.map(word), label: "weights, a row for each query", stops: ramp(),
      shade: (t, s) => Math.sqrt(weights[t][s] / high), start: Math.max(0, first.findLastIndex(at => at <= page.token)),
      tell: (t, s) => `${quote(rows[t])} looks at ${quote(columns[s])} with weight ${number(weights[t][s])}`,
      moved: t => page.keep({ token: first[t] }) }),
    legend(ramp(), ["0", `${number(high)}, the largest weight (colour by square root)`]));
}

function stepView(page) {
  const { look } = page, head = page.heads[0] === "mean" ? 0 : page.heads[0];
  const t = Math.max(0, Math.min(look.rows.length - 1, page.token));
  const weights = look.weights[head][t], scores = look.scores?.[head]?.[t], values = look.values?.[head];
  const { scale } = look, raw = scores && scale;
  const vector = four => `(${four.map(short).join(", ")})`;
  const pick = make("select", { "data-key": "query", onchange: event => page.change({ token: event.target.value }) },
    look.rows.map((token, at) => make("option", { value: at, selected: at === t }, `${at + 1}  ${word(token)}`)));
  const best = strongest(weights, 1)[0], high = Math.max(1e-9, weights[best]);
  const heads = ["key", raw && "raw score q·k", scores && (raw ? `scaled × ${+scale.toPrecision(4)}` : "score"), "softmax weight",
    values && "value, first four", values && "weight × value"].filter(Boolean);
  const rows = look.columns.map((token, s) => {
    const score = scores?.[s], cells = score === null ? "masked" : undefined;
    return make(s === best ? "tr.best" : "tr", {}, make("th", { scope: "row" }, `${s + 1}  ${word(token)}${s === best ? " ◀" : ""}`),
      raw ? make("td", {}, cells ?? short(score / scale)) : null, scores ? make("td", {}, cells ?? short(score)) : null,
      bar(weights[s] / high, number(weights[s])),
      values ? make("td", {}, vector(values[s])) : null,
      values ? make("td", {}, vector(values[s].map(one => one * weights[s]))) : null);
  });
  const chain = [raw && short(scores[best] / scale), scores && short(scores[best]), short(weights[best])].filter(Boolean).join(" → ");
  page.say(`${quote(look.rows[t])} looks most at ${quote(look.columns[best])}: ${chain}`);
  return make("div", {}, make("label.pick", {}, "query ", pick),
    make("p.hint", {}, scores ? "" : "Only the weights are here, not the scores before the softmax. ",
      raw ? `Each score q·k is multiplied by ${+scale.toPrecision(4)}, and exp(score) divided by the sum of all gives the weight. ` : "",
      "Pieces of words stay apart here."),
    table(heads, rows),
    values ? make("p.sum", {}, "sum of weight × value: ", make("output", {},
      vector(values[0].map((_, part) => values.reduce((sum, one, s) => sum + weights[s] * one[part], 0)))), " …") : null);
}

function generationView(page) {
  const { steps = [], beam } = page.data.generation;
  const cards = steps.map((step, at) => make("li.card", {}, make("strong", {}, word(step.token)),
    make("span.soft", {}, ` ${at + 1}: ${number(step.probability)}`),
    make("table.numbers.tight", {}, make("tbody", {}, (step.candidates ?? []).map(([token, share]) =>
      make(token === step.token ? "tr.best" : "tr", {},
        make("th", { scope: "row" }, (token === step.token ? "▸ " : "") + word(token)), bar(share, number(share))))))));
  return make("div", {},
    steps.length ? make("p.hint", {}, "Each written token with what else could have stood there; ▸ marks the one that was written.") : null,
    make("ol.cards", { tabindex: 0, "aria-label": "written tokens" }, cards),
    beam?.nodes?.length ? beamTree(page, beam.nodes) : null);
}

function beamTree(page, given) {
  const hide = page.state.dropped === "0";
  const nodes = new Map(given.map(node => [node.id, { ...node, children: [], depth: 0 }]));
  // A hypothesis that goes on is never marked as dropped, so hiding the dropped hides only leaves.
  for (const [id, node] of nodes) if (hide && !node.kept && !node.final) nodes.delete(id);
  for (const node of nodes.values()) nodes.get(node.parent)?.children.push(node);
  const roots = [...nodes.values()].filter(node => !nodes.has(node.parent));
  const order = [], wide = 110, high = 40;
  let leaves = 0;
  const todo = roots.toReversed(); // by hand, since an answer may be longer than the call stack is deep
  while (todo.length) {
    const node = todo.pop();
    node.above = nodes.get(node.parent);
    node.depth = node.above ? node.above.depth + 1 : 0;
    order.push(node);
    if (!node.children.length) node.y = leaves++;
    node.children.sort((one, two) => two.kept - one.kept || two.score - one.score);
    todo.push(...node.children.toReversed());
  }
  for (const node of order.toReversed()) {
    node.y ??= node.children.reduce((sum, child) => sum + child.y, 0) / node.children.length;
  }
  const ended = order.filter(node => node.final).sort((one, two) => two.score - one.score);
  const won = new Set();
  for (let node = ended[0]; node; node = node.above) won.add(node);
  const path = node => { const words = []; for (let at = node; at; at = at.above) words.unshift(word(at.token)); return words.join(" "); };
  const fate = node => won.has(node) ? "on the best path" : node.final ? "finished" : node.kept ? "kept" : "dropped";
  const mark = node => node.final ? "■ " : node.kept ? "" : "✕ ";
  const x = node => node.depth * wide + 4, y = node => node.y * high + 4;
  const links = order.filter(node => node.above).map(node => make(`path.link${won.has(node) ? ".won" : node.kept || node.final ? "" : ".dropped"}`, {
    d: `M${x(node.above) + 92} ${y(node.above) + 16} C${x(node) - 4} ${y(node.above) + 16} ${x(node.above) + 96} ${y(node) + 16} ${x(node)} ${y(node) + 16}` }));
  const boxes = order.map(node => {
    const tell = () => page.say(`${path(node)}: score ${number(node.score)}, ${fate(node)}`);
    const name = word(node.token);
    node.box = make(`g.node${won.has(node) ? ".won" : node.kept || node.final ? "" : ".dropped"}`, { transform: `translate(${x(node)} ${y(node)})`,
      tabindex: -1, role: "treeitem", "aria-label": `${name}, score ${number(node.score)}, ${fate(node)}`, onmouseenter: tell, onfocus: tell },
    make("rect", { width: 92, height: 32, rx: 5 }),
    make("text", { x: 6, y: 13 }, mark(node) + (name.length > 11 ? name.slice(0, 10) + "…" : name)),
    make("text.soft", { x: 6, y: 27 }, number(node.score, 2)));
    return node.box;
  });
  const beside = (node, by) => order.filter(one => one.depth === node.depth).sort((one, two) => one.y - two.y)
    .find((_, at, all) => all[at - by] === node);
  const tree = make("svg.beam", { role: "tree", "aria-label": "the beam, from left to right", width: (Math.max(0, ...order.map(node => node.depth)) + 1) * wide,
    height: Math.max(1, leaves) * high + 8,
    onkeydown: event => {
      const node = order.find(one => one.box === document.activeElement);
      const steps = { ArrowLeft: () => node.above, ArrowRight: () => node.children[0], ArrowDown: () => beside(node, 1), ArrowUp: () => beside(node, -1) };
      const next = node && steps[event.key]?.();
      if (!next) return;
      event.preventDefault();
      node.box.tabIndex = -1;
      next.box.tabIndex = 0;
      next.box.focus();
    } }, links, boxes);
  if (boxes[0]) boxes[0].setAttribute("tabindex", 0);
  return make("section", {}, make("h3", {}, "The beam"),
    make("p.hint", {}, "Thick: the best path. ■ finished. ✕ and dashed: dropped. Arrow keys go along the branches."),
    tick(page, "dropped", "show what was dropped", !hide, on => on ? undefined : "0"), make("div.scroll", {}, tree));
}

function hopsView(page) {
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

function statisticsView(page) {
  const all = page.stack.flatMap(look => {
    const { rows, columns } = picture(look, 0, page.words), specials = columns.map(special), same = sameTokens({ rows, columns });
    return look.weights.map((_, head) => {
      const { weights } = picture(look, head, page.words);
      return { look, head, weights, ...measure(weights, specials, same) };
    });
  });
  const high = key => Math.max(1e-9, ...all.map(one => one[key] ?? 0));
  const tops = { entropy: high("entropy"), distance: high("distance"), share: 1 };
  const cell = (one, key) => one[key] === null ? make("td", {}, "–") : bar(one[key] / tops[key], number(one[key]));
  const alike = all.filter(one => one.weights.length === all[0].weights.length && one.weights[0].length === all[0].weights[0].length);
  const same = similarity(alike.map(one => one.weights));
  const names = alike.map(one => `${one.look.layer + 1}.${one.head + 1}`);
  return make("div", {}, make("p.hint", {}, "Means over the rows. Distance counts tokens between, where a text looks at itself."),
    table(["layer", "head", "entropy (bits)", "distance (tokens)", "on special tokens"], all.map(one => make("tr", {},
      make("th", { scope: "row" }, `${one.look.layer + 1}`), make("th", { scope: "row" }, `${one.head + 1}`),
      cell(one, "entropy"), cell(one, "distance"), cell(one, "share")))),
    make("h3", {}, "How alike the heads are"), make("p.hint", {}, "Correlation of the weights; names are layer.head."),
    heatmap(page, { rows: names, columns: names, label: "correlation of heads", stops: BOTH, shade: (t, s) => (same[t][s] + 1) / 2,
      tell: (t, s) => `heads ${names[t]} and ${names[s]}: correlation ${number(same[t][s], 2)}` }),
    legend(BOTH, ["−1", "+1"]));
}

function ablationView(page) {
  const { metric, whole, heads } = page.data.ablation;
  const sorted = page.state.sort === "1";
  const order = sorted ? heads.toSorted((one, two) => Math.abs(two.value - whole) - Math.abs(one.value - whole)) : heads;
  const low = Math.min(0, whole, ...heads.map(one => one.value)), high = Math.max(0, whole, ...heads.map(one => one.value));
  const place = value => `${(100 * (value - low) / (high - low || 1)).toFixed(1)}%`;
  const gauge = value => make("td", {}, make("div.gauge", { "--from": place(Math.min(0, value)), "--to": place(Math.max(0, value)), "--whole": place(whole) }));
  const told = heads.some(one => one.output !== undefined);
  const row = (name, value, output, kind = "tr") => make(kind, {}, make("th", { scope: "row" }, name), make("td", {}, number(value)),
    make("td", {}, kind === "tr" ? (value > whole ? "+" : value < whole ? "−" : "") + number(Math.abs(value - whole)) : ""),
    gauge(value), told ? make("td.text", {}, output ?? "") : null);
  return make("div", {}, make("p.hint", {}, `${metric} with one head switched off at a time; the upright mark is the whole model's ${number(whole)}.`),
    tick(page, "sort", "largest change first", sorted, on => on ? "1" : undefined),
    table(["switched off", metric, "change", "", ...(told ? ["output"] : [])], [row("nothing (the whole)", whole, page.data.output, "tr.best"),
      ...order.map(one => row(`${one.name}, head ${one.head + 1}`, one.value, one.output))], ".wide"));
}

const DRAW = { picture: pictureView, sound: soundView, graph: graphView, history: historyView, heads: headsView, all: allView, matrix: matrixView, step: stepView, generation: generationView,
  hops: hopsView, statistics: statisticsView, ablation: ablationView };

// The frame around a view: tabs and choices

const tick = (page, key, text, checked, value) => make("label.tick", {}, make("input", { type: "checkbox", checked,
  "data-key": key, onchange: event => page.change({ [key]: value(event.target.checked) }) }), text);

function choose(page, key, label, options, value) {
  return make("label.pick", {}, `${label} `, make("select", { "data-key": key, onchange: event => page.change({ [key]: event.target.value }) },
    options.map(([option, text]) => make("option", { value: option, selected: String(option) === String(value) }, text))));
}

function headButtons(page, several) {
  const mean = page.view !== "step", count = page.look.weights.length;
  const pick = head => {
    let next = [head];
    if (several && head !== "mean") {
      const others = page.heads.filter(one => one !== "mean");
      next = others.includes(head) ? others.filter(one => one !== head) : [...others, head].sort((one, two) => one - two);
    }
    page.change({ head: next.join(",") || "mean" });
  };
  const chosen = mean || page.heads[0] !== "mean" ? page.heads : [0];
  return make("div.heads", { role: "group", "aria-label": several ? "heads" : "head" }, make("span", {}, several ? "heads" : "head"),
    [...(mean ? ["mean"] : []), ...Array(count).keys()].map(head => make(`button${head === "mean" ? "" : `.c${head % 8}`}`, { type: "button",
      "aria-pressed": String((several ? chosen : chosen.slice(0, 1)).includes(head)), "aria-label": head === "mean" ? "mean of heads" : `head ${head + 1}`,
      "data-key": `head ${head}`, onclick: () => pick(head) }, head === "mean" ? "mean" : `${head + 1}`)));
}

function controls(page, kinds) {
  if (["generation", "hops", "ablation"].includes(page.view)) return null;
  const one = ["heads", "matrix", "step"].includes(page.view), mean = ["heads", "matrix"].includes(page.view);
  const layers = page.stack.map(look => [look.layer, `${look.layer + 1}`]);
  if (mean) layers.push(["mean", page.kind.endsWith("cross") ? "alignment (mean of heads and layers)" : "mean of heads and layers"]);
  const pieces = page.stack.some(look => [...(joins(look.row_kind) ? look.rows : []), ...(joins(look.column_kind) ? look.columns : [])]
    .some(token => /^(▁|Ġ|##)/.test(token)));
  return make("div.controls", {},
    kinds.length > 1 ? choose(page, "kind", "attention", kinds.map(kind => [kind, kind]), page.kind) : null,
    one ? choose(page, "layer", "layer", layers, page.layer) : null,
    one && page.layer !== "mean" ? headButtons(page, page.view === "heads") : null,
    pieces && page.view !== "step" ? tick(page, "words", "join sub-words to words", page.words, on => on ? "1" : undefined) : null);
}

/** What the state asks for, put right where the data has no such thing. */
function settle(page, kinds, offered) {
  const { state, data } = page;
  page.view = offered.includes(state.view) ? state.view : kinds.includes("hops") ? "hops" : offered[0];
  page.kind = kinds.includes(state.kind) ? state.kind : kinds.find(kind => kind.endsWith("cross")) ?? kinds[0];
  page.stack = (data.looks ?? []).filter(look => look.kind === page.kind);
  page.look = page.stack.find(look => String(look.layer) === String(state.layer)) ?? page.stack.at(-1);
  page.layer = state.layer === "mean" && page.view !== "step" ? "mean" : page.look?.layer;
  const count = page.look?.weights.length ?? 0;
  const heads = String(state.head ?? "mean").split(",").filter(head => /^\d+$/.test(head)).map(Number).filter(head => head < count);
  page.heads = page.layer !== "mean" && heads.length ? [...new Set(heads)] : ["mean"];
  page.words = ["1", "true"].includes(String(state.words));
  page.token = /^\d+$/.test(String(state.token)) ? Number(state.token) : -1;
}

const shownIn = new Map(); // container -> its drawing, to draw again when light turns to dark
if (globalThis.matchMedia) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => shownIn.forEach(draw => draw()));
}

/**
 * Draw the data into the container. The state (view, kind, layer, head, token, words; all optional)
 * says what is chosen; `onState` gets a copy whenever a choice changes.
 */
export function show(container, data, state = {}, onState = () => {}) {
  const kinds = [...new Set((data.looks ?? []).map(look => look.kind))];
  const offered = Object.keys(TITLES).filter(view => ({ generation: data.generation, ablation: data.ablation,
    hops: kinds.includes("hops"), picture: Boolean(data.picture) && (data.looks ?? []).some(onPicture), sound: Boolean(data.picture) && (data.looks ?? []).some(onSound), graph: Boolean(data.layout) && (data.looks ?? []).some(onGraph), history: (data.looks ?? []).some(onHistory) })[view] ?? (view !== "generation" && view !== "ablation" && kinds.length > 0));
  const page = { container, data, state: { ...state } };
  page.picture = head => page.layer === "mean" ? overLayers(page.stack, page.words) : picture(page.look, head, page.words);
  page.keep = patch => { Object.assign(page.state, patch); onState({ ...page.state }); };
  page.change = patch => { page.keep(patch); draw(); };

  function draw() {
    const focus = container.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
    settle(page, kinds, offered);
    const said = make("p.said", { role: "status", "aria-live": "polite" });
    page.say = text => { said.textContent = text; };
    const tabs = offered.map(view => make("button", { type: "button", role: "tab", "aria-selected": String(view === page.view), "data-key": `tab ${view}`,
      "data-view": view, onclick: () => page.change({ view }) }, TITLES[view]));
    const bar = make("div.tabs", { role: "tablist", "aria-label": "views" }, tabs);
    rove(bar, tabs, ACROSS, Math.max(0, offered.indexOf(page.view)));
    container.replaceChildren(
      make("p.text", {}, make("strong", {}, data.input ?? ""), data.output ? make("span", {}, ` → ${data.output}`) : null,
        make("span.soft", {}, [data.model, data.task].filter(Boolean).map(name => ` · ${name}`).join(""))),
      bar, ...(offered.length ? [controls(page, kinds)].filter(Boolean) : []),
      make("div.view", { role: "tabpanel", "aria-label": TITLES[page.view] ?? "nothing" },
        offered.length ? DRAW[page.view](page) : "There is nothing to see here: no attention was watched."), said);
    if (focus) [...container.querySelectorAll("[data-key]")].find(one => one.dataset.key === focus)?.focus();
  }
  shownIn.set(container, draw);
  draw();
}
