import { Store } from "./store";

export type Theme = "system" | "light" | "dark";

const name = "manifold-console-theme";

export const theme = new Store<Theme>((localStorage.getItem(name) as Theme | null) ?? "system");

/** Applies the chosen theme. The style sheet follows the system where none is chosen. */
export function applyTheme(): void {
  if (theme.value === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.value;
}

export function chooseTheme(chosen: Theme): void {
  theme.value = chosen;
  localStorage.setItem(name, chosen);
  applyTheme();
}
