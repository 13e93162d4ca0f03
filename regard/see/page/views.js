// What a model attended to, drawn from one plain object; the server's page and the standalone file
// both draw with this.

import { ACROSS, choose, make, rem, rove, tick } from "./dom.js";
import { generationView } from "./generation.js";
import { graphView, historyView, onGraph, onHistory } from "./graphs.js";
import { saveDrawing } from "./image.js";
import { linesView } from "./lines.js";
import { makeLink } from "./link.js";
import { allView, headMap } from "./map.js";
import { matrixView } from "./matrix.js";
import { ablationView, hopsView, statisticsView } from "./measures.js";
import { onPicture, onSound, pictureView, soundView } from "./pictures.js";
import { stepView, storyView } from "./story.js";
import { between, inPieces, joins, overLayers, picture, shared } from "./tokens.js";

const some = fits => data => (data.looks ?? []).some(fits);
const any = some(() => true);

/** The views: a title, what draws them, whether there is something to draw, and what of the heads is
 *  picked beside them: several, their mean, or one. */
const VIEWS = {
  picture: { title: "On the picture", draw: pictureView, fits: data => data.picture && some(onPicture)(data), picks: { several: true, mean: true } },
  sound: { title: "On the sound", draw: soundView, fits: data => data.picture && some(onSound)(data), picks: { mean: true } },
  graph: { title: "On the graph", draw: graphView, fits: data => data.layout && some(onGraph)(data), picks: { several: true, mean: true } },
  history: { title: "Along the history", draw: historyView, fits: some(onHistory), picks: { several: true, mean: true } },
  hops: { title: "Hops", draw: hopsView, fits: some(look => look.kind === "hops") },
  heads: { title: "Who looks where", draw: linesView, fits: any, picks: { several: true, mean: true } },
  story: { title: "Story", draw: storyView, fits: any, picks: {} },
  all: { title: "All heads", draw: allView, fits: any },
  matrix: { title: "Matrix", draw: matrixView, fits: any, picks: { mean: true } },
  step: { title: "Numbers", draw: stepView, fits: any, picks: {} },
  generation: { title: "Writing", draw: generationView, fits: data => data.generation },
  statistics: { title: "Statistics", draw: statisticsView, fits: any },
  ablation: { title: "Heads off", draw: ablationView, fits: data => data.ablation },
};
const OF_NO_HEAD = ["generation", "hops", "ablation"];

/** What is picked beside a view: which attention, which head, whether pieces are joined to words. */
function picking(page, kinds) {
  if (OF_NO_HEAD.includes(page.view)) return null;
  const { picks } = VIEWS[page.view];
  const name = kind => between(page.data.looks.find(look => look.kind === kind), page.data.looks);
  const pieces = page.stack.some(look => (joins(look.row_kind) && inPieces(look.rows)) || (joins(look.column_kind) && inPieces(look.columns)));
  return make("div.picking", {},
    kinds.length > 1 ? choose(page, "kind", "who looks", kinds.map(kind => [kind, name(kind)]), page.kind) : null,
    picks ? headMap(page, picks) : null,
    pieces && !["step", "story"].includes(page.view)
      ? tick(page, "words", "join pieces to words", page.words, on => on ? undefined : "0") : null);
}

/** How sharply a head looks: the less its weights are spread, the more. */
const sharpness = weights => weights.reduce((sum, row) => sum + row.reduce((all, weight) => weight > 0 ? all + weight * Math.log(weight) : all, 0), 0) / weights.length;

/** Of some layers, the one and its head that look most sharply: the first choice where a mean says little. */
function sharpest(stack) {
  const all = stack.flatMap(look => look.weights.map((weights, head) => ({ look, head, sharp: sharpness(weights) })));
  return all.reduce((best, one) => one.sharp > best.sharp ? one : best);
}

/** What the state asks for, put right where the data has no such thing. */
function settle(page, kinds, offered) {
  const { state, data } = page;
  page.view = offered.includes(state.view) ? state.view : offered[0];
  page.kind = kinds.includes(state.kind) ? state.kind : kinds.find(kind => kind.endsWith("cross")) ?? kinds[0];
  page.stack = (data.looks ?? []).filter(look => look.kind === page.kind);
  page.look = page.stack.find(look => String(look.layer) === String(state.layer)) ?? page.stack.at(-1);
  const one = ["story", "step"].includes(page.view), together = ["heads", "matrix"].includes(page.view);
  const crossing = together && page.kind?.endsWith("cross") && state.layer === undefined; // an alignment first
  page.layer = together && (state.layer === "mean" || crossing) ? "mean" : page.look?.layer;
  const count = page.look?.weights.length ?? 0;
  const heads = String(state.head ?? "mean").split(",").filter(head => /^\d+$/.test(head)).map(Number).filter(head => head < count);
  page.heads = page.layer !== "mean" && heads.length ? [...new Set(heads)] : ["mean"];
  const first = state.layer === undefined && state.head === undefined; // nothing was picked yet
  if (page.view === "heads" && first && !crossing && page.look) {
    const { look, head } = sharpest(page.stack);
    Object.assign(page, { look, layer: look.layer, heads: [head] });
  }
  if (one && page.look && page.heads[0] === "mean") page.heads = [sharpest([page.look]).head];
  page.words = !["0", "false"].includes(String(state.words));
  page.token = /^\d+$/.test(String(state.token)) ? Number(state.token) : -1;
}

/** Tell the link what is on show: rows and columns by the words they share with other drawings. */
function connect(page) {
  const shown = page.heads.map(head => page.picture(head)), { first } = shown[0];
  const names = (role, count) => Array.from({ length: count }, (_, at) => shared(page.look, page.data.looks, role, at));
  page.names = { rows: names("row", shown[0].rows.length), columns: names("column", shown[0].columns.length) };
  const pinned = page.token >= 0 ? first.findLastIndex(at => at <= page.token) : null;
  page.link.use({ ...page.names, weights: shown.map(drawn => drawn.weights) }, pinned);
}

const shownIn = new Map(); // container -> its drawing, to draw again when light turns to dark

/** Draw everything again: the light, or the room, has changed. */
export const redraw = () => shownIn.forEach((draw, container) => container.isConnected && draw());
if (globalThis.matchMedia) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  let width = innerWidth, waiting = 0;
  addEventListener("resize", () => {
    if (innerWidth === width) return; // a phone's bars come and go
    width = innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(redraw, 120);
  });
}

/** The views that there are for some data, the first being its own. */
export const viewsOf = data => Object.keys(VIEWS).filter(view => VIEWS[view].fits(data));

/**
 * Draw the data into the container. The state (view, kind, layer, head, token, words; all optional)
 * says what is chosen; `onState` gets a copy whenever a choice changes. `linked` is what a word that
 * is pointed at lights up in, `inside` gives a look with the queries and keys of one head,
 * `ablate` asks what each head is for.
 */
export function show(container, data, state = {}, onState = () => {}, { linked = container, inside = look => look, ablate } = {}) {
  const kinds = [...new Set((data.looks ?? []).map(look => look.kind))], offered = viewsOf(data);
  if (ablate && any(data) && !offered.includes("ablation")) offered.push("ablation");
  linked.link ??= makeLink(linked); // one for all drawings that follow each other there
  const page = { container, data, state: { ...state }, link: linked.link };
  page.picture = head => page.layer === "mean" ? overLayers(page.stack, page.words) : picture(page.look, head, page.words);
  page.keep = patch => { Object.assign(page.state, patch); onState({ ...page.state }); };
  page.change = patch => { page.keep(patch); draw(); };
  page.ablate = ablate;
  page.inside = (look, head) => inside(look, head, draw);

  function tabs() {
    const items = offered.map(view => make("button", { type: "button", role: "tab", "aria-selected": String(view === page.view), "data-key": `tab ${view}`,
      "data-view": view, onclick: () => page.change({ view }) }, VIEWS[view].title));
    const bar = make("div.tabs", { role: "tablist", "aria-label": "views" }, items);
    rove(bar, items, ACROSS, Math.max(0, offered.indexOf(page.view)));
    return bar;
  }

  function draw() {
    const focus = container.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
    settle(page, kinds, offered);
    const said = make("p.said", { role: "status", "aria-live": "polite" });
    page.say = text => { said.textContent = text ?? "Point at a word, or tab to it, to see what it looks at."; };
    const save = make("button.quiet", { type: "button", "data-key": "save", title: "save this drawing as an SVG file", onclick: () => saveDrawing(container.querySelector(".view"), page.view) }, "↓ SVG");
    const bar = make("div.bar-of-views", {}, tabs(), save);
    if (!offered.length) {
      container.replaceChildren(make("p.hint", {}, "There is nothing to see here: no attention was watched."));
      return;
    }
    const beside = picking(page, kinds), room = container.clientWidth - (beside && container.clientWidth > rem(44) ? rem(14) : 0);
    page.room = Math.max(rem(18), room);
    if (OF_NO_HEAD.includes(page.view)) page.link.use(null, null);
    else connect(page);
    const view = make("div.view", { role: "tabpanel", "aria-label": VIEWS[page.view].title }, VIEWS[page.view].draw(page));
    container.replaceChildren(bar, make(`div.drawing${beside ? ".beside" : ""}`, {}, beside, make("div.shown", {}, view)), said);
    if (OF_NO_HEAD.includes(page.view)) page.say("");
    else page.link.rest();
    if (focus) [...container.querySelectorAll("[data-key]")].find(item => item.dataset.key === focus)?.focus();
  }
  shownIn.set(container, draw);
  draw();
  return page;
}
