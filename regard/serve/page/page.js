// The server's page: ask a run, watch it answer as one types, see what it looked at. Whatever a model
// says is put into text nodes only, so a model that prints markup shows it.

import { clearAnswer, compare, forget, predict, stream } from "./answer.js";
import { askJson, key } from "./api.js";
import { clearChat, converse, lastSaid, offerOpeners } from "./chat.js";
import { curl, python } from "./code.js";
import { manner, parameters, request, settle, knobs } from "./decoding.js";
import { inspect, showFields } from "./deeper.js";
import { hashOf, make, stateOf } from "./dom.js";
import { FORMS } from "./forms.js";
import { themeSwitch } from "./theme.js";
import { drawTraining } from "./training.js";
import { redraw, show, viewsOf } from "./views.js";
import { nameWords } from "./words.js";

const $ = id => document.getElementById(id);
const WAIT = 350; // milliseconds without a key, after which is answered

let runs = [], running = null, form = null, state = stateOf(location.hash);
let offered = []; // examples of the run's own data
let answered = null; // what the answer on show was given to, and its text
const run = () => runs.find(one => one.id === $("run").value);
const input = () => form.value();
const fail = text => { for (const name of ["error", "chat-error"]) $(name).textContent = text; };

function keep(patch) {
  state = { ...state, ...patch };
  try { history.replaceState(null, "", hashOf(state)); } catch { /* a text too long for an address */ }
}

/** Do one thing at a time: what runs is stopped, here and on the server; faults are shown as text. */
async function during(work) {
  clearTimeout(waiting);
  running?.abort();
  const mine = running = new AbortController();
  fail("");
  for (const name of ["stop", "hush"]) $(name).disabled = false;
  document.body.classList.add("busy");
  try {
    await work(mine.signal);
  } catch (fault) {
    if (fault.name !== "AbortError") fail(fault.message);
  }
  if (running === mine) {
    running = null;
    for (const name of ["stop", "hush"]) $(name).disabled = true;
    document.body.classList.remove("busy");
  }
}

// Answering

/** What an answer is given to: with other words in the form, it is another. */
const asked = () => JSON.stringify([run()?.id, input(), form.others?.(), knobs()]);

async function answer(signal) {
  const [path, body] = request(run(), input()), mark = asked();
  answered = null;
  keep({ run: body.model, ...form.keep() });
  if (form.others) await compare(run(), [input(), ...form.others()], signal);
  else if (body.stream) await stream(path, body, signal);
  else await predict(path, body, signal, form.compares);
  answered = { mark, text: $("answer").textContent };
  const example = offered.find(one => JSON.stringify(one.input) === JSON.stringify(input()) || one.input === form.keep().text);
  $("wanted").textContent = example?.wanted ? (example.wanted === answered.text ? "✓ as in the data" : `in the data: ${example.wanted}`) : "";
}

const respond = () => during(async signal => {
  if (!form.filled()) return;
  await answer(signal);
  if (run().attends) await look(signal);
});

let waiting = 0;
function typed() {
  write();
  clearTimeout(waiting);
  if ($("live").checked && form.filled()) waiting = setTimeout(respond, WAIT);
}

// Looking inside

async function look(signal, ablate = false) {
  const body = { model: run().id, input: input(), parameters: parameters(run()) };
  if ($("target").value) body.target = $("target").value;
  else if ((run().explains || run().continues) && answered?.mark === asked()) body.target = answered.text; // the very answer that stands there
  if (ablate) body.ablate = true;
  keep({ target: $("target").value });
  const data = await askJson("/attention", body, signal);
  draw({ model: body.model, ...data }, body);
}

function draw(data, body) {
  const fetched = new Map(); // queries and keys of heads that a story has asked for
  /** A look with its queries and keys: they are fetched when first asked for, then all is drawn again. */
  function inside(look, head, again) {
    const name = `${look.name} ${head}`;
    if (look.queries) return look;
    if (!fetched.has(name)) {
      fetched.set(name, null);
      const target = data.output === undefined ? {} : { target: data.output };
      askJson("/attention", { ...body, ...target, layers: [look.layer], heads: [head], vectors: true, ablate: false })
        .then(told => { fetched.set(name, told.looks.find(one => one.name === look.name)); again(); }, fault => fail(fault.message));
    }
    return fetched.get(name) ?? look;
  }
  const name = words => nameWords(data, words, { reading: $("reading"), answer: $("answer") }, input());
  const views = { ...state, view: viewsOf(data).includes(state.view) ? state.view : undefined };
  const page = show($("views"), data, views, viewed => {
    const { run, text, second, target } = state; // the form's may be newer
    keep({ ...viewed, run, text, second, target });
    if (String(viewed.words) !== String(words)) name((words = viewed.words) !== "0");
  }, { linked: $("ask").parentElement, inside, ablate: run().explains || !run().continues ? () => during(signal => look(signal, true)) : undefined });
  let words = page.state.words;
  name(page.words);
  $("read-as").hidden = $("reading").hidden;
}

// The form

function write() {
  const what = request(run(), input());
  $("manner").textContent = manner(run()) && `${manner(run())};`;
  $("curl").textContent = curl(what, form);
  $("python").textContent = python(what, form);
}

const LANGUAGES = new Intl.DisplayNames(["en"], { type: "language", fallback: "code" });
const language = code => { try { return LANGUAGES.of(code); } catch { return code; } };
/** What a run does, by what it is given and what it answers with. */
const JOBS = {
  chat: "answers in a conversation", "text text": "turns one text into another", "text label": "sorts texts into classes", "text tags": "tags each word", "text vector": "turns texts into vectors",
  "pair label": "sorts pairs of texts into classes", "pair span": "finds the answer in a text", "picture label": "says what is in a picture", "picture text": "describes a picture",
  "sound text": "writes down what is said", "graph label": "judges graphs", "history label": "says what to do next",
};
const job = ({ chat, languages, continues, gives, gets }) => languages ? `translates ${language(languages[0])} → ${language(languages[1])}`
  : chat ? JOBS.chat : continues ? "goes on with a text" : JOBS[`${gives.kind} ${gets}`] ?? `${gives.labels[0]} → ${gets}`;

/** What a run is, in a line: its job, its languages, its kind and size. */
function about(one) {
  const { architecture, parameters: count } = one;
  const size = count >= 1e6 ? `${(count / 1e6).toFixed(1)} million` : count.toLocaleString("en");
  return [make("b", {}, job(one)), make("span.soft", {}, ` · ${architecture}, ${size} parameters`)];
}

/** The run's own inputs as buttons. */
function offer(examples) {
  const label = ({ input: given, wanted }, at) => {
    if (given.image) return make("img", { src: given.image, alt: wanted ?? `picture ${at + 1}` });
    if (given.audio) return `▶ ${wanted ?? `sound ${at + 1}`}`;
    const text = typeof given === "string" ? given.split("\t")[0] : JSON.stringify(given);
    if (/^[[{]/.test(text)) return `example ${at + 1}${wanted ? `: ${wanted}` : ""}`;
    return text.length > 44 ? text.slice(0, 43) + "…" : text;
  };
  $("examples").replaceChildren(...examples.map((example, at) => make("button.chip", { type: "button", "data-example": at, title: "try this", onclick: () => {
    form.fill(example.input, offered.map(one => one.input));
    write();
    respond();
  } }, label(example, at))));
}

// Conversing, with a run that was taught to

const chats = () => Boolean(run()?.chat) && state.mode !== "text";

function showMode() {
  $("mode").hidden = !run()?.chat;
  $("mode").textContent = chats() ? "Look inside" : "Chat";
  $("conversation").hidden = !chats();
  document.querySelector("main").hidden = chats();
}

const speak = event => {
  event?.preventDefault();
  during(signal => converse(run().id, signal));
};

let choosing = 0;

/** The form follows the run's task; where nothing is said yet, its first example is answered. */
async function chosen() {
  const one = run(), { kind, labels } = one?.gives ?? { kind: "text", labels: ["text"] }, mine = ++choosing;
  running?.abort();
  forget();
  clearAnswer();
  form = (FORMS[one?.gets === "vector" ? "alike" : kind] ?? FORMS.text)(labels, { ...state, ...form?.keep() }, typed);
  $("given").replaceChildren(...form.fields);
  $("about").replaceChildren(...(one ? about(one) : []));
  $("answer-name").textContent = one?.languages ? language(one.languages[1]) : one?.continues ? "how it goes on" : "answer";
  if (one?.languages) $("given").querySelector(".field > span").textContent = language(one.languages[0]);
  document.title = one ? `${one.id} · regard` : "regard";
  settle(one);
  $("another").hidden = !(one?.attends && one.explains);
  $("deeper").hidden = !one?.attends || kind !== "text";
  $("live").parentElement.hidden = ["picture", "sound"].includes(kind); // they are not typed
  $("go").disabled = !one;
  for (const name of ["reading", "examples", "wanted"]) $(name).replaceChildren();
  $("read-as").hidden = true;
  $("training").hidden = true;
  write();
  showMode();
  if (!one) return;
  const own = () => askJson(`/examples?model=${encodeURIComponent(one.id)}`).then(told => told.examples, () => []);
  if (chats()) {
    const texts = (await own()).map(example => example.input).filter(text => typeof text === "string");
    if (mine === choosing) offerOpeners(texts, speak);
    return;
  }
  $("views").replaceChildren(make("p.hint", {}, one.attends ? "What it looks at is drawn here." : "This run has no attention to look into. How it was trained:"));
  if (!one.attends) drawTraining($("views").appendChild(make("div")), one.id).catch(fault => fail(fault.message));
  if (form.filled()) respond(); // a permalink
  offered = await own();
  if (mine !== choosing) return; // another run was chosen meanwhile
  offer(offered);
  // Where somebody types already, nothing is put between his words.
  if (!offered.length || form.filled() || $("given").contains(document.activeElement)) return;
  form.fill(offered[0].input, offered.map(example => example.input));
  write();
  respond();
}

async function start() {
  fail("");
  runs = await askJson("/v1/models").then(told => told.data).catch(fault => { fail(fault.message); return []; });
  $("run").replaceChildren(...runs.map(one => make("option", { value: one.id, selected: one.id === state.run }, one.id)));
  $("runs").classList.toggle("alone", runs.length === 1);
  await chosen();
}

/** A run is changed by hand: what was typed for another stays only where it is of the same kind. */
function changed() {
  state = {};
  keep({ run: $("run").value });
  form = null;
  clearChat();
  chosen();
}

$("light").replaceWith(themeSwitch(redraw));
$("target").value = state.target ?? "";
$("key").value = key.value;
$("key").addEventListener("change", () => { key.value = $("key").value; start(); });
$("run").addEventListener("change", changed);
$("form").addEventListener("input", event => { if (event.target.id !== "live") typed(); });
$("form").addEventListener("submit", event => { event.preventDefault(); respond(); });
$("mode").addEventListener("click", () => {
  const said = lastSaid();
  if (chats() && said) {
    form = null;
    keep({ text: said });
  }
  keep({ mode: chats() ? "text" : undefined });
  chosen();
});
$("talking").addEventListener("submit", speak);
$("say").addEventListener("keydown", event => { if (event.key === "Enter" && !event.shiftKey) speak(event); });
$("hush").addEventListener("click", () => running?.abort());
$("anew").addEventListener("click", () => { running?.abort(); clearChat(); $("say").focus(); });
addEventListener("keydown", event => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !chats()) { event.preventDefault(); respond(); }
  if (event.key === "Escape") running?.abort();
});
addEventListener("paste", event => form?.paste?.(event.clipboardData.items));
$("stop").addEventListener("click", () => running?.abort());
$("curves").addEventListener("click", () => {
  $("training").hidden = !$("training").hidden;
  $("curves").setAttribute("aria-expanded", String(!$("training").hidden));
  if (!$("training").hidden) drawTraining($("training"), run().id).catch(fault => fail(fault.message));
});
$("view").addEventListener("change", showFields);
$("inspect").addEventListener("click", () => during(signal => inspect(run(), input(), signal)));
showFields();
for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", () => {
    const text = $(button.dataset.copy);
    getSelection().selectAllChildren(text); // where the clipboard is refused, the reader copies it
    navigator.clipboard?.writeText(text.textContent).then(() => { button.textContent = "Copied"; }, () => {});
  });
}
addEventListener("hashchange", () => location.reload()); // a permalink pasted into this page
start();
