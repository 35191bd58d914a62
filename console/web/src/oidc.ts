import type { SignInIssuer } from "../../../client/typescript/src/index.js";
import { go } from "./router";

/**
 * Signs in with an identity provider: by authorization code with PKCE (RFC 7636), as a public client. While the browser is
 * at the provider, the tab's session storage has what completes the sign-in, which is worthless without the code. Tokens are
 * never stored.
 */
export interface Grant {
  token: string;
  /** When the token is to be replaced, in milliseconds since 1970; missing: unknown. */
  until?: number;
  refresh?: { token: string; endpoint: string; client: string };
}

/** What a sign-in under way needs when the browser comes back. */
interface Pending {
  state: string;
  verifier: string;
  issuer: string;
  endpoint: string;
  client: string;
  back: string;
}

const storage = "manifold-console-sign-in";
const arrival = "/console/signed-in";
const redirect = () => location.origin + arrival;

const encode = (bytes: Uint8Array) => btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
const random = () => encode(crypto.getRandomValues(new Uint8Array(32)));

/** Leads the browser to the provider. */
export async function leave(issuer: SignInIssuer): Promise<void> {
  if (!globalThis.crypto?.subtle) throw new Error("Signing in with an identity provider needs HTTPS.");
  const verifier = random();
  const pending: Pending = {
    state: random(), verifier, issuer: issuer.issuer, endpoint: issuer.tokenEndpoint!, client: issuer.consoleClient!,
    back: location.pathname === arrival ? "/console" : location.pathname + location.search,
  };
  const challenge = encode(new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier))));
  const url = new URL(issuer.authorizationEndpoint!);
  const parameters = {
    ...issuer.parameters, response_type: "code", client_id: pending.client, redirect_uri: redirect(), scope: issuer.scopes.join(" "),
    state: pending.state, code_challenge: challenge, code_challenge_method: "S256",
  };
  for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value);
  sessionStorage.setItem(storage, JSON.stringify(pending));
  location.assign(url);
}

/** Completes a sign-in, if the browser comes back from one, and takes the code out of the address. */
export async function arrive(): Promise<Grant | undefined> {
  if (location.pathname !== arrival) return undefined;
  const text = sessionStorage.getItem(storage);
  sessionStorage.removeItem(storage);
  const answer = new URLSearchParams(location.search);
  const pending = text === null ? undefined : (JSON.parse(text) as Pending);
  go(pending?.back ?? "/console", { replace: true });
  // A code for a sign-in that did not begin in this tab could put its visitor into a foreign account (RFC 6749, 10.12), and
  // one of another issuer is not for this endpoint (RFC 9207).
  if (!pending || answer.get("state") !== pending.state || (answer.has("iss") && answer.get("iss") !== pending.issuer)) {
    throw new Error("The sign-in did not begin in this tab. Sign in again.");
  }
  const code = answer.get("code");
  if (code === null) throw new Error(`The identity provider did not sign you in: ${answer.get("error_description") ?? answer.get("error") ?? "it gave no reason"}`);
  return exchange(pending.endpoint, pending.client, { grant_type: "authorization_code", code, redirect_uri: redirect(), code_verifier: pending.verifier });
}

/** Gets a new token for an old one. */
export function renew(old: Required<Pick<Grant, "refresh">>): Promise<Grant> {
  const { token, endpoint, client } = old.refresh;
  return exchange(endpoint, client, { grant_type: "refresh_token", refresh_token: token }, token);
}

async function exchange(endpoint: string, client: string, parameters: Record<string, string>, oldRefresh?: string): Promise<Grant> {
  const response = await fetch(endpoint, {
    method: "POST", credentials: "omit", redirect: "error", referrerPolicy: "no-referrer", body: new URLSearchParams({ ...parameters, client_id: client }),
  });
  const answer = (await response.json()) as { access_token?: string; refresh_token?: string; expires_in?: number; error?: string };
  if (!response.ok || !answer.access_token) throw new Error(`The identity provider gave no token: ${answer.error ?? response.status}`);
  const refresh = answer.refresh_token ?? oldRefresh;
  return {
    token: answer.access_token,
    ...(answer.expires_in === undefined ? {} : { until: Date.now() + (answer.expires_in - 30) * 1000 }),
    ...(refresh === undefined ? {} : { refresh: { token: refresh, endpoint, client } }),
  };
}
