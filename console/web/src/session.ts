import { type Caller, Client, ProblemError } from "../../../client/typescript/src/index.js";
import { arrive, type Grant, renew } from "./oidc";
import { Store, useStore } from "./store";
import { drafts } from "./drafts";

/** Who is signed in. The credential is in the page's memory only. */
export interface Session {
  credential: Credential;
  caller: Caller;
  client: Client;
  /** Calls the operations of the contract that are marked with `x-audit-log` on the audit log. */
  audit: Client;
}

export type Scope =
  | "events:append"
  | "events:read"
  | "events:consume"
  | "commands:send"
  | "documents:read"
  | "projections:write"
  | "subscriptions:write"
  | "tenant:admin"
  | "audit:read"
  | "subjects:erase"
  | "subjects:read"
  | "operator"
  | "operator:operate"
  | "operator:read";

/** The session, and, without one, why it has ended and which key the sign-in form offers. */
export const session = new Store<{ current?: Session; starting?: boolean; reason?: string; offered?: string }>({ starting: true });

/** Returns the session. Only pages call it, and they are shown only to those who are signed in. */
export function useSession(): Session {
  return useStore(session).current!;
}

/** Returns a function that reports whether the key has one of the scopes, for some categories at least. */
export function useMay(): (...scopes: Scope[]) => boolean {
  const { caller } = useSession();
  return (...scopes) => caller.scopes.some((granted) => scopes.some((scope) => granted === scope || (scope !== "operator" && granted.startsWith(scope + ":"))));
}

/** Returns a function that reports whether the key has one of the scopes, for all categories. */
export function useMayForAll(): (...scopes: Scope[]) => boolean {
  const { caller } = useSession();
  return (...scopes) => scopes.some((scope) => caller.scopes.includes(scope));
}

/** A key, or a token that is renewed before it expires if its issuer allows that. */
class Credential {
  #grant: Grant;
  #renewing: Promise<void> | undefined;

  constructor(grant: Grant) {
    this.#grant = grant;
  }

  /** The key or token, even if it has expired. */
  get text(): string {
    return this.#grant.token;
  }

  /** Returns a key or token that works. */
  async current(): Promise<string> {
    const { until, refresh } = this.#grant;
    if (refresh && until !== undefined && Date.now() > until) {
      this.#renewing ??= renew({ refresh })
        .then((grant) => void (this.#grant = grant))
        .catch(() => {}) // the service refuses the old one, which ends the session
        .finally(() => (this.#renewing = undefined));
      await this.#renewing;
    }
    return this.text;
  }
}

function clientOf(credential: Credential, prefix = ""): Client {
  return new Client({
    url: location.origin + prefix,
    key: () => credential.current(),
    retry: { attempts: 3 },
    fetch: async (input, init) => {
      const response = await fetch(input, { ...init, credentials: "omit" });
      if (response.status === 401) expire(credential);
      return response;
    },
  });
}

/**
 * Signs in with a key or token. It rejects if the service refuses the key, and changes nothing then. With `late`, it changes nothing
 * if somebody has signed in or out meanwhile, either.
 */
export async function signIn(key: string | Grant, late = false): Promise<void> {
  const credential = new Credential(typeof key === "string" ? { token: key } : key);
  const client = clientOf(credential);
  const before = session.value;
  const caller = await client.whoami();
  if (late && session.value !== before) return;
  take = undefined;
  session.value = { current: { credential, caller, client, audit: clientOf(credential, "/audit") } };
}

/** Signs out, in every tab. */
export function signOut(): void {
  channel?.postMessage({ kind: "signed-out" });
  take = undefined;
  drafts.clear();
  session.value = {};
}

function expire(credential: Credential): void {
  const { current } = session.value;
  if (current?.credential !== credential) return;
  session.value = {
    reason: current.caller.token ? "Your sign-in has expired. Sign in again." : "The service no longer accepts this key: it has expired or was revoked, or its tenant was deleted.",
  };
}

/** The time for which a reload may keep the key, in milliseconds. */
const reloadTime = 15_000;
const handover = "manifold-console-reload";

/**
 * Tabs of the same origin hand each other the key, so that a link opens in a new tab signed in. Nothing is stored.
 */
const channel = typeof BroadcastChannel === "undefined" ? undefined : new BroadcastChannel("manifold-console");

/** Begins with the token of a sign-in, or the key of the address's fragment, of the page before a reload, or of another tab. */
export async function start(): Promise<void> {
  if (channel) channel.onmessage = ({ data }) => hear(data);
  const given = keyOfFragment();
  const kept = keyOfReload();
  addEventListener("pagehide", keepForReload);
  addEventListener("pageshow", () => sessionStorage.removeItem(handover));
  try {
    const key = (await arrive()) ?? (given?.trusted ? given.key : (kept ?? (await keyOfAnotherTab())));
    if (key !== undefined) {
      await signIn(key);
      return;
    }
  } catch (error) {
    const refused = error instanceof ProblemError && error.status === 401;
    session.value = { reason: refused ? "The service does not accept the key." : (error as Error).message };
    return;
  }
  session.value = given ? { offered: given.key } : {};
}

/**
 * Takes the key out of the address: a fragment is never sent to a server. Only on this machine, where `manifold dev`
 * prints such an address, does the key sign in by itself. Elsewhere a link could put a visitor into a foreign tenant
 * unnoticed, so the form offers the key.
 */
function keyOfFragment(): { key: string; trusted: boolean } | undefined {
  const key = new URLSearchParams(location.hash.slice(1)).get("key");
  if (!key) return undefined;
  history.replaceState(null, "", location.pathname + location.search);
  return { key, trusted: ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname) };
}

function keepForReload(): void {
  const { current } = session.value;
  if (current) sessionStorage.setItem(handover, JSON.stringify({ key: current.credential.text, at: Date.now() }));
}

function keyOfReload(): string | undefined {
  const text = sessionStorage.getItem(handover);
  sessionStorage.removeItem(handover);
  if (text === null) return undefined;
  const { key, at } = JSON.parse(text) as { key: string; at: number };
  return Date.now() - at < reloadTime ? key : undefined;
}

/** Takes the key that another tab answers. */
let take: ((key: string) => void) | undefined;

/** Asks the other tabs. One that answers only after the form is shown, since it was busy, still signs this one in. */
function keyOfAnotherTab(): Promise<string | undefined> {
  if (!channel) return Promise.resolve(undefined);
  return new Promise((resolve) => {
    take = resolve;
    channel.postMessage({ kind: "ask" });
    setTimeout(() => {
      resolve(undefined);
      if (take !== resolve) return; // somebody has signed in or out
      take = (key) => void signIn(key, true).catch(() => {});
      setTimeout(() => (take = undefined), 5000);
    }, 100);
  });
}

function hear(message: { kind: string; key: string }): void {
  const { current } = session.value;
  if (message.kind === "ask" && current) channel?.postMessage({ kind: "key", key: current.credential.text });
  if (message.kind === "key") take?.(message.key);
  if (message.kind === "signed-out") {
    take = undefined;
    drafts.clear();
    if (current || session.value.reason !== undefined) session.value = {};
  }
}
