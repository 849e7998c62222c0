// The Compare view: runs side by side, filtered by setting; the table of `autofl report`; downloads.
import { $, ask, h, latest, later, numberIn, problem, save } from "./dom.js";
import { COLOURS, empty, legendOf, lineChart, pngBlob, svgText } from "./chart.js";

const state = { rows: [], chosen: new Set(), answer: null };
const PERCENT = new Set(["adapted_accuracy", "global_accuracy"]);
const AXES = { sim_time: ["simulated time", "s"], log_time: ["simulated time", "s"], round: ["rounds", ""], energy: ["energy of all UEs so far", "J"] };

export async function open() {
  try {
    state.rows = (await ask("/api/runs")).runs.filter((row) => row.rounds !== null || row.status === "damaged");
    const readable = state.rows.filter((row) => row.status !== "damaged");
    for (const id of state.chosen) if (!readable.some((row) => row.id === id)) state.chosen.delete(id);
    if (!state.chosen.size) readable.slice(0, 12).forEach((row) => state.chosen.add(row.id));
    filters();
    list();
    compare();
    problem(null, "runs to compare");
  } catch (error) {
    problem(error.message, "runs to compare");
  }
}

/** Settings in which the runs differ, as choices. */
function filters() {
  const keys = new Set(state.rows.flatMap((row) => Object.keys(row.settings)));
  const differing = [...keys].sort().filter((key) => new Set(state.rows.map((row) => String(row.settings[key]))).size > 1);
  choices($("filter-key"), differing);
  values();
}
function values() {
  const key = $("filter-key").value;
  choices($("filter-value"), key ? [...new Set(state.rows.map((row) => String(row.settings[key])))].sort() : []);
}
function choices(select, words) {
  const kept = select.value;
  select.replaceChildren(h("option", { value: "" }, "any"), ...words.map((word) => h("option", { value: word }, word)));
  select.value = words.includes(kept) ? kept : "";
}
const shownRows = () => {
  const key = $("filter-key").value, value = $("filter-value").value;
  return state.rows.filter((row) => !key || !value || String(row.settings[key]) === value);
};

function list() {
  const rows = shownRows();
  $("compare-list").replaceChildren(...rows.map((row) => {
    const box = h("input", { type: "checkbox", "data-run": row.id });
    box.disabled = row.status === "damaged";
    box.checked = state.chosen.has(row.id) && !box.disabled;
    box.addEventListener("change", () => { box.checked ? state.chosen.add(row.id) : state.chosen.delete(row.id); compareSoon(); });
    return h("label", { class: "item" }, box, h("b", {}, `${row.label}${row.seed === null ? "" : `, seed ${row.seed}`}`), h("span", {}, String(row.rounds ?? "")), h("small", {}, `${row.status} · ${row.name}${box.disabled ? ` · ${row.problem}` : ""}`));
  }));
  if (!rows.length) $("compare-list").replaceChildren(h("p", { class: "hint" }, "No runs yet. Start some in the Watch view, or run autofl compare."));
}

const asked = () => ({ runs: shownRows().filter((row) => state.chosen.has(row.id) && row.status !== "damaged").map((row) => row.id).slice(0, 60), target: numberIn("compare-target") });

const compare = latest(async () => {
  const wanted = asked(), refused = wanted.target === null;
  for (const id of ["to-csv", "to-png", "to-svg"]) $(id).disabled = !wanted.runs.length || refused;
  for (const id of ["compare-chart", "compare-table"]) $(id).classList.toggle("stale", refused);
  if (refused) return;
  state.answer = wanted.runs.length ? await ask("/api/compare", wanted) : null;
  for (const [id, why] of Object.entries(state.answer?.left_out ?? {})) Object.assign(rowOf(id), { status: "damaged", problem: why });
  list();
  draw();
  document.body.dataset.compared = String(wanted.runs.length);
});
const compareSoon = later(compare, 120);

const rowOf = (id) => state.rows.find((row) => row.id === id);
const labels = () => [...new Set(state.answer.curves.map((curve) => curve.label))];
const colourOf = (label) => COLOURS[labels().indexOf(label) % COLOURS.length];
const parts = () => labels().map((label) => ({ name: label, colour: colourOf(label) }));
const summed = (list) => { let sum = 0; return list.map((value) => (sum += value ?? 0)); };

function draw() {
  const box = $("compare-chart"), y = $("compare-y").value, x = $("compare-x").value;
  box.parentElement.querySelector(":scope > .keys")?.remove();
  if (!state.answer) {
    $("compare-table").replaceChildren(h("p", { class: "hint" }, "Choose runs on the left."));
    $("compare-note").textContent = "";
    return empty(box, "No run is chosen.");
  }
  const column = (curve, name) => (name === "energy" ? summed(curve.energy) : curve[name === "log_time" ? "sim_time" : name]);
  const several = state.answer.curves.length > labels().length;
  lineChart(box, {
    series: state.answer.curves.map((curve) => ({ name: `${curve.label}, seed ${curve.seed}`, x: column(curve, x), y: column(curve, y), colour: colourOf(curve.label), thin: several, dash: rowOf(curve.id).status === "finished" ? null : "6 4" })),
    xLabel: AXES[x][0], xUnit: AXES[x][1], yLabel: $("compare-y").selectedOptions[0].textContent, yUnit: y === "energy" ? "J" : "",
    logX: x === "log_time", percent: PERCENT.has(y), fromZero: !PERCENT.has(y), level: PERCENT.has(y) ? state.answer.target_accuracy : null,
  });
  box.before(legendOf(parts()));
  const head = h("tr", {}, ...state.answer.headings.map((heading) => h("th", { scope: "col" }, heading)));
  const body = state.answer.table.map((row) => h("tr", {}, ...row.map((cell, k) => {
    if (k) return h("td", {}, cell.replace(/ ± /g, "\u00a0±\u00a0").replace(/(\d) of (\d)/, "$1\u00a0of\u00a0$2")); // breaks before "(" alone
    const key = h("i");
    key.style.background = colourOf(cell);
    return h("td", {}, key, cell);
  })));
  $("compare-table").replaceChildren(h("table", {}, h("thead", {}, head), h("tbody", {}, ...body)));
  const cut = state.answer.curves.filter(({ id }) => rowOf(id).status !== "finished").map((curve) => `${curve.label}, seed ${curve.seed} is ${rowOf(curve.id).status}`);
  $("compare-note").textContent = [cut.length ? `dashed: ${cut.join("; ")}` : null, state.answer.older, state.answer.note].filter(Boolean).map((words) => `${words[0].toUpperCase()}${words.slice(1)}.`).join(" ");
}

async function download(kind) {
  try {
    if (kind === "csv") save(await ask("/api/compare.csv", asked(), "text"), "runs.csv", "text/csv");
    else await picture(kind);
    problem(null, "download");
  } catch (error) {
    problem(error.message, "download");
  }
}

async function picture(kind) {
  const y = $("compare-y").selectedOptions[0].textContent, x = $("compare-x").selectedOptions[0].textContent;
  const text = svgText($("compare-chart"), `${y} over ${x}`, parts());
  save(kind === "svg" ? text : await pngBlob(text), `runs.${kind}`, "image/svg+xml");
}

export function start() {
  $("filter-key").addEventListener("change", () => { values(); list(); compare(); });
  $("filter-value").addEventListener("change", () => { list(); compare(); });
  for (const id of ["compare-x", "compare-y"]) $(id).addEventListener("change", draw);
  $("compare-target").addEventListener("change", compare);
  $("choose-all").addEventListener("click", () => { shownRows().forEach((row) => state.chosen.add(row.id)); list(); compare(); });
  $("choose-none").addEventListener("click", () => { state.chosen.clear(); list(); compare(); });
  for (const kind of ["svg", "png", "csv"]) $(`to-${kind}`).addEventListener("click", () => download(kind));
}
