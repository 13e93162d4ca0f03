// Colours: a ramp whose steps look equally large to every eye, on light and on dark paper.

import { make } from "./dom.js";

/** Lightness, and two opposed hues, of the ramp's stops (OKLab): light falls evenly, blue grows. */
const LIGHT = [[0.985, -0.002, 0.004], [0.86, -0.025, -0.05], [0.72, -0.035, -0.095], [0.58, -0.03, -0.135], [0.44, -0.01, -0.145], [0.29, 0.0, -0.1]];
const DARK = [[0.205, -0.003, -0.012], [0.34, -0.01, -0.06], [0.48, -0.025, -0.1], [0.64, -0.045, -0.1], [0.8, -0.05, -0.06], [0.96, -0.01, 0.01]];
const BOTH = [[0.44, -0.02, -0.14], [0.72, -0.03, -0.08], [0.96, 0.0, 0.005], [0.78, 0.05, 0.1], [0.55, 0.09, 0.11]]; // blue, none, orange
export const CHOSEN = "255, 120, 0"; // what lies on a picture or along a history

function rgb([light, a, b]) {
  const l = (light + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (light - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (light - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s]
    .map(part => Math.max(0, Math.min(1, part)))
    .map(part => Math.round(255 * (part <= 0.0031308 ? 12.92 * part : 1.055 * part ** (1 / 2.4) - 0.055)));
}

/** 256 colours between the stops, as rgb bytes. */
function shades(stops) {
  return Array.from({ length: 256 }, (_, at) => {
    const place = at / 255 * (stops.length - 1), low = Math.min(Math.floor(place), stops.length - 2);
    return rgb(stops[low].map((value, part) => value + (stops[low + 1][part] - value) * (place - low)));
  });
}
const TABLES = { light: shades(LIGHT), dark: shades(DARK), both: shades(BOTH) };

/** Whether the page is dark: by its switch, else as the system has it. */
export const dark = () => document.documentElement.dataset.theme
  ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
export const ramp = () => TABLES[dark() ? "dark" : "light"];
export const opposed = () => TABLES.both;
export const shade = (colours, share) => `rgb(${colours[Math.max(0, Math.min(255, Math.round(255 * share)))].join(", ")})`;

/** A canvas with one pixel a cell; `share` gives 0 to 1. */
export function bitmap(height, width, colours, share) {
  const canvas = make("canvas", { width, height });
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(width, height);
  for (let t = 0, at = 0; t < height; t++) {
    for (let s = 0; s < width; s++, at += 4) {
      const colour = colours[Math.max(0, Math.min(255, Math.round(share(t, s) * 255)))];
      image.data[at] = colour[0];
      image.data[at + 1] = colour[1];
      image.data[at + 2] = colour[2];
      image.data[at + 3] = 255;
    }
  }
  pen.putImageData(image, 0, 0);
  return canvas;
}

export function most(weights) {
  let high = 1e-9;
  for (const row of weights) for (const weight of row) if (weight > high) high = weight;
  return high;
}

export function legend(colours, labels) {
  const strip = bitmap(1, 64, colours, (_, s) => s / 63);
  strip.setAttribute("aria-hidden", "true");
  return make("p.legend", {}, make("span", {}, labels[0]), strip, make("span", {}, labels[1]));
}
