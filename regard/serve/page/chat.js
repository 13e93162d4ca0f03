// A conversation with a run that was taught to converse: messages as bubbles, answers as they come.

import { ask, events } from "./api.js";
import { make } from "./dom.js";

const $ = id => document.getElementById(id);
const NAMES = { user: "you", assistant: "the model", system: "how it should answer" };

let messages = []; // of the conversation so far

function bubble(role, text) {
  const said = make("p", {}, text);
  $("talk").append(make(`div.bubble.${role}`, {}, make("span.soft", {}, NAMES[role]), said));
  said.scrollIntoView({ block: "nearest" });
  return said;
}

/** Forget what was said. */
export function clearChat() {
  messages = [];
  $("talk").replaceChildren();
}

/** Say something, and show what is said to it; where it is stopped, what was said so far stands. */
export async function converse(model, signal) {
  const text = $("say").value.trim(), manner = $("system").value.trim();
  if (!text) return;
  $("say").value = "";
  messages.push({ role: "user", content: text });
  bubble("user", text);
  const answer = bubble("assistant", "…");
  let said = "";
  try {
    const first = manner ? [{ role: "system", content: manner }] : [];
    const body = { model, messages: [...first, ...messages], stream: true };
    for await (const chunk of events(await ask("/v1/chat/completions", body, signal))) {
      said += chunk.choices?.[0]?.delta?.content ?? "";
      if (said) answer.textContent = said;
      answer.scrollIntoView({ block: "nearest" });
    }
  } finally {
    answer.textContent = said || "(nothing)";
    messages.push({ role: "assistant", content: said });
  }
}
