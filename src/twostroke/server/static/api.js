// The server's API as this page uses it. Owns the key, errors in words, and the reading of event streams.

const KEY = "twostroke-key";

export class KeyNeeded extends Error {}

export const keepKey = (key) => sessionStorage.setItem(KEY, key);

export async function ask(path, options = {}) {
  const key = sessionStorage.getItem(KEY);
  const headers = { ...options.headers, ...(key ? { authorization: `Bearer ${key}` } : {}) };
  const response = await fetch(path, { ...options, headers, cache: "no-store" });
  if (response.ok) return response;
  const message = await messageOf(response);
  if (response.status === 401) throw new KeyNeeded(message);
  throw new Error(message);
}

async function messageOf(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `the server answered with status ${response.status}`;
  }
}

// The chunks of a chat's answer as they come. Throws what the server reports within the stream.
export async function* chat(body, signal) {
  const response = await ask("/v1/chat/completions", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Error("the answer ended early");
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      if (!event.startsWith("data: ")) continue;
      const data = event.slice("data: ".length);
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message);
      yield chunk;
    }
  }
}
