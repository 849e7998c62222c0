// The views, the theme, the keys; each view lives in a file of its own.
import { $, ask, problem } from "./dom.js";
import * as plan from "./plan.js";
import * as watch from "./watch.js";
import * as compare from "./compare.js";

const VIEWS = ["plan", "watch", "compare"];
const opened = { plan: () => {}, watch: watch.open, compare: compare.open };

function route() {
  const wanted = location.hash.slice(1), view = VIEWS.includes(wanted) ? wanted : "plan";
  for (const name of VIEWS) $(`view-${name}`).hidden = name !== view;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${view[0].toUpperCase()}${view.slice(1)} · AutoFL explorer`;
  opened[view]();
}

function theme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme); // read in index.html, before anything is painted
}

document.addEventListener("keydown", (event) => {
  if (event.target.closest("input, select, textarea, dialog") || event.ctrlKey || event.metaKey || event.altKey) return;
  if ("123".includes(event.key)) location.hash = VIEWS[Number(event.key) - 1];
  else if (event.key === "d") theme();
  else if (event.key === "s") plan.saveToml();
  else if (event.key === "?") $("keys").showModal();
});
$("theme").addEventListener("click", theme);
$("help").addEventListener("click", () => $("keys").showModal());
addEventListener("hashchange", route);

const about = await ask("/api/about").catch((error) => problem(error.message, "about"));
if (about) {
  plan.start(about);
  watch.start(about);
  compare.start();
  route();
}
