/** One server-sent event. */
export interface ServerSentEvent {
  name: string;
  data: string;
}

/** Reads server-sent events from an answer, to its end. It cancels the answer when it is left early. */
export async function* serverSentEvents(body: ReadableStream<Uint8Array>): AsyncGenerator<ServerSentEvent, void, undefined> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  let name = "message";
  let data: string[] = [];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return; // an event without its end does not count
      rest += decoder.decode(value, { stream: true });
      let start = 0;
      for (let end = rest.indexOf("\n"); end >= 0; end = rest.indexOf("\n", start)) {
        const line = rest.slice(start, rest[end - 1] === "\r" && end > start ? end - 1 : end);
        start = end + 1;
        if (line === "") {
          if (data.length > 0) yield { name, data: data.join("\n") };
          name = "message";
          data = [];
          continue;
        }
        const colon = line.indexOf(":");
        if (colon === 0) continue; // a comment
        const field = colon < 0 ? line : line.slice(0, colon);
        const text = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
        if (field === "event") name = text;
        else if (field === "data") data.push(text);
      }
      rest = rest.slice(start);
    }
  } finally {
    await reader.cancel().catch(() => {}); // it may be broken already
  }
}
