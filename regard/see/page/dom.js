// Elements, keys and numbers: what every drawing needs.

const SVG = new Set(["svg", "g", "line", "path", "rect", "circle", "text", "title"]);

/** An element: "tag.class", attributes, --variables and onevents, children. Text from a model only
 *  ever becomes text nodes, so that it cannot be markup. */
export function make(name, given = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  const element = SVG.has(tag)
    ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  if (classes.length) element.classList.add(...classes);
  for (const [key, value] of Object.entries(given)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("--")) element.style.setProperty(key, value);
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat().filter(child => child !== undefined && child !== null && child !== ""));
  return element;
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
export const ACROSS = { ArrowRight: 1, ArrowLeft: -1 };
export const DOWN = { ArrowDown: 1, ArrowUp: -1 };

export const number = (value, digits = 3) => value && Math.abs(value) < 0.5 * 10 ** -digits
  ? value.toExponential(1) : value.toFixed(digits);
export const short = value => String(+value.toFixed(2)); // 112, not 112.00
export const percent = share => share > 0 && share < 0.0005 ? "< 0.1 %" : `${(100 * share).toFixed(share < 0.0995 && share > 0 ? 1 : 0)} %`;

/** Pixels of so many rem: drawings grow with the type. */
export const rem = count => count * parseFloat(getComputedStyle(document.documentElement).fontSize);

/** The address's state, and back. */
export const stateOf = hash => Object.fromEntries(new URLSearchParams(hash.replace(/^#/, "")));
export const hashOf = state =>
  "#" + new URLSearchParams(Object.entries(state).filter(([, value]) => value !== undefined && value !== ""));

/** A table's cell with a bar behind its number. */
export const bar = (share, text) => make("td.bar", { "--w": `${(100 * Math.max(0, Math.min(1, share))).toFixed(1)}%` },
  make("span", {}, text));

export function table(heads, rows, kind = "") {
  return make("div.scroll", {}, make(`table.numbers${kind}`, {},
    make("thead", {}, make("tr", {}, heads.map(text => make("th", { scope: "col" }, text)))),
    make("tbody", {}, rows)));
}

/** A choice that is kept in the page's state. */
export const tick = (page, key, text, checked, value) => make("label.tick", {}, make("input", { type: "checkbox", checked,
  "data-key": key, onchange: event => page.change({ [key]: value(event.target.checked) }) }), text);

export function choose(page, key, label, options, value) {
  const change = event => page.change({ [key]: event.target.value });
  return make("label.pick", {}, make("span", {}, label), make("select", { "data-key": key, onchange: change },
    options.map(([option, text]) => make("option", { value: option, selected: String(option) === String(value) }, text))));
}
