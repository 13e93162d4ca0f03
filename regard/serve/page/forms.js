// How the page asks for what a run is given, one way for each kind; a kind that has none is typed.

import { asUrl } from "./files.js";
import { make } from "./dom.js";
import { soundForm } from "./sound.js";

const area = (id, label, text, rows = 3) => {
  const box = make("textarea", { id, rows, placeholder: label, spellcheck: "false" });
  box.value = text ?? "";
  return [box, make("label.field", {}, make("span", {}, label), box)];
};

/** Each: fields to show; what they say, as it is sent; whether they say anything; what a link to the
 *  page may carry of it; how an example is put in; how a shell sends it where that is another way. */
export const FORMS = {
  text(labels, state) {
    const [box, field] = area("text", labels[0], state.text);
    return { fields: [field], value: () => box.value, filled: () => box.value !== "", keep: () => ({ text: box.value }),
      fill: input => { box.value = input; } };
  },

  pair(labels, state) {
    const [one, first] = area("text", labels[0], state.text, 2);
    const [two, second] = area("second", labels[1] ?? "second text", state.second, 4);
    return {
      fields: [first, second],
      value: () => labels.length > 1 && two.value ? [one.value, two.value] : one.value,
      filled: () => one.value !== "" && (labels.length < 2 || two.value !== ""),
      keep: () => ({ text: one.value, second: two.value }),
      fill: input => { [one.value, two.value = ""] = typeof input === "string" ? input.split("\t") : input; },
    };
  },

  /** A text, and others to hold it against. */
  alike(labels, state) {
    const [one, first] = area("text", labels[0], state.text, 2);
    const [two, second] = area("second", "texts to compare it with, a line each", state.second, 4);
    return {
      fields: [first, second], value: () => one.value, filled: () => one.value !== "",
      others: () => two.value.split("\n").filter(line => line.trim()),
      keep: () => ({ text: one.value, second: two.value }),
      fill: (input, all) => {
        one.value = input;
        if (!two.value.trim()) two.value = all.filter(other => other !== input).join("\n");
      },
    };
  },

  graph(labels, state) {
    const form = FORMS.text(labels, state), [field] = form.fields;
    field.querySelector("textarea").classList.add("code");
    return form;
  },

  sound: soundForm,

  history(labels, state, changed) {
    // What was done and gained has an arrow before its name; at the last step it is not known yet.
    const columns = labels.map(label => ({ name: label.replace(/^→ /, ""), after: label.startsWith("→ "), label }));
    const body = make("tbody", {}), before = read();
    /** What stands in a cell, as JSON has it: a number, a text, or nothing. */
    const told = text => text === "" ? null : text.trim() !== "" && isFinite(text) ? Number(text) : text;
    function read() {
      try { // a link may carry what another run was given
        const said = JSON.parse(state.text || "[]");
        return Array.isArray(said) ? said.filter(step => step && typeof step === "object") : [];
      } catch { return []; }
    }
    function row(step = {}) {
      const cells = columns.map(({ name }) => make("td", {}, make("input.cell", {
        "data-name": name, "aria-label": name, value: step[name] ?? "", oninput: changed,
      })));
      const drop = make("button", { type: "button", title: "leave this step out", onclick: event => {
        event.preventDefault();
        if (body.children.length > 1) event.target.closest("tr").remove();
        changed();
      } }, "×");
      body.append(make("tr", {}, cells, make("td", {}, drop)));
    }
    const put = steps => body.replaceChildren() ?? (steps.length ? steps : [{}]).forEach(step => row(step));
    put(before);
    const add = make("button", { id: "add", type: "button", onclick: event => { event.preventDefault(); row(); changed(); } }, "add a step");
    const steps = () => [...body.children].map((line, at, all) => {
      const step = {};
      line.querySelectorAll("input").forEach((cell, place) => {
        const { name, after } = columns[place];
        // A name of an action may look like a number; several numbers are typed as a list.
        const list = after && cell.value.trim().startsWith("[");
        if (after && at === all.length - 1) return;
        step[name] = list ? JSON.parse(cell.value) : after ? cell.value : told(cell.value);
      });
      return step;
    });
    return {
      fields: [
        make("div.scroll", {}, make("table.steps", { id: "steps" }, make("thead", {}, make("tr", {}, columns.map(({ label }) => make("th", {}, label)), make("th", {}))), body)),
        add, make("span.soft", {}, "the last step waits for a decision; what is not known stays empty"),
      ],
      value: () => ({ history: steps() }),
      filled: () => [...body.querySelectorAll("input")].some(cell => cell.value !== ""),
      keep: () => ({ text: JSON.stringify(steps()) }),
      fill: input => { const said = typeof input === "string" ? JSON.parse(input) : input; put(Array.isArray(said) ? said : said.history ?? [said]); },
      compares: true,
    };
  },

  picture(labels, state, changed) {
    let url = "", name = "picture.png";
    const seen = make("img", { id: "seen", alt: "the picture to ask about", hidden: true });
    const file = make("input", { id: "file", type: "file", accept: "image/*", onchange: () => take(file.files[0]) });
    const said = make("span.soft", {}, "drop a picture here, paste one, or choose a file");
    const box = make("label.field.drop", { id: "drop", tabindex: 0 }, make("span", {}, labels[0]), said, file, seen);
    function show(content, title) {
      url = content;
      seen.src = url;
      seen.hidden = false;
      said.textContent = title;
    }
    async function take(given) {
      if (!given) return;
      name = given.name || name;
      show(await asUrl(given), name);
      changed();
    }
    const over = on => event => { event.preventDefault(); box.classList.toggle("over", on); };
    box.addEventListener("dragover", over(true));
    box.addEventListener("dragleave", over(false));
    box.addEventListener("drop", event => { over(false)(event); take(event.dataTransfer.files[0]); });
    return {
      fields: [box], value: () => ({ image: url }), filled: () => url !== "", keep: () => ({}),
      paste: items => take([...items].find(one => one.kind === "file" && one.type.startsWith("image/"))?.getAsFile()),
      fill: input => show(input.image, "an example; drop, paste or choose another"),
      file: () => ["image", name],
      upload: () => `-F 'image=@${name.replaceAll("'", `'\\''`)}'`,
    };
  },
};
