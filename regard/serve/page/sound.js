// A sound: dropped, chosen or recorded. What only the browser can decode is sent as a WAV.

import { asUrl } from "./files.js";
import { make } from "./dom.js";

export function soundForm(labels, state, changed) {
    let url = "", name = "clip.wav", recorder = null;
    const heard = make("audio", { id: "heard", controls: true, hidden: true });
    const file = make("input", { id: "file", type: "file", accept: "audio/*,video/*", onchange: () => take(file.files[0]) });
    const said = make("span.soft", { role: "status" }, "drop a sound here, choose a file, or record one");
    const record = make("button", { id: "record", type: "button", onclick: event => { event.preventDefault(); listen(); } }, "record");
    const box = make("label.field.drop", { id: "drop", tabindex: 0 }, make("span", {}, labels[0]), said, file);
    async function take(given) {
      if (!given) return;
      name = given.name || name;
      try {
        url = await readable(given); // until then the old one stands: an answer to it may be on its way
      } catch (error) {
        url = "";
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
    /** One of the run's own sounds, which the browser may play. */
    function fill(input) {
      url = input.audio;
      name = "example.wav";
      heard.src = url.replace("data:audio/file", "data:audio/ogg");
      heard.hidden = false;
      said.textContent = "an example; drop, record or choose another";
    }
    const over = on => event => { event.preventDefault(); box.classList.toggle("over", on); };
    box.addEventListener("dragover", over(true));
    box.addEventListener("dragleave", over(false));
    box.addEventListener("drop", event => { over(false)(event); take(event.dataTransfer.files[0]); });
    return {
      fields: [box, record, heard], value: () => ({ audio: url }), filled: () => url !== "", keep: () => ({}),
      fill, file: () => ["audio", name],
      upload: () => `-F 'audio=@${name.replaceAll("'", `'\\''`)}'`,
    };
  }

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
