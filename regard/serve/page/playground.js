// The server's page: ask a run, watch it write, look inside. Whatever a model says is put into text
// nodes only, so a model that prints markup shows it.

import { FORMS } from "./forms.js";
import { hashOf, make, rove, show, stateOf, word } from "./views.js";

const $ = id => document.getElementById(id);

let runs = [], running = null, given = null, earlier = null, form = null, state = stateOf(location.hash);
const run = () => runs.find(one => one.id === $("run").value);
const input = () => form.value();
const fail = text => { $("error").textContent = text; };

function keep(patch) {
  state = { ...state, ...patch };
  try { history.replaceState(null, "", hashOf(state)); } catch { /* a text too long for an address */ }
}

async function ask(path, body, signal) {
  const headers = {};
  if (body) headers["Content-Type"] = "application/json";
  if ($("key").value) headers.Authorization = `Bearer ${$("key").value}`;
  const answer = await fetch(path, { method: body ? "POST" : "GET", headers, signal, body: body && JSON.stringify(body) })
    .catch(fault => { throw fault.name === "AbortError" ? fault : new Error("The server cannot be reached."); });
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => null);
  const wait = answer.headers.get("Retry-After");
  throw new Error((told?.error?.message ?? `${path}: the server answered ${answer.status}.`) + (wait ? ` Try again in ${wait} s.` : ""));
}

/** What the form says of how to write; what it leaves empty is as the run has it. */
const knobs = () => Object.fromEntries(["max_tokens", "temperature", "top_p", "seed"].filter(name => $(name).value !== "")
  .map(name => [name, Number($(name).value)]));

/** The same as settings of decode, for a look inside. */
function parameters() {
  const { max_tokens, temperature, ...rest } = run()?.streams ? knobs() : {};
  const drawn = temperature > 0 || rest.top_p !== undefined || rest.seed !== undefined;
  return {
    ...(max_tokens === undefined ? {} : { max_new_tokens: max_tokens }),
    ...(temperature === 0 ? { kind: "greedy" } : drawn ? { kind: "sample", ...(temperature === undefined ? {} : { temperature }), ...rest } : {}),
  };
}

/** How an answer is found, in words. */
function manner() {
  const own = run()?.decode, said = parameters();
  if (!own) return "";
  const kind = said.kind ?? own.kind;
  if (kind === "greedy") return "the likeliest word each time";
  if (kind === "beam") return `searched by a beam of ${own.num_beams}; the answer comes whole, when the search has ended`;
  const top = [own.top_k && `top-k ${own.top_k}`, (said.top_p ?? own.top_p) < 1 && `top-p ${said.top_p ?? own.top_p}`].filter(Boolean);
  return [`drawn at temperature ${said.temperature ?? own.temperature}`, ...top, said.seed === undefined ? "a new seed each time" : `seed ${said.seed}`].join(", ");
}

/** The request that the form stands for: its path and its body. */
function request() {
  const chosen = run();
  if (!chosen?.streams) return ["/predict", { model: chosen?.id, inputs: [input()], parameters: {} }];
  const most = { max_tokens: chosen.decode.max_new_tokens };
  return ["/v1/completions", { model: chosen.id, prompt: input(), stream: true, ...most, ...knobs(), logprobs: 5 }];
}

/** What an answer was given to: with other words in the form, it is another. */
const asked = () => JSON.stringify([run()?.id, input(), knobs()]);

// The same request elsewhere; the key itself is never written out
function literal(value) { // JSON as Python writes it
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([key, one]) => `${JSON.stringify(key)}: ${literal(one)}`).join(", ")}}`;
  return JSON.stringify(value);
}

function write() {
  const [path, body] = request();
  $("manner").textContent = manner();
  const keyed = $("key").value !== "";
  const quoted = JSON.stringify(body).replaceAll("'", `'\\''`);
  const sent = form.upload?.() ? `${form.upload()} -F 'model=${body.model}'` : `-H 'Content-Type: application/json' \\\n  -d '${quoted}'`;
  $("curl").textContent = `curl ${body.stream ? "-N " : ""}${location.origin}${path}`
    + `${keyed ? ` -H "Authorization: Bearer $REGARD_API_KEY"` : ""} ${sent}`;
  const lines = body.stream
    ? [...(keyed ? ["import os", ""] : []), "from openai import OpenAI", "",
      `client = OpenAI(base_url="${location.origin}/v1", api_key=${keyed ? `os.environ["REGARD_API_KEY"]` : `"none"`})`,
      "stream = client.completions.create(", ...Object.entries(body).map(([name, value]) => `    ${name}=${literal(value)},`), ")",
      "for chunk in stream:", "    if chunk.choices:", `        print(chunk.choices[0].text, end="", flush=True)`]
    : form.upload?.() ? [...(keyed ? ["import os", ""] : []), "import httpx", "",
      ...(keyed ? [`headers = {"Authorization": f"Bearer {os.environ['REGARD_API_KEY']}"}`] : []),
      `with open("picture.png", "rb") as file:`,
      `    answer = httpx.post("${location.origin}${path}", data={"model": ${literal(body.model)}}, files={"image": file}${keyed ? ", headers=headers" : ""})`,
      "print(answer.json())"]
    : ["import json", ...(keyed ? ["import os"] : []), "import urllib.request", "", `body = ${literal(body)}`,
      `headers = {"Content-Type": "application/json"${keyed ? `, "Authorization": f"Bearer {os.environ['REGARD_API_KEY']}"` : ""}}`,
      `request = urllib.request.Request("${location.origin}${path}", json.dumps(body).encode(), headers)`,
      "with urllib.request.urlopen(request) as answer:", "    print(json.load(answer))"];
  $("python").textContent = lines.join("\n");
}

// Answers
/** The objects of a stream of server-sent events. */
async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (let rest = "", done = false; !done;) {
      const got = await reader.read();
      done = got.done;
      const lines = (rest + (done ? "\n" : got.value)).split(/\r?\n/);
      rest = lines.pop();
      for (const line of lines.filter(one => one.startsWith("data:")).map(one => one.slice(5).trim())) {
        if (line === "[DONE]") return;
        yield JSON.parse(line);
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // frees the server's place when we leave early
  }
}

const percent = logprob => `${(100 * Math.exp(logprob)).toFixed(1)} %`;

/** What stood for choice at each token of a piece of the answer. */
function chances({ tokens, token_logprobs: given = [], top_logprobs: tops = [] }) {
  return tokens.map((token, at) => {
    const others = Object.entries(tops?.[at] ?? {}).sort((one, two) => two[1] - one[1])
      .map(([other, logprob]) => `“${word(other)}” ${percent(logprob)}`);
    return `“${word(token)}” ${typeof given[at] === "number" ? percent(given[at]) : ""}${others.length ? `; candidates: ${others.join(", ")}` : ""}`;
  }).join("\n");
}

function piece(text, logprobs) {
  const one = make("span.piece", { tabindex: -1 }, text);
  if (!logprobs) return one;
  const told = chances(logprobs);
  const tell = () => { $("chance").hidden = false; $("chance").textContent = told; };
  one.title = told;
  if (logprobs.token_logprobs?.some(value => value < Math.log(0.5))) one.classList.add("unsure");
  one.addEventListener("mouseenter", tell);
  one.addEventListener("focus", tell);
  return one;
}

async function stream(path, body, signal) {
  const began = performance.now();
  const pieces = [];
  let count = 0, waiting = [], box = make("span"), usage = 0, seed = "";
  $("answer").replaceChildren(box);
  const timing = () => {
    const seconds = (performance.now() - began) / 1000, tokens = usage || count;
    $("speed").textContent = `${tokens} tokens in ${seconds.toFixed(2)} s, ${(tokens / seconds).toFixed(1)} tokens/s${seed}`;
  };
  try {
    for await (const chunk of events(await ask(path, body, signal))) {
      if (chunk.error) throw new Error(chunk.error.message ?? "the stream broke off.");
      usage = chunk.usage?.completion_tokens ?? usage;
      seed = chunk.seed === undefined ? "" : `, seed ${chunk.seed}`;
      const choice = chunk.choices?.[0];
      if (!choice) continue;
      if (choice.logprobs?.tokens?.length) waiting.push(choice.logprobs);
      count += choice.logprobs?.tokens?.length ?? (choice.text ? 1 : 0);
      if (choice.text) { // a token may be half a letter; its numbers then wait for the rest
        const merge = name => waiting.flatMap(one => one[name] ?? []);
        const logprobs = waiting.length && { tokens: merge("tokens"), token_logprobs: merge("token_logprobs"), top_logprobs: merge("top_logprobs") };
        waiting = [];
        pieces.push(piece(choice.text, logprobs));
        box.append(pieces.at(-1));
      }
      timing();
    }
  } finally {
    timing();
    rove(box, pieces, { ArrowRight: 1, ArrowLeft: -1 });
  }
}

async function predict(path, body, signal) {
  const began = performance.now();
  const told = await (await ask(path, body, signal)).json();
  const list = Object.values(told).find(Array.isArray) ?? [told].flat();
  const { input: _, output, seconds, probabilities, ...others } = list[0] ?? {};
  $("answer").textContent = output ?? JSON.stringify(list[0] ?? told);
  $("speed").textContent = `${(told.seconds ?? seconds ?? (performance.now() - began) / 1000).toFixed(3)} s`;
  const rows = Object.entries(probabilities ?? {}).sort((one, two) => two[1] - one[1]).map(([label, share]) => {
    const more = form.compares && earlier ? share - (earlier[label] ?? 0) : 0;  // than before the last edit
    const change = Math.abs(more) >= 0.0005 ? make("td.change", {}, `${more > 0 ? "+" : "−"}${Math.abs(more).toFixed(3)}`) : [];
    return make("tr", {}, make("th", { scope: "row" }, label), make("td.bar", { "--w": `${100 * share}%` }, share.toFixed(3)), change);
  });
  earlier = probabilities ?? null;
  const rest = Object.entries(others).map(([name, value]) => {
    const text = typeof value === "string" ? value : JSON.stringify(value);
    return make("tr", {}, make("th", { scope: "row" }, name), make("td.text", {}, text.length > 600 ? text.slice(0, 600) + " …" : text));
  });
  $("more").replaceChildren(make("table.numbers", {}, make("tbody", {}, rows, rest)));
}

/** Do one thing at a time: what runs is stopped, faults are shown as text. */
async function during(work) {
  running?.abort();
  const mine = running = new AbortController();
  fail("");
  $("stop").disabled = false;
  try {
    await work(mine.signal);
  } catch (fault) {
    if (fault.name !== "AbortError") fail(fault.message);
  }
  if (running === mine) {
    running = null;
    $("stop").disabled = true;
  }
}

function answer() {
  const [path, body] = request(), key = asked();
  given = null;
  keep({ run: body.model, ...form.keep() });
  for (const name of ["answer", "speed", "more"]) $(name).replaceChildren();
  $("chance").hidden = true;
  return during(async signal => {
    await (body.stream ? stream(path, body, signal) : predict(path, body, signal));
    given = { key, text: $("answer").textContent };
  });
}

const look = () => during(async signal => {
  if (!$("form").reportValidity()) return;
  const body = { model: run()?.id, input: input(), parameters: parameters() };
  if ($("target").value) body.target = $("target").value;
  else if (run()?.explains && given?.key === asked()) body.target = given.text; // the very answer that stands above
  if ($("ablate").checked) body.ablate = true;
  keep({ run: body.model, ...form.keep(), target: $("target").value });
  $("look").disabled = true;
  try {
    const data = await (await ask("/attention", body, signal)).json();
    $("inside").hidden = false;
    show($("views"), { model: body.model, ...data }, state, viewed => {
      const { run, text, second, target } = state; // the form's may be newer
      keep({ ...viewed, run, text, second, target });
    });
    keep({ view: $("views").querySelector("[aria-selected=true]")?.dataset.view });
  } finally {
    $("look").disabled = !run()?.attends;
  }
});

// A deeper look is drawn by the server; as an image its SVG can do nothing
const OF_TOKEN = ["field", "word"], OF_SENTENCES = ["word", "heads"];

function viewed() {
  $("token-field").hidden = !OF_TOKEN.includes($("view").value);
  $("sentences-field").hidden = !OF_SENTENCES.includes($("view").value);
}

const inspect = () => during(async signal => {
  const view = $("view").value;
  const inputs = OF_SENTENCES.includes(view) ? $("sentences").value.split("\n").filter(line => line.trim()) : [input()];
  $("inspect").disabled = true;
  try {
    const body = { model: run()?.id, view, inputs, token: OF_TOKEN.includes(view) ? $("token").value : "" };
    const { svg } = await (await ask("/inspect", body, signal)).json();
    const alt = $("view").selectedOptions[0].textContent + (body.token ? `: ${body.token}` : "");
    $("drawn").replaceChildren(make("img", { src: `data:image/svg+xml,${encodeURIComponent(svg)}`, alt }));
  } finally {
    $("inspect").disabled = false;
  }
});

function chosen() { // the form follows the run's task
  const one = run(), { kind, labels } = one?.gives ?? { kind: "text", labels: ["text"] };
  $("task").textContent = one?.task ?? "";
  earlier = null;
  form = (FORMS[kind] ?? FORMS.text)(labels, { ...state, ...form?.keep() }, write);
  $("given").replaceChildren(...form.fields);
  $("knobs").hidden = !one?.streams;
  if (one?.decode) {
    $("max_tokens").placeholder = one.decode.max_new_tokens;
    $("temperature").placeholder = { greedy: "0", beam: "beam" }[one.decode.kind] ?? one.decode.temperature;
    $("top_p").placeholder = one.decode.top_p;
  }
  $("go").disabled = !one;
  $("look").disabled = !one?.attends;
  $("look").title = one && !one.attends ? "this run has no attention to see" : "";
  $("target-field").hidden = !one?.attends;
  $("deeper").hidden = !one?.attends || kind !== "text";
  write();
}

async function start() {
  fail("");
  runs = await ask("/v1/models").then(told => told.json()).then(told => told.data)
    .catch(fault => { fail(fault.message); return []; });
  $("run").replaceChildren(...runs.map(one => make("option", { value: one.id, selected: one.id === state.run }, one.id)));
  chosen();
  if (runs.length && form.filled() && state.view) look(); // a permalink to a view
}

$("target").value = state.target ?? "";
$("key").value = sessionStorage.getItem("key") ?? "";
$("key").addEventListener("change", () => { sessionStorage.setItem("key", $("key").value); start(); });
$("run").addEventListener("change", chosen);
$("form").addEventListener("input", write);
$("form").addEventListener("submit", event => { event.preventDefault(); answer(); });
addEventListener("paste", event => form?.paste?.(event.clipboardData.items));
$("stop").addEventListener("click", () => running?.abort());
$("look").addEventListener("click", look);
$("view").addEventListener("change", viewed);
$("inspect").addEventListener("click", inspect);
viewed();
for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", () => {
    const text = $(button.dataset.copy);
    getSelection().selectAllChildren(text); // where the clipboard is refused, the reader copies it
    navigator.clipboard?.writeText(text.textContent).then(() => { button.textContent = "Copied"; }, () => {});
  });
}
addEventListener("hashchange", () => location.reload()); // a permalink pasted into this page
start();
