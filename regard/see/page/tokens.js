// Tokens and words, and the weights between them.

/** What rows and columns can stand for: whether pieces of one can be joined. */
const AXES = {
  words: { joins: true },
  sentences: { joins: false },
  patches: { joins: false },
  steps: { joins: false },
  nodes: { joins: false },
  history: { joins: false },
};
export const joins = kind => AXES[kind ?? "words"]?.joins ?? false;

export const special = token => /^(<[^<>\s]+>|\[[A-Z]+\])$/.test(token) && !token.startsWith("<0x");
export const word = token => token.replace(/[▁Ġ]/g, " ").replace(/[Ċ\n]/g, "⏎").trim() || "␣";
export const quote = token => `“${word(token)}”`;
export const strongest = (weights, many) => Array.from(weights.keys())
  .sort((one, two) => weights[two] - weights[one]).slice(0, many);

/** Whether rows and columns are the same text. */
export const looksAtItself = look =>
  look.rows.length === look.columns.length && look.rows.every((token, at) => token === look.columns[at]);

/** Whether a text is told letter by letter, with spaces between its words. */
const inLetters = tokens => tokens.includes(" ") && tokens.every(token => special(token) || [...token].length === 1);
export const inPieces = tokens => tokens.some(token => /^(▁|Ġ|##)/.test(token)) || inLetters(tokens);

/** The places of the pieces of each word. */
export function wordsOf(tokens, kind) {
  if (!joins(kind)) return tokens.map((_, at) => [at]);
  if (inLetters(tokens)) {
    const apart = token => special(token) || /^[\s⏎]$/.test(token) || isPoint(token);
    const groups = [];
    tokens.forEach((token, at) => { // as pieces of words do, letters have the space before them
      const before = tokens[at - 1];
      if (at > 0 && !apart(token) && (before === " " || !apart(before))) groups.at(-1).push(at);
      else groups.push([at]);
    });
    return groups;
  }
  const marked = tokens.some(token => /^[▁Ġ]/.test(token));
  const groups = [];
  tokens.forEach((token, at) => {
    const before = tokens[at - 1];
    const goesOn = at > 0 && !special(token) && !special(before) && !before.endsWith("Ċ")
      && (token.startsWith("##") || (marked && !/^[▁ĠĊ⏎]/.test(token) && !isPoint(token)));
    if (goesOn) groups.at(-1).push(at);
    else groups.push([at]);
  });
  return groups;
}
const isPoint = token => /^[.,;:!?…。、]+$/.test(token); // a full stop is no part of the word before it

export const spell = (tokens, pieces) =>
  pieces.map((at, first) => first ? tokens[at].replace(/^##/, "") : tokens[at]).join("");

/** The weight that is drawn in full: the largest, or, where all are much alike, four times an even share. */
export const full = weights => Math.max(...weights, Math.min(1, 4 / weights.length), 1e-9);

export function average(all) {
  return all[0].map((row, t) => {
    const sum = new Float32Array(row.length);
    for (const weights of all) for (let s = 0; s < sum.length; s++) sum[s] += weights[t][s] / all.length;
    return sum;
  });
}

// What a word gets is the sum over its pieces; what it gives is their mean, so that rows still sum to 1.
function joined(weights, rows, columns) {
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
export function picture(look, head, words) {
  if (!kept.has(look)) kept.set(look, new Map());
  const known = kept.get(look);
  const key = `${head} ${words}`;
  if (!known.has(key)) {
    const weights = head === "mean" ? average(look.weights) : look.weights[head];
    const rows = wordsOf(look.rows, look.row_kind), columns = wordsOf(look.columns, look.column_kind);
    known.set(key, words
      ? { rows: rows.map(pieces => spell(look.rows, pieces)), first: rows.map(pieces => pieces[0]),
          columns: columns.map(pieces => spell(look.columns, pieces)), weights: joined(weights, rows, columns) }
      : { rows: look.rows, first: look.rows.map((_, at) => at), columns: look.columns, weights });
  }
  return known.get(key);
}

/** The mean over the heads of all layers that have the first one's shape. */
export function overLayers(stack, words) {
  const all = stack.map(look => picture(look, "mean", words)).filter((drawn, _, [first]) =>
    drawn.rows.length === first.rows.length && drawn.columns.length === first.columns.length);
  return { ...all[0], weights: average(all.map(drawn => drawn.weights)) };
}

/** What each place of the first layer counts for in the last: half of every vector stays itself
 *  (Abnar and Zuidema 2020). */
export function rollout(stack) {
  let whole = null;
  for (const look of stack) {
    const { weights } = picture(look, "mean", false), size = weights.length;
    const mixed = weights.map((row, t) => Array.from(row, (weight, s) => 0.5 * weight + (s === t ? 0.5 : 0)));
    whole = whole === null ? mixed : mixed.map(row => {
      const sum = new Float32Array(size);
      row.forEach((weight, t) => { if (weight > 1e-6) whole[t].forEach((value, s) => { sum[s] += weight * value; }); });
      return Array.from(sum);
    });
  }
  return whole;
}

// Which attention, in words a listener knows

const SIDES = { source: "input", outputs: "answer", inputs: "text", question: "question", story: "story", steps: "steps" };
const THINGS = { patches: "picture", nodes: "nodes", history: "steps", frames: "sound", sentences: "story" };

/** What a kind of attention looks from and to: "answer → input". */
export function between(look, all) {
  const writes = all.some(other => other.row_side === "source" || other.column_side === "source");
  const name = role => {
    const side = look[`${role}_side`];
    if (writes && side === "inputs") return "answer";
    return THINGS[look[`${role}_kind`]] ?? SIDES[side] ?? side;
  };
  if (!look.row_side) return look.kind;
  const [from, to] = [name("row"), name("column")];
  const near = look.kind.endsWith(".local");
  if (near && look.column_kind === "nodes") return "nodes → neighbours";
  const local = near ? " (near)" : "";
  return (from === to ? `${from} → itself` : `${from} → ${to}`) + local;
}

/** A word that rows and columns of several attentions share: "answer 3". What a writer reads stands
 *  one place behind what it writes. */
export function shared(look, all, role, at) {
  const side = role === "row" ? look.row_side : look.column_side;
  const writes = all.some(other => other.row_side === "source" || other.column_side === "source");
  if (!side) return `${looksAtItself(look) ? "text" : role} ${at}`;
  if (side === "inputs" && writes) return `outputs ${at - 1}`;
  return `${side} ${at}`;
}
