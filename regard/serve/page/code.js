// The page's request as a shell or a program would make it; the key itself is never written out.

import { key } from "./api.js";

function literal(value) { // JSON as Python writes it
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${literal(one)}`).join(", ")}}`;
  return JSON.stringify(value);
}
const short = body => JSON.stringify(body, (_, value) => typeof value === "string" && value.startsWith("data:") ? `${value.slice(0, 40)}…` : value);

export function curl([path, body], form) {
  const quoted = short(body).replaceAll("'", `'\\''`);
  const sent = form.upload?.() ? `${form.upload()} -F 'model=${body.model}'` : `-H 'Content-Type: application/json' \\\n  -d '${quoted}'`;
  const keyed = key.value ? ` -H "Authorization: Bearer $REGARD_API_KEY"` : "";
  return `curl ${body.stream ? "-N " : ""}${location.origin}${path}${keyed} ${sent}`;
}

export function python([path, body], form) {
  const keyed = key.value !== "", address = `${location.origin}${path}`;
  const head = keyed ? ["import os", ""] : [], bearer = `{"Authorization": f"Bearer {os.environ['REGARD_API_KEY']}"}`;
  if (body.stream) {
    return [...head, "from openai import OpenAI", "",
      `client = OpenAI(base_url="${location.origin}/v1", api_key=${keyed ? `os.environ["REGARD_API_KEY"]` : `"none"`})`,
      ...openai(body), "for chunk in stream:", "    if chunk.choices:", `        print(chunk.choices[0].text, end="", flush=True)`].join("\n");
  }
  if (form.upload?.()) {
    const [name, file] = form.file();
    return [...head, "import httpx", "", ...(keyed ? [`headers = ${bearer}`] : []), `with open(${literal(file)}, "rb") as file:`,
      `    answer = httpx.post("${address}", data={"model": ${literal(body.model)}}, files={"${name}": file}${keyed ? ", headers=headers" : ""})`,
      "print(answer.json())"].join("\n");
  }
  return ["import json", ...(keyed ? ["import os"] : []), "import urllib.request", "", `body = ${literal(body)}`,
    `headers = {"Content-Type": "application/json"${keyed ? `, **${bearer}` : ""}}`,
    `request = urllib.request.Request("${address}", json.dumps(body).encode(), headers)`,
    "with urllib.request.urlopen(request) as answer:", "    print(json.load(answer))"].join("\n");
}

const OURS = new Set(["num_beams", "top_k"]); // which OpenAI's client takes beside its own

function openai(body) {
  const own = Object.entries(body).filter(([name]) => !OURS.has(name)), more = Object.fromEntries(Object.entries(body).filter(([name]) => OURS.has(name)));
  return ["stream = client.completions.create(", ...own.map(([name, value]) => `    ${name}=${literal(value)},`),
    ...(Object.keys(more).length ? [`    extra_body=${literal(more)},`] : []), ")"];
}
