// How the page asks for what a run is given, one way for each kind; a kind that has none is typed.

import { make } from "./views.js";

const area = (id, label, text) => {
  const box = make("textarea", { id, rows: 3, required: id === "text" });
  box.value = text ?? "";
  return [box, make("label.field", {}, make("span", {}, label), box)];
};

/** Each: fields to show; what they say, as it is sent; whether they say anything; what a link to the
 *  page may carry of it; how a shell sends it where that is another way. */
export const FORMS = {
  text(labels, state) {
    const [box, field] = area("text", labels[0], state.text);
    return { fields: [field], value: () => box.value, filled: () => box.value !== "", keep: () => ({ text: box.value }) };
  },

  pair(labels, state) {
    const [one, first] = area("text", labels[0], state.text);
    const [two, second] = area("second", labels[1] ?? "second text", state.second);
    return {
      fields: [first, second],
      value: () => labels.length > 1 && two.value ? [one.value, two.value] : one.value,
      filled: () => one.value !== "",
      keep: () => ({ text: one.value, second: two.value }),
    };
  },

  graph(labels, state) {
    return FORMS.text(labels, state);
  },

  picture(labels, state, changed) {
    let url = "", name = "picture.png";
    const seen = make("img", { id: "seen", alt: "the picture to ask about", hidden: true });
    const file = make("input", { id: "file", type: "file", accept: "image/*", onchange: () => take(file.files[0]) });
    const said = make("span.soft", {}, "drop a picture here, paste one, or choose a file");
    const box = make("label.field.drop", { id: "drop", tabindex: 0 }, make("span", {}, labels[0]), said, file, seen);
    async function take(given) {
      if (!given) return;
      name = given.name || name;
      url = await new Promise((done, fail) => {
        const reader = new FileReader();
        reader.onload = () => done(reader.result);
        reader.onerror = () => fail(reader.error);
        reader.readAsDataURL(given);
      });
      seen.src = url;
      seen.hidden = false;
      said.textContent = name;
      changed();
    }
    const over = on => event => { event.preventDefault(); box.classList.toggle("over", on); };
    box.addEventListener("dragover", over(true));
    box.addEventListener("dragleave", over(false));
    box.addEventListener("drop", event => { over(false)(event); take(event.dataTransfer.files[0]); });
    return {
      fields: [box], value: () => ({ image: url }), filled: () => url !== "", keep: () => ({}),
      paste: items => take([...items].find(one => one.kind === "file" && one.type.startsWith("image/"))?.getAsFile()),
      upload: () => `-F 'image=@${name.replaceAll("'", `'\\''`)}'`,
    };
  },
};
