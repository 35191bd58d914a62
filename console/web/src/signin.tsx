import { useEffect, useState } from "preact/hooks";
import { Client, type SignInIssuer } from "../../../client/typescript/src/index.js";
import { leave } from "./oidc";
import { session, signIn } from "./session";
import { useStore } from "./store";
import { Button, Field, Mark, messageOf, Title } from "./ui";

export function SignIn() {
  const { reason, offered } = useStore(session);
  const [key, setKey] = useState(offered ?? "");
  const [error, setError] = useState(reason);
  const [busy, setBusy] = useState(false);
  const [issuers, setIssuers] = useState<SignInIssuer[]>([]);
  useEffect(() => {
    // Without an answer people sign in with a key.
    new Client().getSignIn().then((answer) => setIssuers(answer.issuers.filter((i) => i.consoleClient && i.authorizationEndpoint && i.tokenEndpoint)), () => {});
  }, []);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await signIn(key.trim());
    } catch (problem) {
      setError(messageOf(problem));
      setBusy(false);
    }
  };
  return (
    <main class="signin" id="main">
      <form class="panel" onSubmit={submit}>
        <Mark />
        <Title text="Sign in" about="With an API key of your tenant, an operator key, or a token. The console shows what it may do." />
        {error && <p class="problem" role="alert">{error}</p>}
        {issuers.map((issuer) => (
          <Button key={issuer.name} disabled={busy} onPress={() => leave(issuer)}>Sign in with {issuer.title}</Button>
        ))}
        <Field label="Key" type="password" value={key} required autofocus placeholder="mfk_…" onInput={(event) => setKey(event.currentTarget.value)} />
        <Button tone="primary" type="submit" disabled={busy || key.trim() === ""}>{busy ? "Checking the key …" : "Sign in"}</Button>
        <p class="muted small">The key or token stays in this page's memory, and is forgotten when you close the last tab.</p>
      </form>
    </main>
  );
}
