// Requests to the server, and what it answers.

/** The key that requests carry; the browser forgets it with the tab. */
export const key = {
  get value() { return sessionStorage.getItem("key") ?? ""; },
  set value(text) { sessionStorage.setItem("key", text); },
};

export async function ask(path, body, signal) {
  const headers = {};
  if (body) headers["Content-Type"] = "application/json";
  if (key.value) headers.Authorization = `Bearer ${key.value}`;
  const answer = await fetch(path, { method: body ? "POST" : "GET", headers, signal, body: body && JSON.stringify(body) })
    .catch(fault => { throw fault.name === "AbortError" ? fault : new Error("The server cannot be reached."); });
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => null);
  const wait = answer.headers.get("Retry-After");
  throw new Error((said?.error?.message ?? `${path}: the server answered ${answer.status}.`) + (wait ? ` Try again in ${wait} s.` : ""));
}

export const askJson = async (...request) => (await ask(...request)).json();

/** The objects of a stream of server-sent events. */
export async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (let rest = "", done = false; !done;) {
      const got = await reader.read();
      done = got.done;
      const lines = (rest + (done ? "\n" : got.value)).split(/\r?\n/);
      rest = lines.pop();
      for (const line of lines.filter(one => one.startsWith("data:")).map(one => one.slice(5).trim())) {
        if (line === "[DONE]") return;
        const event = JSON.parse(line);
        if (event.error) throw new Error(event.error.message ?? "the stream broke off.");
        yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // frees the server's place when we leave early
  }
}
