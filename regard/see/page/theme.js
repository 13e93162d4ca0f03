// Light or dark: as the system has it, or as the reader says.

import { make } from "./dom.js";
import { dark } from "./colour.js";

const remembered = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
const remember = theme => { try { localStorage.setItem("theme", theme); } catch { /* a file has no storage */ } };

if (remembered()) document.documentElement.dataset.theme = remembered();

/** A button that turns light to dark and back; `changed` draws again. */
export function themeSwitch(changed) {
  const name = () => dark() ? "Light" : "Dark";
  const button = make("button.quiet", { type: "button", id: "theme", title: "light or dark", onclick: () => {
    const theme = dark() ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    remember(theme);
    button.textContent = name();
    changed();
  } }, name());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { button.textContent = name(); });
  return button;
}
