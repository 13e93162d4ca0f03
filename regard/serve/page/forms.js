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
    (before.length ? before : [{}]).forEach(step => row(step));
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
        make("table.steps", { id: "steps" }, make("thead", {}, make("tr", {}, columns.map(({ label }) => make("th", {}, label)), make("th", {}))), body),
        add, make("span.soft", {}, "the last step waits for a decision; what is not known stays empty"),
      ],
      value: () => ({ history: steps() }),
      filled: () => [...body.querySelectorAll("input")].some(cell => cell.value !== ""),
      keep: () => ({ text: JSON.stringify(steps()) }),
      compares: true,
    };
  },

  sound(labels, state, changed) {
    let url = "", name = "clip.wav", recorder = null;
    const heard = make("audio", { id: "heard", controls: true, hidden: true });
    const file = make("input", { id: "file", type: "file", accept: "audio/*,video/*", onchange: () => take(file.files[0]) });
    const said = make("span.soft", { role: "status" }, "drop a sound here, choose a file, or record one");
    const record = make("button", { id: "record", type: "button", onclick: event => { event.preventDefault(); listen(); } }, "record");
    const box = make("label.field.drop", { id: "drop", tabindex: 0 }, make("span", {}, labels[0]), said, file);
    async function take(given) {
      if (!given) return;
      name = given.name || name;
      url = "";
      try {
        url = await readable(given);
      } catch (error) {
        heard.hidden = true;
        said.textContent = `${name} cannot be read as a sound (${error.message})`;
        return;
      }
      heard.src = url.startsWith("data:audio/wav") ? url : await asUrl(given);
      heard.hidden = false;
      said.textContent = name;
      changed();
    }
    /** Record until asked to stop; what the microphone gave is then taken like a file. */
    async function listen() {
      if (recorder) return recorder.stop();
      try {
        const stream = await navigator.mediaDevices.getUserMedia({ audio: true }), pieces = [];
        recorder = new MediaRecorder(stream);
        recorder.ondataavailable = event => pieces.push(event.data);
        recorder.onstop = () => {
          stream.getTracks().forEach(track => track.stop());
          const whole = new Blob(pieces, { type: recorder.mimeType });
          recorder = null;
          record.textContent = "record";
          take(new File([whole], "recording.wav", { type: whole.type }));
        };
        recorder.start();
        record.textContent = "stop";
        said.textContent = "recording …";
      } catch (error) {
        recorder = null;
        said.textContent = `the microphone cannot be used (${error.message})`;
      }
    }
    const over = on => event => { event.preventDefault(); box.classList.toggle("over", on); };
    box.addEventListener("dragover", over(true));
    box.addEventListener("dragleave", over(false));
    box.addEventListener("drop", event => { over(false)(event); take(event.dataTransfer.files[0]); });
    return {
      fields: [box, record, heard], value: () => ({ audio: url }), filled: () => url !== "", keep: () => ({}),
      upload: () => `-F 'audio=@${name.replaceAll("'", `'\\''`)}'`,
    };
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
      url = await asUrl(given);
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

const asUrl = given => new Promise((done, fail) => {
  const reader = new FileReader();
  reader.onload = () => done(reader.result);
  reader.onerror = () => fail(reader.error);
  reader.readAsDataURL(given);
});

/** A sound as a data: URL. What the server reads is sent as it is; what only the browser can decode
 *  (a recording, a film) is sent as the WAV that it makes of it. */
async function readable(given) {
  if (/\.(wav|flac|ogg|oga|opus|mp3|aiff?|au)$/i.test(given.name) && !/webm|mp4/.test(given.type)) {
    return `data:audio/file;base64,${(await asUrl(given)).split(",")[1]}`;
  }
  const context = new AudioContext({ sampleRate: 16000 });
  try {
    return wav(await context.decodeAudioData(await given.arrayBuffer()));
  } finally {
    context.close();
  }
}

/** Samples of all channels mixed, as a WAV file of 16 bits. */
function wav(sound) {
  const count = sound.length, view = new DataView(new ArrayBuffer(44 + 2 * count));
  const text = (at, said) => [...said].forEach((letter, i) => view.setUint8(at + i, letter.charCodeAt(0)));
  text(0, "RIFF"); view.setUint32(4, 36 + 2 * count, true); text(8, "WAVEfmt ");
  view.setUint32(16, 16, true); view.setUint16(20, 1, true); view.setUint16(22, 1, true);
  view.setUint32(24, sound.sampleRate, true); view.setUint32(28, 2 * sound.sampleRate, true);
  view.setUint16(32, 2, true); view.setUint16(34, 16, true); text(36, "data"); view.setUint32(40, 2 * count, true);
  const channels = Array.from({ length: sound.numberOfChannels }, (_, i) => sound.getChannelData(i));
  for (let at = 0; at < count; at++) {
    const mean = channels.reduce((sum, one) => sum + one[at], 0) / channels.length;
    view.setInt16(44 + 2 * at, Math.max(-32768, Math.min(32767, Math.round(mean * 32767))), true);
  }
  return asUrl(new Blob([view], { type: "audio/wav" }));
}
