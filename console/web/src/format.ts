const numbers = new Intl.NumberFormat("en");

export const count = (n: number): string => numbers.format(n);

export const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

/** "1 event", "3 events". */
export const plural = (n: number, one: string, many = one + "s"): string => `${count(n)} ${n === 1 ? one : many}`;

export function bytes(n: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  for (; n >= 1000 && unit < units.length - 1; unit++) n /= 1000;
  return `${unit === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)} ${units[unit]}`;
}

/** A duration in its largest unit: 450 ms, 12 s, 3 min, 5 h, 2 d. */
export function duration(seconds: number): string {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 90) return `${seconds < 10 ? Math.round(seconds * 10) / 10 : Math.round(seconds)} s`;
  if (seconds < 90 * 60) return `${Math.round(seconds / 60)} min`;
  if (seconds < 36 * 3600) return `${Math.round(seconds / 3600)} h`;
  return `${count(Math.round(seconds / 86400))} d`;
}

const year = 365.25 * 86_400;

/** The time until or since a moment: "12 s ago", "in 3 min", "8.7 y ago". */
export function relative(time: string, now = Date.now()): string {
  const seconds = (now - Date.parse(time)) / 1000;
  if (Math.abs(seconds) < 1) return "now";
  const length = Math.abs(seconds);
  const whole = length < 90 ? `${Math.round(length)} s` : length < 2 * year ? duration(length) : `${(length / year).toFixed(1)} y`;
  return seconds > 0 ? `${whole} ago` : `in ${whole}`;
}

export const exact = (time: string): string => new Date(time).toISOString().replace("T", " ").replace("Z", " UTC");

/** A time as somebody types it, in UTC unless it has an offset, as the service takes it; undefined if it is none. */
export function timeOf(text: string): string | undefined {
  const iso = text.trim().replace(/^(\d{4}-\d\d-\d\d) /, "$1T");
  const time = new Date(/T[\d:.]+$/.test(iso) ? iso + "Z" : iso);
  return !/^\d{4}-\d\d/.test(iso) || Number.isNaN(time.getTime()) ? undefined : time.toISOString();
}

/** Text for a shell, in single quotes. */
export const quote = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;

/** A curl command for a request. The key stands in a variable, so that the command can be shared. */
export function curl(path: string, { method = "GET", body }: { method?: string; body?: unknown } = {}): string {
  const parts = ["curl -s", method === "GET" ? "" : `-X ${method}`, quote(location.origin + path), `-H "Authorization: Bearer $MANIFOLD_KEY"`];
  if (body !== undefined) parts.push("-H 'Content-Type: application/json'", `-d ${quote(JSON.stringify(body))}`);
  return parts.filter(Boolean).join(" ");
}
