// An answer as it comes: text in pieces with their chances, a label with those of all labels.

import { ask, askJson, events } from "./api.js";
import { make, percent, rove } from "./dom.js";
import { word } from "./tokens.js";

const $ = id => document.getElementById(id);
const chance = logprob => percent(Math.exp(logprob));

export function clearAnswer() {
  for (const name of ["answer", "speed", "more"]) $(name).replaceChildren();
  $("chance").hidden = true;
}

/** What stood for choice at each token of a piece of the answer. */
function chances({ tokens, token_logprobs: own = [], top_logprobs: tops = [] }) {
  return tokens.map((token, at) => {
    const others = Object.entries(tops?.[at] ?? {}).sort((one, two) => two[1] - one[1])
      .map(([other, logprob]) => `“${word(other)}” ${chance(logprob)}`);
    return `“${word(token)}” ${typeof own[at] === "number" ? chance(own[at]) : ""}${others.length ? `; candidates: ${others.join(", ")}` : ""}`;
  }).join("\n");
}

function piece(text, logprobs) {
  const element = make("span.piece", { tabindex: -1 }, text);
  if (!logprobs) return element;
  const said = chances(logprobs);
  const tell = () => { $("chance").hidden = false; $("chance").textContent = said; };
  element.title = said;
  if (logprobs.token_logprobs?.some(value => value < Math.log(0.5))) element.classList.add("unsure");
  element.addEventListener("mouseenter", tell);
  element.addEventListener("focus", tell);
  return element;
}

/** Written piece by piece. */
export async function stream(path, body, signal) {
  const began = performance.now(), pieces = [], box = make("span");
  let count = 0, waiting = [], usage = 0, seed = "";
  clearAnswer();
  $("answer").replaceChildren(box);
  const timing = () => {
    const seconds = (performance.now() - began) / 1000, tokens = usage || count;
    $("speed").textContent = (tokens ? `${tokens} tokens in ${seconds.toFixed(2)} s, ${(tokens / seconds).toFixed(0)} a second` : `${seconds.toFixed(2)} s`) + seed;
  };
  try {
    for await (const chunk of events(await ask(path, body, signal))) {
      usage = chunk.usage?.completion_tokens ?? usage;
      seed = chunk.seed === undefined ? "" : `, seed ${chunk.seed}`;
      const choice = chunk.choices?.[0];
      if (!choice) continue;
      if (choice.logprobs?.tokens?.length) waiting.push(choice.logprobs);
      count += choice.logprobs?.tokens?.length ?? (choice.text ? 1 : 0);
      if (choice.text) { // a token may be half a letter; its numbers then wait for the rest
        const merge = name => waiting.flatMap(one => one[name] ?? []);
        const logprobs = waiting.length && { tokens: merge("tokens"), token_logprobs: merge("token_logprobs"), top_logprobs: merge("top_logprobs") };
        waiting = [];
        pieces.push(piece(choice.text, logprobs));
        box.append(pieces.at(-1));
      }
      timing();
    }
  } finally {
    timing();
    rove(box, pieces, { ArrowRight: 1, ArrowLeft: -1 });
  }
}

let earlier = null; // chances before the last edit
export const forget = () => { earlier = null; };

/** Whole: a label, tags, a span, a decision. `compares` shows what an edit has changed. */
export async function predict(path, body, signal, compares) {
  const began = performance.now();
  const said = await askJson(path, body, signal);
  const { input: _, output, seconds, probabilities, label: __, warning, ...others } = said[0] ?? {};
  clearAnswer();
  const text = output ?? JSON.stringify(said[0] ?? said);
  $("answer").replaceChildren(text.startsWith("data:image/") ? make("img", { src: text, alt: "the picture, what is left of it, and how it is filled in" }) : text);
  $("speed").textContent = `${(seconds ?? (performance.now() - began) / 1000).toFixed(3)} s`;
  const rows = Object.entries(probabilities ?? {}).sort((one, two) => two[1] - one[1]).map(([label, share]) => {
    const more = compares && earlier ? share - (earlier[label] ?? 0) : 0;
    const change = Math.abs(more) >= 0.0005 ? make("td.change", {}, `${more > 0 ? "+" : "−"}${Math.abs(more).toFixed(3)}`) : [];
    return make("tr", {}, make("th", { scope: "row" }, label), make("td.bar", { "--w": `${100 * share}%` }, make("span", {}, percent(share))), change);
  });
  earlier = probabilities ?? null;
  $("more").replaceChildren(warning ? make("p.warning", {}, `${warning}.`) : "", rows.length ? make("table.numbers.chances", {}, make("tbody", {}, rows)) : "", details(others));
}

/** What else an answer says; it is seldom looked at. */
function details(others) {
  const rows = Object.entries(others).map(([name, value]) => {
    const text = typeof value === "string" ? value : JSON.stringify(value);
    return make("tr", {}, make("th", { scope: "row" }, name), make("td.text", {}, text.length > 600 ? text.slice(0, 600) + " …" : text));
  });
  return rows.length ? make("details", {}, make("summary", {}, "more of this answer"), make("table.numbers", {}, make("tbody", {}, rows))) : "";
}

/** How alike texts are: the cosines of their vectors with the first one's. */
export async function compare(run, texts, signal) {
  const began = performance.now();
  const { data } = await askJson("/v1/embeddings", { model: run.id, input: texts }, signal);
  const [first, ...others] = data.map(row => row.embedding);
  const size = vector => Math.hypot(...vector), dot = (one, two) => one.reduce((sum, value, at) => sum + value * two[at], 0);
  clearAnswer();
  $("speed").textContent = `${((performance.now() - began) / 1000).toFixed(3)} s`;
  if (!others.length) {
    $("answer").textContent = `A vector of ${first.length} numbers: ${first.slice(0, 4).map(value => value.toFixed(2)).join(", ")} …`;
    return;
  }
  const cosines = others.map(vector => dot(first, vector) / (size(first) * size(vector)));
  $("answer").textContent = `${cosines[0].toFixed(2)} alike`;
  $("more").replaceChildren(make("table.numbers.chances", { id: "cosines" }, make("tbody", {}, cosines
    .map((cosine, at) => [cosine, texts[at + 1]]).sort((one, two) => two[0] - one[0])
    .map(([cosine, text]) => make("tr", {}, make("th.text", { scope: "row" }, text), make("td.bar", { "--w": `${100 * Math.max(0, cosine)}%` }, make("span", {}, cosine.toFixed(2))))))));
}
