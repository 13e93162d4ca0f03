// What a head looks at, by name: the kinds of `regard heads`, of the one text that is shown.

import { looksAtItself } from "./tokens.js";

const NAMED_FROM = 0.5; // a head is named by a kind on which at least so much of its weight falls
const BROAD_FROM = 0.9; // or as broad, where it looks so evenly
const ENDS = new Set(["[SEP]", "[CLS]", "<s>", "</s>", "<eos>", "<bos>", "<pad>", "<|endoftext|>"]);
const plain = token => token.replace(/[▁Ġ]/g, " ").trim() || token;

/** Of each token: its letters, and whether it ends a text or is punctuation. */
const facts = tokens => tokens.map(token => {
  const end = ENDS.has(token);
  return { letters: plain(token).toLowerCase(), end, point: !end && !/[\p{L}\p{N}]/u.test(plain(token)) };
});
const same = (tokens, t, s) => t !== s && tokens[t].letters === tokens[s].letters;

/** Each: whether a place counts for it, of tokens that look at themselves. */
const ITSELF = {
  previous: (_, t, s) => s === t - 1,
  next: (_, t, s) => s === t + 1,
  itself: (_, t, s) => s === t,
  first: (_, t, s) => t > 0 && s === 0,
  separator: (tokens, _, s) => s > 0 && tokens[s].end,
  punctuation: (tokens, _, s) => tokens[s].point,
  same,
  induction: (tokens, t, s) => s > 0 && s <= t && same(tokens, t, s - 1),
};
/** The same where one text looks at another. */
const ANOTHER = { first: (_, t, s) => s === 0, separator: ITSELF.separator, punctuation: ITSELF.punctuation };

const WORDS = {
  previous: "the word before", next: "the next word", itself: "itself", first: "the first word",
  separator: "the sign that ends the text", punctuation: "punctuation", same: "the same word elsewhere",
  induction: "what followed the same word before", broad: "everything alike", mixed: "various words",
};
export const inWords = kind => WORDS[kind] ?? kind;

/** How much of a head's weight falls on a kind's places, over the rows that have such a place. */
function share(weights, counts, visible) {
  let sum = 0, rows = 0;
  weights.forEach((row, t) => {
    let own = 0, any = false;
    for (let s = 0; s < row.length; s++) {
      if (visible[t][s] && counts(t, s)) { any = true; own += row[s]; }
    }
    if (any) { sum += own; rows += 1; }
  });
  return rows ? sum / rows : 0;
}

/** How evenly all that may be seen is looked at, from 0 to 1. */
function evenness(weights, visible) {
  let sum = 0, rows = 0;
  weights.forEach((row, t) => {
    const amount = visible[t].reduce((count, seen) => count + seen, 0);
    if (amount < 2) return;
    let entropy = 0;
    for (const weight of row) if (weight > 0) entropy -= weight * Math.log(weight);
    sum += entropy / Math.log(amount);
    rows += 1;
  });
  return rows ? sum / rows : 0;
}

// What no head ever looks at may not be seen, as what comes later in a language model.
const seen = looks => looks[0].rows.map((_, t) => {
  const row = new Uint8Array(looks[0].columns.length);
  for (const look of looks) for (const weights of look.weights) for (let s = 0; s < row.length; s++) if (weights[t][s] > 0) row[s] = 1;
  return row;
});

const MOST = 4_000_000; // weights of one kind, beyond which heads are not named: the page would stall
const kept = new WeakMap();

/** The kind of each head of a layer, and its share, of layers of one kind of attention. */
export function kindsOf(look, stack) {
  if (kept.has(look)) return kept.get(look);
  const like = stack.filter(other => other.rows.length === look.rows.length && other.columns.length === look.columns.length);
  const size = like.length * look.weights.length * look.rows.length * look.columns.length;
  if (size > MOST || (look.column_kind ?? "words") !== "words" || (look.row_kind ?? "words") !== "words" || look.rows.length < 2) return [];
  const visible = seen(like), tokens = facts(look.columns), table = isSquare(look) ? ITSELF : ANOTHER;
  const kinds = look.weights.map(weights => {
    let best = { kind: "mixed", share: 0 };
    for (const [kind, counts] of Object.entries(table)) {
      const amount = share(weights, (t, s) => counts(tokens, t, s), visible);
      if (amount > best.share) best = { kind, share: amount };
    }
    if (best.share >= NAMED_FROM) return best;
    const even = evenness(weights, visible);
    return even >= BROAD_FROM ? { kind: "broad", share: even } : { kind: "mixed", share: best.share };
  });
  kept.set(look, kinds);
  return kinds;
}

/** A text at itself; what a writer looks from has the names of what it writes next. */
const isSquare = look => looksAtItself(look) || look.column_side === "inputs";
