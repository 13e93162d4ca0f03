// What is drawn, as an SVG file: each box, line, picture and word where the browser has put it.

const SVG = "http://www.w3.org/2000/svg";
const STROKES = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "opacity",
  "font-family", "font-size", "font-weight", "text-anchor", "dominant-baseline", "paint-order", "vector-effect"];

function node(name, given, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(given)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}
const visible = colour => colour && colour !== "transparent" && !/, 0\)$/.test(colour);

/** A drawing inside the page, with its style written into it. */
function inlined(drawing, place) {
  const copy = drawing.cloneNode(true);
  const all = [drawing, ...drawing.querySelectorAll("*")], copies = [copy, ...copy.querySelectorAll("*")];
  all.forEach((element, at) => {
    const style = getComputedStyle(element);
    for (const name of STROKES) if (style.getPropertyValue(name)) copies[at].setAttribute(name, style.getPropertyValue(name));
    for (const name of ["class", "tabindex", "role", "style", "data-word", "data-role"]) copies[at].removeAttribute(name);
  });
  for (const [key, value] of Object.entries(place)) copy.setAttribute(key, value);
  return copy;
}

/** The lines of a text node, each with its place. */
function* lines(text) {
  const range = document.createRange();
  let line = null;
  for (const { index, 0: part } of text.data.matchAll(/\S+\s*/g)) {
    range.setStart(text, index);
    range.setEnd(text, index + part.trimEnd().length);
    const box = range.getBoundingClientRect();
    if (!box.width) continue;
    if (line && Math.abs(line.box.top - box.top) < 2) line.words += part;
    else {
      if (line) yield line;
      line = { words: part, box };
    }
  }
  if (line) yield line;
}

/** A box's paper, border and the bar behind its number. */
function* boxes(element, style, box, at) {
  if (visible(style.backgroundColor)) yield node("rect", { ...at(box), fill: style.backgroundColor, rx: parseFloat(style.borderRadius) || 0 });
  const share = parseFloat(element.style.getPropertyValue("--w"));
  if (share > 0 && style.backgroundImage !== "none") {
    const wide = box.width * Math.min(1, share / 100), left = element.closest(".from") ? box.right - wide : box.left;
    const colour = /(?:rgba?|oklch|oklab|color)\([^()]*\)/.exec(style.backgroundImage)?.[0] ?? "#ccc";
    yield node("rect", { ...at({ left, top: box.top, width: wide, height: box.height }), fill: colour });
  }
  if (parseFloat(style.borderBottomWidth) > 0 && visible(style.borderBottomColor)) {
    const { x, y, width, height } = at(box), line = { stroke: style.borderBottomColor, "stroke-width": style.borderBottomWidth };
    yield parseFloat(style.borderTopWidth) > 0 ? node("rect", { x, y, width, height, fill: "none", ...line, rx: parseFloat(style.borderRadius) || 0 })
      : node("line", { x1: x, x2: x + width, y1: y + height, y2: y + height, ...line });
  }
}

/** An element of the page as SVG; a select is what is chosen in it. */
export function asSvg(root) {
  const whole = root.getBoundingClientRect(), pad = 12;
  const at = ({ left, top, width, height }) => ({ x: +(left - whole.left + pad).toFixed(2), y: +(top - whole.top + pad).toFixed(2),
    width: +width.toFixed(2), height: +height.toFixed(2) });
  const size = { width: Math.ceil(Math.max(whole.width, root.scrollWidth) + 2 * pad), height: Math.ceil(whole.height + 2 * pad) };
  const svg = node("svg", { xmlns: SVG, ...size, viewBox: `0 0 ${size.width} ${size.height}` });
  svg.append(node("rect", { ...size, fill: getComputedStyle(document.body).backgroundColor }));
  (function walk(element, faint) {
    const style = getComputedStyle(element), box = element.getBoundingClientRect();
    if (style.display === "none" || style.visibility === "hidden" || !box.width || element.matches(".controls button")) return;
    const opacity = faint * parseFloat(style.opacity); // of what it stands in, too
    if (element instanceof SVGSVGElement) return svg.append(inlined(element, at(box)));
    if (element instanceof HTMLCanvasElement) return svg.append(node("image", { ...at(box), href: element.toDataURL(), preserveAspectRatio: "none", "image-rendering": "pixelated" }));
    if (element instanceof HTMLImageElement) return svg.append(node("image", { ...at(box), href: element.src, preserveAspectRatio: "none", "image-rendering": "pixelated" }));
    for (const drawn of boxes(element, style, box, at)) {
      if (opacity < 1) drawn.setAttribute("opacity", opacity.toFixed(3));
      svg.append(drawn);
    }
    const font = { fill: style.color, "font-family": style.fontFamily, "font-size": style.fontSize, "font-weight": style.fontWeight };
    const write = (words, place) => svg.append(node("text", { x: at(place).x, y: at(place).y + at(place).height / 2, "dominant-baseline": "central", ...font }, words.trimEnd()));
    if (element instanceof HTMLSelectElement) return write(element.selectedOptions[0]?.textContent ?? "", box);
    for (const child of element.childNodes) {
      if (child.nodeType === Node.TEXT_NODE) for (const line of lines(child)) write(line.words, line.box);
      else if (child.nodeType === Node.ELEMENT_NODE) walk(child, opacity);
    }
  })(root, 1);
  return new XMLSerializer().serializeToString(svg);
}

/** Give it to the reader as a file. */
export function saveDrawing(root, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([asSvg(root)], { type: "image/svg+xml" }));
  link.download = `${name}.svg`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
