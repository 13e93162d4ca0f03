// How an answer is found: the controls, the same in words, and what a request says of it.

const NAMES = ["max_tokens", "num_beams", "temperature", "top_k", "top_p", "seed"];
const field = name => document.getElementById(name);

/** What the controls say; what they leave empty is as the run has it. */
export const knobs = () => Object.fromEntries(NAMES.filter(name => field(name).value !== "")
  .map(name => [name, Number(field(name).value)]));

/** The same as settings of decode, for a look inside. */
export function parameters(run) {
  const { max_tokens, num_beams, temperature, ...drawing } = run?.streams ? knobs() : {};
  const length = max_tokens === undefined ? {} : { max_new_tokens: max_tokens };
  if (num_beams > 1) return { ...length, kind: "beam", num_beams };
  if (temperature === 0 || (num_beams === 1 && temperature === undefined)) return { ...length, kind: "greedy" };
  const drawn = temperature > 0 || Object.keys(drawing).length > 0;
  return { ...length, ...(drawn ? { kind: "sample", ...(temperature === undefined ? {} : { temperature }), ...drawing } : {}) };
}

/** The same as a sentence. */
export function manner(run) {
  const own = run?.decode, said = parameters(run);
  if (!own) return "";
  const kind = said.kind ?? own.kind;
  if (kind === "greedy") return "the likeliest word each time";
  if (kind === "beam") return `searched by a beam of ${said.num_beams ?? own.num_beams}`;
  const [top_k, top_p] = [said.top_k ?? own.top_k, said.top_p ?? own.top_p];
  const among = [top_k && `of the ${top_k} likeliest`, top_p < 1 && `of the likeliest ${Math.round(100 * top_p)} %`].filter(Boolean);
  return [`drawn at temperature ${said.temperature ?? own.temperature}`, ...among, said.seed === undefined ? "a new seed each time" : `seed ${said.seed}`].join(", ");
}

const FIRST = 40; // pieces that a language model writes at least before it is asked for more

/** Show a run's own way where the controls are empty. */
export function settle(run) {
  const own = run?.decode;
  field("knobs").hidden = !run?.streams;
  if (!own) return;
  field("max_tokens").placeholder = longest(run);
  field("num_beams").placeholder = own.kind === "beam" ? own.num_beams : 1;
  field("temperature").placeholder = { greedy: "0", beam: "–" }[own.kind] ?? own.temperature;
  field("top_k").placeholder = own.top_k || "all";
  field("top_p").placeholder = own.top_p;
}
const longest = run => run.continues ? Math.min(run.decode.max_new_tokens, Math.max(FIRST, Math.round(run.decode.max_new_tokens / 2))) : run.decode.max_new_tokens;

/** The request for an answer: its path and its body. */
export function request(run, input) {
  if (!run?.streams) return ["/predict", { model: run?.id, inputs: [input], parameters: {} }];
  const { num_beams, ...rest } = knobs(), searched = num_beams > 1 ? { num_beams } : num_beams === 1 ? { num_beams, ...rest } : rest;
  const body = { model: run.id, prompt: input, stream: true, max_tokens: longest(run), ...searched };
  if (rest.max_tokens !== undefined) body.max_tokens = rest.max_tokens;
  return ["/v1/completions", { ...body, logprobs: 5 }];
}
