// A word that is pointed at lights its counterparts everywhere at once: in the input, in the answer,
// along the lines and in the matrix. Whatever shows a word says which by its data-word.

/**
 * Of everything in `scope`. `drawn` is what is on show: rows and columns as shared words, and the
 * weights between them, of one head or several.
 */
export function makeLink(scope) {
  const listeners = new Set();
  let drawn = null, lit = [], pinned = null, now = null;

  function clear() {
    lit.forEach(element => { element.classList.remove("lit", "on"); element.style.removeProperty("--w"); });
    lit = [];
  }

  /** What a row looks at, or who looks at a column: by shared word, the most of any head. */
  function weightsOf(role, at) {
    const others = role === "row" ? drawn.columns : drawn.rows, found = new Map();
    for (const weights of drawn.weights) {
      others.forEach((name, other) => {
        const weight = role === "row" ? weights[at][other] : weights[other][at];
        if (weight >= 0.002) found.set(name, Math.max(found.get(name) ?? 0, weight));
      });
    }
    return found;
  }

  function light(role, at) {
    clear();
    now = drawn && at >= 0 && at < (role === "row" ? drawn.rows : drawn.columns).length ? { role, at } : null;
    if (now) {
      const name = (role === "row" ? drawn.rows : drawn.columns)[at], weights = weightsOf(role, at);
      for (const element of scope.querySelectorAll("[data-word]")) {
        const own = element.dataset.role;
        const weight = own === role ? undefined : weights.get(element.dataset.word);
        const chosen = element.dataset.word === name && (own === role || own === "word");
        if (!chosen && weight === undefined) continue;
        element.classList.add(chosen ? "on" : "lit");
        if (weight !== undefined) element.style.setProperty("--w", `${(100 * weight).toFixed(1)}%`);
        lit.push(element);
      }
    }
    listeners.forEach(listen => listen(now));
  }

  /** A shared word as a row or a column of what is drawn. */
  function place(element) {
    const { role, word } = element.dataset;
    if (role === "row" || role === "column") return [role, (role === "row" ? drawn.rows : drawn.columns).indexOf(word)];
    const row = drawn.rows.indexOf(word);
    return row >= 0 ? ["row", row] : ["column", drawn.columns.indexOf(word)];
  }

  const over = event => {
    const element = drawn && event.target.closest?.("[data-word]");
    if (element && scope.contains(element)) light(...place(element));
    else if (now && event.type === "mouseover" && !event.target.closest?.(".linked")) rest();
  };
  const rest = () => light("row", pinned ?? -1);
  scope.addEventListener("mouseover", over);
  scope.addEventListener("focusin", over);
  scope.addEventListener("mouseleave", rest);

  return {
    light, rest,
    /** Show something else; listeners are its own. */
    use(next, pin) {
      drawn = next;
      pinned = pin;
      listeners.clear();
      clear();
      now = null;
    },
    pin(at) { pinned = at; rest(); },
    get pinned() { return pinned; },
    listen: listener => listeners.add(listener),
  };
}
