// A conversation with a run that was taught to converse: messages as bubbles, answers as they come.

import { ask, events } from "./api.js";
import { make } from "./dom.js";

const $ = id => document.getElementById(id);
const NAMES = { user: "you", assistant: "the model", system: "how it should answer" };

// What may be said first, where a run has no examples of its own.
const OPENERS = ["What is attention in a neural network?", "Write two lines about the sea.", "Give three synonyms of “quick”."];

let messages = []; // of the conversation so far

/** What the reader said last, to look inside at. */
export const lastSaid = () => messages.findLast(message => message.role === "user")?.content;

/** Ways to begin, while nothing has been said. */
export function offerOpeners(own, say) {
  const texts = own.length ? own : OPENERS;
  $("openers").hidden = messages.length > 0;
  $("openers").replaceChildren(make("p", {}, "What would you like to ask?"), ...texts.map(text => make("button.chip", { type: "button", onclick: () => {
    $("say").value = text;
    say();
  } }, text)));
}

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
  $("openers").hidden = false;
}

/** Say something, and show what is said to it; where it is stopped, what was said so far stands. */
export async function converse(model, signal) {
  const text = $("say").value.trim(), manner = $("system").value.trim();
  if (!text) return;
  $("say").value = "";
  $("openers").hidden = true;
  const talk = messages, reply = { role: "assistant", content: "" };
  const first = manner ? [{ role: "system", content: manner }] : [];
  talk.push({ role: "user", content: text });
  const body = { model, messages: [...first, ...talk], stream: true };
  talk.push(reply); // its place is taken now, so that what is said meanwhile stands behind it
  const asked = bubble("user", text), answer = bubble("assistant", "…");
  let said = "";
  try {
    for await (const chunk of events(await ask("/v1/chat/completions", body, signal))) {
      said += chunk.choices?.[0]?.delta?.content ?? "";
      reply.content = said;
      if (said) answer.textContent = said;
      answer.scrollIntoView({ block: "nearest" });
    }
  } catch (fault) {
    if (!said) { // it was refused, so it was not said
      talk.splice(talk.indexOf(reply) - 1, 2);
      for (const one of [asked, answer]) one.parentElement.remove();
      $("say").value ||= text;
    }
    throw fault;
  } finally {
    answer.textContent = said || "(nothing)";
  }
}
