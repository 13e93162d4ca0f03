// Deeper looks, drawn by the server; as an image its SVG can do nothing.

import { askJson } from "./api.js";
import { make } from "./dom.js";

const $ = id => document.getElementById(id);
const OF_TOKEN = ["field", "word"], OF_SENTENCES = ["word", "heads"];

export function showFields() {
  $("token-field").hidden = !OF_TOKEN.includes($("view").value);
  $("sentences-field").hidden = !OF_SENTENCES.includes($("view").value);
}

export async function inspect(run, input, signal) {
  const view = $("view").value;
  const inputs = OF_SENTENCES.includes(view) ? $("sentences").value.split("\n").filter(line => line.trim()) : [input];
  $("inspect").disabled = true;
  try {
    const body = { model: run?.id, view, inputs, token: OF_TOKEN.includes(view) ? $("token").value : "" };
    const { svg } = await askJson("/inspect", body, signal);
    const alt = $("view").selectedOptions[0].textContent + (body.token ? `: ${body.token}` : "");
    $("drawn").replaceChildren(make("img", { src: `data:image/svg+xml,${encodeURIComponent(svg)}`, alt }));
  } finally {
    $("inspect").disabled = false;
  }
}
