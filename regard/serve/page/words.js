// The words of input and answer, each named as the drawings name it, so that they light up together.

import { make } from "./dom.js";
import { shared, spell, special, word, wordsOf } from "./tokens.js";

const MOST = 400; // words of an input that are set beside it

/** A text's words as `wanted` (source, inputs, outputs) has them, with their pieces and shared names. */
function sideOf(data, wanted, joined) {
  for (const look of data.looks ?? []) {
    for (const role of ["column", "row"]) {
      const kind = look[`${role}_kind`] ?? "words", tokens = role === "row" ? look.rows : look.columns;
      if (look[`${role}_side`] !== wanted || kind !== "words") continue;
      const groups = joined ? wordsOf(tokens, kind) : tokens.map((_, at) => [at]);
      return groups.map((pieces, at) => ({ text: spell(tokens, pieces), pieces: pieces.map(piece => tokens[piece]), name: shared(look, data.looks, role, at) }));
    }
  }
  return [];
}

/** Where words stand in a text: those that are found, one after the other. */
function placed(words, text) {
  const found = [];
  let from = 0;
  words.forEach(({ text: spelled, name }, number) => {
    const shown = word(spelled) === "⏎" ? "\n" : word(spelled), at = text.indexOf(shown, from);
    if (at < 0 || (found.length && at - from > 12)) return;
    found.push({ from: at, to: at + shown.length, name, number });
    from = at + shown.length;
  });
  return found;
}

const marked = (text, name) => make("span.word", { "data-word": name, "data-role": "word" }, text);

/** Name the words of the answer that stands in `box`; `before` letters of the text are the prompt's. */
function nameAnswer(box, words, whole, before) {
  const places = placed(words, whole).map(one => ({ ...one, from: one.from - before, to: one.to - before })).filter(one => one.to > 0);
  const pieces = [...box.querySelectorAll(".piece")], text = box.textContent;
  if (pieces.length > 1) { // they carry their chances already
    let from = 0;
    for (const piece of pieces) {
      const to = from + piece.textContent.length, own = places.find(one => one.from < to && one.to > from);
      if (own) Object.assign(piece.dataset, { word: own.name, role: "word" });
      from = to;
    }
    return;
  }
  const parts = [];
  let at = 0;
  for (const { from, to, name } of places) {
    if (from < at) continue;
    parts.push(text.slice(at, from), marked(text.slice(from, to), name));
    at = to;
  }
  box.replaceChildren(...parts, text.slice(at));
}

/** The input as the model reads it, and the answer, as words that drawings share. */
export function nameWords(data, joined, { reading, answer }, input) {
  const source = sideOf(data, "source", joined), inputs = sideOf(data, "inputs", joined);
  const story = [...sideOf(data, "story", joined), ...sideOf(data, "question", joined)];
  const writes = (data.looks ?? []).some(look => look.column_side === "source");
  const outputs = writes ? sideOf(data, "outputs", joined) : [];
  let read = typeof input === "object" && !Array.isArray(input) ? [] : source.length ? source : inputs.length ? inputs : story;
  if (outputs.length) nameAnswer(answer, outputs, answer.textContent, 0);
  else if (typeof input === "string" && inputs.length && answer.querySelector(".piece")) { // a prompt, and how it went on
    const whole = input + answer.textContent, places = placed(inputs, whole), last = places.findLast(one => one.from < input.length)?.number ?? 0;
    nameAnswer(answer, inputs, whole, input.length);
    read = inputs.slice(0, last + 1);
  }
  reading.replaceChildren(...read.slice(0, MOST).map(({ text, pieces, name }) => {
    const element = marked("", name);
    if (special(text)) element.classList.add("special");
    element.append(...(pieces.length > 1 ? pieces.map(one => make("i", {}, word(one.replace(/^##/, "")))) : [word(text)]));
    return element;
  }), read.length > MOST ? "…" : "");
  reading.hidden = !read.length;
}
