// One head step by step, with this sentence's numbers: a word asks, all words answer, and what fits is
// mixed. The arithmetic is done here again from queries and keys, so that it can be followed.

import { ACROSS, bar, make, number, percent, rove, short, table } from "./dom.js";
import { opposed, shade } from "./colour.js";
import { quote, strongest, word } from "./tokens.js";

const STAGES = ["query", "key", "score", "softmax", "mix"];
const TITLES = { query: "Query", key: "Key", score: "Score", softmax: "Softmax", mix: "Mix" };

const dot = (one, two) => one.reduce((sum, value, at) => sum + value * two[at], 0);

/** The arithmetic of one query: products, scaled, what is added by place, exponentials, shares. */
export function arithmetic(look, head, t) {
  const query = look.queries?.[head]?.[t], keys = look.keys?.[head], told = look.scores?.[head]?.[t];
  const size = query?.length, scale = look.scale ?? (size && told ? null : undefined);
  const products = query && keys.map(key => dot(query, key));
  const scores = told?.map(score => score === null ? null : score);
  const high = scores && Math.max(...scores.filter(score => score !== null));
  const powers = scores?.map(score => score === null ? 0 : Math.exp(score - high));
  const sum = powers?.reduce((all, power) => all + power, 0);
  const shares = powers ? powers.map(power => power / sum) : look.weights[head][t];
  const values = look.values?.[head];
  const mixed = values?.[0]?.map((_, part) => values.reduce((all, value, s) => all + shares[s] * value[part], 0));
  return { query, keys, size, scale, products, scores, high, powers, sum, shares, values, mixed };
}

/** A vector as a strip of colours: blue below nothing, orange above. */
function strip(vector, most, title) {
  const cells = Array.from(vector, value => {
    const cell = make("i");
    cell.style.backgroundColor = shade(opposed(), 0.5 + 0.5 * Math.max(-1, Math.min(1, value / most)));
    return cell;
  });
  return make("span.strip", { role: "img", "aria-label": title, title: `${title}: ${Array.from(vector).slice(0, 8).map(short).join(", ")}${vector.length > 8 ? " …" : ""}` }, cells);
}
const largest = vectors => Math.max(1e-9, ...vectors.flatMap(vector => Array.from(vector, Math.abs)));

/** What happens at a stage, said with the numbers of the word that fits best. */
function telling(stage, sums, look, t) {
  const asks = quote(look.rows[t]), best = strongest(sums.shares, 1)[0], fits = quote(look.columns[best]);
  const { query, keys, products, scores, scale, powers, sum, shares } = sums;
  const product = () => query.slice(0, 3).map((value, at) => `${short(value)} × ${short(keys[best][at])}`).join(" + ");
  return {
    query: () => query
      ? `${asks} asks a question: its vector, multiplied by this head’s query weights, gives ${query.length} numbers.`
      : `${asks} asks a question: its query. (Its numbers are not told here.)`,
    key: () => keys
      ? `Every word that may be looked at holds up a key, also ${keys[0].length} numbers: what it could answer. The key of ${fits} fits best.`
      : "Every word that may be looked at holds up a key: what it could answer.",
    score: () => !scores ? "How well a key fits the query is its score; this head’s way of scoring is not told here."
      : products
        ? `Query and key are multiplied number by number and added up. For ${fits}: ${product()} + … = ${short(products[best])}.`
          + (scale ? ` Times ${+scale.toPrecision(3)} (one over the root of ${Math.round(1 / scale ** 2)}): ${short(scores[best])}.`
            : ` Scaled, and with what the places add: ${short(scores[best])}.`)
        : `How well ${fits}’s key fits the query: ${short(scores[best])}.`,
    softmax: () => powers
      ? `Scores become shares of 100 %: e to each score, divided by the sum of all. For ${fits}: ${number(powers[best], 2)} of ${number(sum, 2)} makes ${percent(shares[best])}. (The largest score is taken off first, which changes nothing.)`
      : `Scores become shares of 100 %: ${fits} gets ${percent(shares[best])}.`,
    mix: () => `Every word also has a value: what it passes on. ${asks} receives ${percent(shares[best])} of the value of ${fits}`
      + `, and of the others’ as much as their share. The sum goes on to the next layer.`,
  }[stage]();
}

const masked = "may not be seen";

/** A row for each word that is looked at, with as many columns as the story has come to. */
function rows(stage, sums, look) {
  const at = STAGES.indexOf(stage), { keys, products, scores, shares, powers, sum, values } = sums;
  const best = strongest(shares, 1)[0], keyed = keys && largest(keys), valued = values && largest(values);
  return look.columns.map((token, s) => {
    const hidden = scores && scores[s] === null;
    const cells = [
      at >= 1 && keys && make("td", {}, strip(keys[s], keyed, `key of ${word(token)}`)),
      at >= 2 && products && make("td", {}, hidden ? "" : short(products[s])),
      at >= 2 && scores && make("td.score", { "data-value": hidden ? "" : scores[s] }, hidden ? masked : short(scores[s])),
      at >= 3 && powers && make("td", {}, hidden ? "0" : number(powers[s], 2)),
      at >= 3 && make("td.bar.share", { "--w": `${(100 * shares[s]).toFixed(1)}%`, "data-value": shares[s] }, make("span", {}, percent(shares[s]))),
      at >= 4 && values && make("td.values", { "--o": String(0.15 + 0.85 * shares[s] / shares[best]) }, strip(values[s], valued, `value of ${word(token)}`)),
    ];
    return make(s === best && at >= 2 ? "tr.best" : "tr", {}, make("th", { scope: "row" }, word(token)), cells.filter(Boolean));
  });
}

function heads(stage, { keys, products, scores, powers, values, scale }) {
  const at = STAGES.indexOf(stage);
  return ["word", at >= 1 && keys && "key", at >= 2 && products && "query · key", at >= 2 && scores && (scale ? `score (× ${+scale.toPrecision(3)})` : "score"),
    at >= 3 && powers && "e to the score", at >= 3 && "share", at >= 4 && values && "value × share"].filter(Boolean);
}

export function storyView(page) {
  const head = page.heads[0] === "mean" ? 0 : page.heads[0];
  const look = page.inside(page.look, head); // with its queries and keys, where they can be had
  const own = look === page.look ? head : 0; // what was fetched has this head alone
  const stage = STAGES.includes(page.state.stage) ? page.state.stage : "query";
  const t = Math.max(0, Math.min(look.rows.length - 1, page.token));
  const sums = arithmetic(look, own, t), at = STAGES.indexOf(stage);
  const go = next => page.change({ stage: STAGES[Math.max(0, Math.min(STAGES.length - 1, next))] });
  const steps = STAGES.map((name, place) => make("button.stage", { type: "button", "aria-current": name === stage ? "step" : null,
    "data-key": `stage ${name}`, "data-stage": name, onclick: () => go(place) }, make("b", {}, `${place + 1}`), TITLES[name]));
  const trail = make("div.stages", { role: "group", "aria-label": "the story of one head" }, steps);
  rove(trail, steps, ACROSS, at);
  const pick = make("label.pick", {}, make("span", {}, "the word that looks"), make("select", { "data-key": "query", onchange: event => page.change({ token: event.target.value }) },
    look.rows.map((token, place) => make("option", { value: place, selected: place === t }, `${place + 1}  ${word(token)}`))));
  page.say();
  return make("div.story", {}, trail,
    make("p.telling", { "aria-live": "polite" }, telling(stage, sums, look, t)),
    make("div.controls", {}, pick,
      make("button", { type: "button", "data-key": "back", disabled: at === 0, onclick: () => go(at - 1) }, "← back"),
      make("button.first", { type: "button", "data-key": "on", disabled: at === STAGES.length - 1, onclick: () => go(at + 1) }, "next →")),
    sums.query ? make("p.query", {}, make("b", {}, `query of ${quote(look.rows[t])}`), strip(sums.query, largest([sums.query]), `query of ${word(look.rows[t])}`)) : null,
    table(heads(stage, sums), rows(stage, sums, look), ".told"),
    at === 4 && sums.mixed ? make("p.query.mixed", {}, make("b", {}, `what ${quote(look.rows[t])} receives`),
      strip(sums.mixed, largest(sums.values), "the mixture")) : null);
}

/** One query with all its numbers in one table. */
export function stepView(page) {
  const { look } = page, head = page.heads[0] === "mean" ? 0 : page.heads[0];
  const t = Math.max(0, Math.min(look.rows.length - 1, page.token));
  const weights = look.weights[head][t], scores = look.scores?.[head]?.[t], values = look.values?.[head]?.map(value => value.slice(0, 2));
  const { scale } = look, raw = scores && scale;
  const vector = some => `(${some.map(short).join(", ")})`;
  const pick = make("select", { "data-key": "query", onchange: event => page.change({ token: event.target.value }) },
    look.rows.map((token, at) => make("option", { value: at, selected: at === t }, `${at + 1}  ${word(token)}`)));
  const best = strongest(weights, 1)[0], high = Math.max(1e-9, weights[best]);
  const titles = ["key", raw && "raw score q·k", scores && (raw ? `scaled × ${+scale.toPrecision(4)}` : "score"), "softmax weight",
    values && "value, first two", values && "weight × value"].filter(Boolean);
  const lines = look.columns.map((token, s) => {
    const score = scores?.[s], hidden = score === null ? masked : undefined;
    return make(s === best ? "tr.best" : "tr", {}, make("th", { scope: "row" }, `${s + 1}  ${word(token)}${s === best ? " ◀" : ""}`),
      raw ? make("td", {}, hidden ?? short(score / scale)) : null, scores ? make("td", {}, hidden ?? short(score)) : null,
      bar(weights[s] / high, number(weights[s])),
      values ? make("td", {}, vector(values[s])) : null,
      values ? make("td", {}, vector(values[s].map(value => value * weights[s]))) : null);
  });
  const chain = [raw && short(scores[best] / scale), scores && short(scores[best]), short(weights[best])].filter(Boolean).join(" → ");
  page.say(`${quote(look.rows[t])} looks most at ${quote(look.columns[best])}: ${chain}`);
  return make("div", {}, make("label.pick", {}, "the word that looks ", pick),
    make("p.hint", {}, scores ? "" : "Only the weights are here, not the scores before the softmax. ",
      raw ? `Each score q·k is multiplied by ${+scale.toPrecision(4)}, and exp(score) divided by the sum of all gives the weight. ` : "",
      "Pieces of words stay apart here."),
    table(titles, lines, ".of-one"),
    values ? make("p.sum", {}, "sum of weight × value: ", make("output", {},
      vector(values[0].map((_, part) => values.reduce((sum, value, s) => sum + weights[s] * value[part], 0)))), " …") : null);
}
