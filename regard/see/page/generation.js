// How an answer came about: what else could have been written, and what a beam dropped.

import { bar, make, number, percent, rem, tick } from "./dom.js";
import { special, word } from "./tokens.js";

export function generationView(page) {
  const { steps = [], beam } = page.data.generation;
  const cards = steps.map((step, at) => make("li.card", {}, make("strong", {}, word(step.token)),
    make("span.soft", {}, ` ${at + 1}: ${percent(step.probability)}`),
    make("table.numbers.tight", {}, make("tbody", {}, (step.candidates ?? []).map(([token, share]) =>
      make(token === step.token ? "tr.best" : "tr", {},
        make("th", { scope: "row" }, (token === step.token ? "▸ " : "") + word(token)), bar(share, number(share))))))));
  return make("div", {},
    beam?.nodes?.length ? beamView(page, beam.nodes) : null,
    steps.length ? make("h3", {}, "What else could have been written") : null,
    steps.length ? make("p.hint", {}, "Each piece of the text with its likeliest rivals; ▸ marks the one that was written.") : null,
    make("ol.cards", { tabindex: 0, "aria-label": "written tokens" }, cards));
}

/** The beam as a timeline: the tree up to a step, and who leads there. */
function beamView(page, given) {
  const hide = page.state.dropped !== "1", { order, high } = grow(given, hide, page.data.output);
  const last = Math.max(0, ...order.map(node => node.depth));
  const drawn = drawTree(page, order, high), leaders = make("ol.leaders", { "aria-label": "who leads at this step" });
  const said = make("output", { id: "moment" });
  function go(step) {
    said.textContent = step === last ? "at the end" : `after step ${step} of ${last}`;
    order.forEach(node => node.box.classList.toggle("later", node.depth > step));
    drawn.links.forEach(([node, link]) => link.classList.toggle("later", node.depth > step));
    const alive = order.filter(node => node.depth > 0 && node.depth <= step && (node.final ? node.kept : node.depth === step && node.kept))
      .sort((one, two) => two.score - one.score).slice(0, 6);
    const best = alive[0]?.score ?? 0;
    leaders.replaceChildren(...alive.map(node => make(node.leads ? "li.bar.won" : "li.bar", { "--w": `${(100 * Math.exp(node.score - best)).toFixed(1)}%` },
      make("span", {}, `${node.final ? "■ " : ""}${pathOf(node)} `), make("span.soft", {}, number(node.score, 2)))));
  }
  const slider = make("input", { type: "range", min: 1, max: Math.max(1, last), value: last, "aria-label": "step of the search", "data-key": "moment",
    oninput: event => go(+event.target.value) });
  go(last);
  return make("section.beam-of", {}, make("h3", {}, "The search, step by step"),
    make("div.controls", {}, make("label.pick", {}, make("span", {}, "time"), slider), said,
      tick(page, "dropped", "show what was dropped", !hide, on => on ? "1" : undefined)),
    leaders, make("div.scroll", {}, drawn.tree),
    make("p.hint", {}, "A score is the sum of log-probabilities; which finished one is chosen also depends on its length. Thick: the answer. ■ finished. ✕ and dashed: dropped. Arrow keys go along the branches."));
}

const pathOf = node => {
  const tokens = [];
  for (let at = node; at?.above; at = at.above) if (!special(at.token)) tokens.unshift(at.token);
  const joint = tokens.some(token => /^[▁Ġ]/.test(token)) ? "" : " ";
  return tokens.join(joint).replace(/[▁Ġ]/g, " ").trim();
};

const WIDE = 110, NARROW = 74, HIGH = 40; // of a node with the room around it

/** Mark the answer's own way through the tree. It may have been the best only after the length penalty. */
function lead(all, nodes, output) {
  for (const node of all) Object.assign(node, { above: nodes.get(node.parent), leads: false });
  const ended = all.filter(node => node.final).sort((one, two) => two.score - one.score);
  const answer = ended.find(node => pathOf(node) === output?.trim()) ?? ended[0];
  for (let node = answer; node; node = node.above) node.leads = true;
}

/** The nodes as a tree, each with its depth and its line. */
function grow(given, hide, output) {
  const nodes = new Map(given.map(node => [node.id, { ...node, children: [], depth: 0 }]));
  // A hypothesis that goes on is never marked as dropped, so hiding the dropped hides only leaves.
  for (const [id, node] of nodes) if (hide && !node.kept && !node.final) nodes.delete(id);
  for (const node of nodes.values()) nodes.get(node.parent)?.children.push(node);
  lead([...nodes.values()], nodes, output);
  const roots = [...nodes.values()].filter(node => !nodes.has(node.parent));
  const order = [];
  const todo = roots.toReversed(); // by hand, since an answer may be longer than the call stack is deep
  while (todo.length) {
    const node = todo.pop();
    node.depth = node.above ? node.above.depth + 1 : 0;
    order.push(node);
    node.children.sort((one, two) => two.leads - one.leads || two.kept - one.kept || two.score - one.score);
    todo.push(...node.children.toReversed());
  }
  const columns = Map.groupBy(order, node => node.depth); // the answer's own on top, then by score
  for (const column of columns.values()) {
    column.sort((one, two) => two.leads - one.leads || (two.kept || two.final) - (one.kept || one.final) || two.score - one.score);
    column.forEach((node, at) => { node.y = at; });
  }
  return { order, high: Math.max(...[...columns.values()].map(column => column.length)) };
}

function drawTree(page, order, high) {
  const fate = node => node.leads ? "in the answer" : node.final ? "finished" : node.kept ? "kept" : "dropped";
  const mark = node => node.final ? "■ " : node.kept ? "" : "✕ ";
  const deep = Math.max(0, ...order.map(node => node.depth)) + 1;
  const wide = Math.max(NARROW, Math.min(WIDE, Math.floor(15 * page.room / rem(1) / deep))), box = wide - 18; // 15 are a rem
  const letters = Math.floor(box / 7.6) - 1;
  const x = node => node.depth * wide + 4, y = node => node.y * HIGH + 4;
  const links = order.filter(node => node.above).map(node => [node, make(`path.link${node.leads ? ".won" : node.kept || node.final ? "" : ".dropped"}`, {
    d: `M${x(node.above) + box} ${y(node.above) + 16} C${x(node) - 4} ${y(node.above) + 16} ${x(node.above) + box + 4} ${y(node) + 16} ${x(node)} ${y(node) + 16}` })]);
  const boxes = order.map(node => {
    const tell = () => page.say(`${pathOf(node)}: score ${number(node.score)}, ${fate(node)}`);
    const name = node.above ? word(node.token) : "start";
    node.box = make(`g.node${node.leads ? ".won" : node.kept || node.final ? "" : ".dropped"}`, { transform: `translate(${x(node)} ${y(node)})`,
      tabindex: -1, role: "treeitem", "aria-label": `${name}, score ${number(node.score)}, ${fate(node)}`, onmouseenter: tell, onfocus: tell },
    make("rect", { width: box, height: 32, rx: 5 }),
    make("text", { x: 6, y: 13 }, mark(node) + (name.length > letters ? name.slice(0, letters - 1) + "…" : name)),
    make("text.soft", { x: 6, y: 27 }, number(node.score, 2)));
    return node.box;
  });
  const beside = (node, by) => order.filter(one => one.depth === node.depth).sort((one, two) => one.y - two.y)
    .find((_, at, all) => all[at - by] === node);
  const width = deep * wide, height = high * HIGH + 8;
  const tree = make("svg.beam", { role: "tree", "aria-label": "the beam, from left to right", viewBox: `0 0 ${width} ${height}`,
    "--width": `${width / 15}rem`, "--height": `${height / 15}rem`,
    onkeydown: event => {
      const node = order.find(one => one.box === document.activeElement);
      const steps = { ArrowLeft: () => node.above, ArrowRight: () => node.children[0], ArrowDown: () => beside(node, 1), ArrowUp: () => beside(node, -1) };
      const next = node && steps[event.key]?.();
      if (!next) return;
      event.preventDefault();
      node.box.tabIndex = -1;
      next.box.tabIndex = 0;
      next.box.focus();
    } }, links.map(([, link]) => link), boxes);
  if (boxes[0]) boxes[0].setAttribute("tabindex", 0);
  return { tree, links };
}
