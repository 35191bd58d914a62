import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import { Icon, type IconName } from "./icons";
import { Admin } from "./pages/admin";
import { Delivery } from "./pages/delivery";
import { Audit } from "./pages/audit";
import { Events } from "./pages/events";
import { Home } from "./pages/home";
import { People } from "./pages/people";
import { Projections } from "./pages/projections";
import { Proof } from "./pages/proof";
import { Rebuilds } from "./pages/rebuilds";
import { Streams } from "./pages/streams";
import { go, href, Link, usePlace } from "./router";
import { type Scope, session, signOut, useMay, useMayForAll, useSession } from "./session";
import { SignIn } from "./signin";
import { useStore } from "./store";
import { chooseTheme, type Theme, theme } from "./theme";
import { Button, Dialog, Empty, Loading, Mark, Questions, Select, Title, Toasts } from "./ui";

interface Section {
  id: IconName;
  name: string;
  /** The key that follows g. */
  letter: string;
  /** The key needs one of these to see the page. */
  scopes: Scope[];
  /** The scope has to be for all categories. */
  forAll?: true;
  page: () => preact.JSX.Element;
}

const sections: Section[] = [
  { id: "home", name: "Home", letter: "h", scopes: ["events:read", "tenant:admin", "operator:read"], page: Home },
  { id: "events", name: "Events", letter: "e", scopes: ["events:read"], page: Events },
  { id: "streams", name: "Streams", letter: "s", scopes: ["events:read"], page: Streams },
  { id: "projections", name: "Projections", letter: "p", scopes: ["documents:read", "projections:write", "operator:read"], page: Projections },
  { id: "rebuilds", name: "Rebuilds", letter: "r", scopes: ["documents:read", "projections:write", "operator:read"], page: Rebuilds },
  { id: "delivery", name: "Delivery", letter: "d", scopes: ["events:read", "events:consume", "subscriptions:write", "operator:read"], page: Delivery },
  { id: "audit", name: "Audit log", letter: "u", scopes: ["audit:read", "operator:read"], page: Audit },
  { id: "people", name: "People", letter: "o", scopes: ["subjects:erase", "subjects:read"], page: People },
  { id: "proof", name: "Proof", letter: "f", scopes: ["events:read", "audit:read", "tenant:admin", "operator:read"], forAll: true, page: Proof },
  { id: "admin", name: "Administration", letter: "a", scopes: ["tenant:admin", "operator:read", "events:read", "projections:write"], page: Admin },
];

export function App() {
  const { current, starting } = useStore(session);
  return (
    <>
      {current ? <Shell key={current.caller.key?.id} /> : starting ? <Starting /> : <SignIn />}
      <Toasts />
    </>
  );
}

/** What index.html shows before the script is there. */
function Starting() {
  return (
    <main class="signin" id="main">
      <Mark />
      <h1 class="visually-hidden">Manifold</h1>
      <Loading what="the console" />
    </main>
  );
}

function Shell() {
  const { caller } = useSession();
  const may = useMay();
  const mayForAll = useMayForAll();
  const { path } = usePlace();
  const [help, setHelp] = useState(false);
  const [menu, setMenu] = useState(false);
  const shown = sections.filter(({ scopes, forAll }) => (forAll ? mayForAll : may)(...scopes));
  const here = path[0] ?? shown[0]?.id;
  const section = shown.find(({ id }) => id === here);
  useKeyboard(shown, () => setHelp(true));
  useEffect(() => setMenu(false), [here]);
  return (
    <div class="shell">
      <a class="skip" href="#main">Skip to content</a>
      <header class="top">
        <Link to={href([])} class="brand" aria-label="Manifold, home">
          <Mark />
          <span>Manifold</span>
        </Link>
        <button type="button" class="button quiet menu" aria-expanded={menu} aria-controls="nav" onClick={() => setMenu(!menu)}>
          <Icon name="menu" /> Menu
        </button>
      </header>
      <nav id="nav" class={menu ? "open" : ""} aria-label="Pages">
        <ul>
          {shown.map(({ id, name, letter }) => (
            <li key={id}>
              <Link to={href(id === "home" ? [] : [id])} aria-current={id === here ? "page" : undefined} aria-keyshortcuts={`g ${letter}`}>
                <Icon name={id} /> {name}
              </Link>
            </li>
          ))}
        </ul>
        <div class="who">
          <p>
            <strong>{caller.tenant?.name ?? "Operator"}</strong>
            <span class="muted">{caller.key ? `key ${caller.key.name}` : (caller.token?.name ?? "all tenants")}</span>
          </p>
          <Select label="Theme" value={useStore(theme)} options={[["system", "As the system"], ["light", "Light"], ["dark", "Dark"]]}
            onChange={(event) => chooseTheme(event.currentTarget.value as Theme)} />
          <div class="actions">
            <Button tone="quiet" class="shortcuts" title="?" aria-keyshortcuts="?" onPress={() => setHelp(true)}>Shortcuts</Button>
            <Button tone="quiet" onPress={signOut}>Sign out</Button>
          </div>
        </div>
      </nav>
      <main id="main" tabIndex={-1}>
        {section ? <section.page /> : <Missing known={sections.some(({ id }) => id === here)} />}
      </main>
      {help && <Help sections={shown} close={() => setHelp(false)} />}
      <Questions />
    </div>
  );
}

function Missing({ known }: { known: boolean }) {
  return (
    <>
      <Title text={known ? "Not permitted" : "Page not found"} />
      <Empty>{known ? "Your key has none of the scopes that this page needs." : <>There is no such page. Go <Link to={href([])}>home</Link>.</>}</Empty>
    </>
  );
}

/** Handles keys that are not typed into a field: g and a letter go to a page, / focuses the search, ? shows the keys. */
function useKeyboard(shown: Section[], help: () => void): void {
  useLayoutEffect(() => {
    let going = 0;
    const press = (event: KeyboardEvent) => {
      const target = event.composedPath()[0] as HTMLElement; // the editor is in a shadow root
      if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input, select, textarea, dialog, [contenteditable]")) return;
      if (event.key === "?") return help();
      if (event.key === "/") {
        const search = document.querySelector<HTMLElement>("[data-search]");
        if (search) {
          event.preventDefault();
          search.focus();
        }
        return;
      }
      if (event.key === "g") {
        going = Date.now();
        return;
      }
      const section = Date.now() - going < 1500 && shown.find(({ letter }) => letter === event.key);
      going = 0;
      if (section) go(href(section.id === "home" ? [] : [section.id]));
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, [shown.length]);
}

function Help({ sections, close }: { sections: Section[]; close: () => void }) {
  return (
    <Dialog title="Keyboard shortcuts" close={close}>
      <dl class="keys">
        {sections.map(({ letter, name }) => (
          <div key={letter}><dt><kbd>g</kbd> <kbd>{letter}</kbd></dt><dd>{name}</dd></div>
        ))}
        <div><dt><kbd>/</kbd></dt><dd>Search on the page</dd></div>
        <div><dt><kbd>Esc</kbd></dt><dd>Close what is open</dd></div>
        <div><dt><kbd>?</kbd></dt><dd>These shortcuts</dd></div>
      </dl>
      <div class="actions end"><Button tone="primary" onPress={close}>Close</Button></div>
    </Dialog>
  );
}
