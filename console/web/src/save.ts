/** How many bytes a saved file has at most. */
export const savedBytes = 256_000_000;

/**
 * Reads a response of lines of JSON up to `savedBytes`, without the empty lines that keep the connection alive. `more` reports
 * whether there is more.
 */
export async function readLines(response: Response, progress: (size: number) => void = () => {}): Promise<{ file: Blob; more: boolean }> {
  const parts: Blob[] = []; // the browser may keep blobs on disk
  let size = 0;
  let lineEnded = true;
  const lines = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  for (let chunk = await lines.read(); !chunk.done; chunk = await lines.read()) {
    const text: string = (lineEnded ? chunk.value.replace(/^\n+/, "") : chunk.value).replace(/\n{2,}/g, "\n");
    if (text === "") continue;
    lineEnded = text.endsWith("\n");
    const part = new Blob([text]);
    parts.push(part);
    size += part.size;
    progress(size);
    if (size >= savedBytes) {
      await lines.cancel();
      return { file: new Blob(parts, { type: "application/x-ndjson" }), more: true };
    }
  }
  return { file: new Blob(parts, { type: "application/x-ndjson" }), more: false };
}

/** Lets the browser save a file. */
export function save(file: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
