// The Watch view: one run as it grows, fed by server-sent events; starts, pauses, stops and resumes runs.
import { $, ask, h, numberIn, problem, si, withToken } from "./dom.js";
import { barChart, empty, legendOf, lineChart } from "./chart.js";
import { question } from "./plan.js";

const FATES = [["left out or cannot take part", "--bad"], ["selected, not decoded", "--energy"], ["decoded", "--accuracy"]];
const COLUMNS = ["round", "sim_time", "train_loss", "adapted_train_loss", "global_accuracy", "adapted_accuracy", "energy", "num_selected", "num_decoded"];
const nothing = () => ({ run: null, rounds: Object.fromEntries(COLUMNS.map((name) => [name, []])), who: [], energy: [], num_ue: 0 });
const watched = { id: null, source: null, ...nothing() };
let rows = [];

export async function open() {
  try {
    rows = (await ask("/api/runs")).runs;
    list();
    const newest = rows.find((row) => row.rounds !== null || row.status === "starting") ?? rows[0];
    if (!watched.id && newest) watch(newest.id);
    problem(null, "runs to watch");
  } catch (error) {
    problem(error.message, "runs to watch");
  }
}

function list() {
  const word = $("watch-filter").value.toLowerCase();
  const shown = rows.filter((row) => `${row.name} ${row.label} ${row.status}`.toLowerCase().includes(word));
  $("watch-list").replaceChildren(...shown.map((row) => h("button",
    { type: "button", class: "item", "aria-pressed": String(row.id === watched.id), "data-run": row.id, onclick: () => watch(row.id) },
    h("span", { class: `state ${row.status}`, "aria-hidden": "true" }), h("b", {}, `${row.label}${row.seed === null ? "" : `, seed ${row.seed}`}`), h("span", {}, progressOf(row)),
    h("small", {}, `${row.status} · ${row.name}`))));
  if (!shown.length) $("watch-list").replaceChildren(h("p", { class: "hint" }, rows.length ? "No run has this name." : "No runs yet. Start one, or give autofl explore a folder of runs."));
}
const progressOf = (row) => (row.rounds === null ? "" : row.planned_rounds ? `${row.rounds}/${row.planned_rounds}` : String(row.rounds));

function watch(id) {
  watched.source?.close();
  Object.assign(watched, { id, ...nothing() });
  delete document.body.dataset.watched;
  list();
  draw();
  const source = new EventSource(withToken(`/api/runs/${id}/events`));
  watched.source = source;
  source.addEventListener("rounds", (event) => {
    const said = JSON.parse(event.data);
    for (const name of COLUMNS) watched.rounds[name].push(...(said.rounds[name] ?? said.rounds.round.map(() => null)));
    watched.who = watched.who.concat(said.who);
    watched.energy = said.energy_per_ue;
    watched.num_ue = said.num_ue;
    status(said.run);
    draw();
    document.body.dataset.watched = watched.rounds.round.at(-1);
  });
  source.addEventListener("status", (event) => status(JSON.parse(event.data)));
}

function status(run) {
  watched.run = run;
  const at = rows.findIndex((row) => row.id === run.id);
  if (at >= 0) rows[at] = run;
  else rows.unshift(run);
  list();
  $("watch-title").textContent = `${run.label}${run.seed === null ? "" : `, seed ${run.seed}`}`;
  const spent = watched.energy.reduce((sum, value) => sum + value, 0), time = watched.rounds.sim_time.at(-1);
  const rounds = run.rounds === null ? "" : ` · ${run.rounds} of ${run.planned_rounds ?? "?"} rounds`;
  $("watch-status").textContent = `${run.status}${rounds}${time ? ` · ${si(time, "s")} simulated · ${si(spent, "J")} spent` : ""} · ${run.name}${run.problem ? ` · ${run.problem}` : ""}`;
  $("watch-progress").hidden = run.rounds === null || !run.planned_rounds;
  $("watch-progress").value = run.rounds / (run.planned_rounds || 1);
  const going = run.own && ["running", "starting"].includes(run.status);
  for (const button of $("watch-actions").children) button.hidden = button.dataset.wish === "resume" ? !run.resumable : !going;
  const pause = $("watch-actions").querySelector("[data-wish=pause]");
  pause.disabled = run.status === "starting";
  pause.title = pause.disabled ? "Possible from its first round on: before, there is nothing to resume" : "";
  document.body.dataset.status = run.status;
}

function draw() {
  const { rounds } = watched, over = document.querySelector("input[name=watch-x]:checked").value;
  const axis = { x: rounds[over], xLabel: over === "round" ? "rounds" : "simulated time", xUnit: over === "round" ? "" : "s" };
  const lines = (pairs) => pairs.map(([name, column, colour]) => ({ name, x: axis.x, y: rounds[column], colour }));
  const plot = (box, pairs, more) => {
    lineChart($(box), { series: lines(pairs), xLabel: axis.xLabel, xUnit: axis.xUnit, nothing: watched.id ? "No round has been evaluated yet." : "No run chosen.", ...more });
    $(box).parentElement.querySelector(":scope > .keys")?.remove();
    $(box).before(legendOf(pairs.map(([name, , colour]) => ({ name, colour }))));
  };
  plot("watch-accuracy", [["adapted", "adapted_accuracy", "var(--c1)"], ["global", "global_accuracy", "var(--c2)"]], { yLabel: "Accuracy", yUnit: "", percent: true });
  plot("watch-loss", [["after adaptation", "adapted_train_loss", "var(--c1)"], ["global model", "train_loss", "var(--c2)"]], { yLabel: "Training loss", yUnit: "", fromZero: true });
  who();
  if (watched.energy.length) barChart($("watch-energy"), { ids: watched.energy.map((_, k) => k), unit: "J", yLabel: "Energy", parts: [{ name: "energy", colour: "var(--energy)", values: watched.energy }], nothing: "No energy has been spent yet." });
  else empty($("watch-energy"), "No energy has been spent yet.");
}

/** A pixel for each round and UE; not selected stays empty. */
function who() {
  const box = $("watch-who"), last = watched.rounds.round?.at(-1) ?? 0;
  if (!watched.who.length) return empty(box, "Nobody has been selected yet.");
  const count = Math.min(watched.num_ue, 200), shown = Math.min(last, 400), first = last - shown + 1;
  const wide = Math.max(2, Math.floor(900 / shown)), high = Math.max(2, Math.floor(400 / count));
  const canvas = h("canvas", { width: shown * wide, height: count * high, role: "img" });
  const pen = canvas.getContext("2d"), probe = h("i");
  document.body.append(probe);
  const colours = FATES.map(([, name]) => { probe.style.color = `var(${name})`; return getComputedStyle(probe).color; });
  probe.remove();
  const counts = [0, 0, 0];
  for (const [round, ue, fate] of watched.who) {
    counts[fate] += 1;
    if (round < first) continue;
    pen.fillStyle = colours[fate];
    pen.fillRect((round - first) * wide, ue * high, wide - (wide > 3 ? 1 : 0), high - (high > 3 ? 1 : 0));
  }
  canvas.setAttribute("aria-label", `Rounds ${first} to ${last} across, UEs 0 to ${count - 1} down: ${FATES.map(([name], k) => `${counts[k]} ${name}`).join(", ")}`);
  const keys = legendOf(FATES.map(([name, colour], k) => ({ name: `${name} ${counts[k]}`, colour: `var(${colour})` })));
  const grid = h("div", { class: "whogrid" }, h("span", {}, "UE 0"), canvas, h("span", {}, `UE ${count - 1}`), h("small", {}, h("span", {}, `round ${first}`), h("span", {}, `round ${last}`)));
  grid.style.width = `${Math.min((100 * shown) / 40, 100)}%`; // few rounds stay narrow
  box.replaceChildren(keys, grid);
}

async function wish(event) {
  const word = event.target.dataset?.wish;
  if (!word) return;
  try {
    status(await ask(`/api/runs/${watched.id}/${word}`, {}));
    problem(null, "wish");
  } catch (error) {
    problem(error.message, "wish");
  }
}

let arms = [];

async function startRun(event) {
  event.preventDefault();
  const asked = question(), arm = $("arm").value, own = $("seed").value.trim() !== "";
  const seed = own ? numberIn("seed") : undefined, [rounds, every] = ["rounds", "every"].map(numberIn);
  if ([seed, rounds, every].includes(null)) return;
  if (arm) asked.settings = { ...asked.settings, arm };
  if (own) asked.settings = { ...asked.settings, seed };
  // The planner of the page is for the paper's two arms that plan; the others have one of their own.
  if (arm && arms.find(({ name }) => name === arm).planner !== "paper") delete asked.settings.planner;
  try {
    const row = await ask("/api/runs", { ...asked, rounds, every });
    rows.unshift(row);
    expand(false);
    watch(row.id);
    status(row);
    problem(null, "start");
  } catch (error) {
    problem(error.message, "start");
  }
}

function expand(wanted) {
  $("start-form").hidden = !wanted;
  $("new-run").setAttribute("aria-expanded", String(wanted));
}

export function start(about) {
  arms = about.arms;
  $("arm").append(h("option", { value: "" }, "as planned"), ...arms.map(({ name, what }) => h("option", { value: name }, what)));
  $("new-run").addEventListener("click", () => expand($("start-form").hidden));
  $("start-form").addEventListener("submit", startRun);
  $("watch-actions").addEventListener("click", wish);
  $("watch-filter").addEventListener("input", list);
  $("watch-x").addEventListener("change", draw);
  draw();
}
