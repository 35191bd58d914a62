import { render } from "preact";
import { App } from "./app";
import { start } from "./session";
import { applyTheme } from "./theme";

applyTheme();
render(<App />, document.getElementById("app")!);
void start();
