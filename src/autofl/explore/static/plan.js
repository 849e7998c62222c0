// The Plan view: sliders and the map ask for a plan; everything else shows the answer.
import { $, ask, askLines, h, latest, later, numberIn, numberOf, problem, refuse, save, si } from "./dom.js";
import { barChart, empty, legendOf, lineChart } from "./chart.js";
import { CellMap, STATUS, statusLegend } from "./map.js";

const BITS = [2, 3, 4, 5, 6, 8, 10, 12, 16, 32];
// key, label, unit, how the slider moves: a factor around the scenario's value, a range, or a list
const SLIDERS = [
  ["num_ue", "UEs", "", { whole: true }],
  ["radius", "Cell radius", "m", { factor: 6 }],
  ["max_energy", "Energy per UE and round", "J", { factor: 12 }],
  ["max_power", "Transmit power limit", "W", { factor: 30 }],
  ["bandwidth", "Bandwidth per UE", "Hz", { factor: 12 }],
  ["epsilon", "Accuracy ε (1/ε samples wanted)", "", { range: [0.004, 0.25] }],
  ["num_samples", "Samples per UE", "", { whole: true, range: [2, 1000] }],
  ["bits", "Bits per weight", "bit", { list: BITS }],
  ["local_steps", "Local steps", "", { list: [1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 40] }],
  ["num_selected", "Selected in a round, |A_k|", "UEs", { whole: true, range: [1, 100] }],
];
const STEPS = 200, DIGITS = 6; // of which three are shown

const state = { scenario: "paper", file: null, planner: "", seed: 1, changed: {}, positions: null, answer: null, planned: null, base: null };
let map, scenarios = [], touched = null; // the control that was changed last

/** The settings as sections of a TOML file, only what was changed, and what they lie on: a scenario or a file. */
export function question() {
  const { changed } = state, settings = {}, cell = {};
  for (const key of ["num_ue", "max_energy", "max_power", "bandwidth"]) if (key in changed) cell[key] = changed[key];
  if (state.positions) cell.positions = state.positions;
  else if ("radius" in changed) cell.distance = { disc: changed.radius };
  if (state.positions) cell.num_ue = state.positions.length;
  if (Object.keys(cell).length) settings.cell = cell;
  const planner = state.planner ? { name: state.planner } : {};
  for (const key of ["epsilon", "num_samples"]) if (key in changed) planner[key] = changed[key];
  if (Object.keys(planner).length) settings.planner = planner;
  if ("local_steps" in changed) settings.learning = { local_steps: changed.local_steps };
  if ("num_selected" in changed) settings.simulation = { num_selected: changed.num_selected };
  if ("bits" in changed) settings.compressor = changed.bits > 16 ? { name: "none" } : { name: "quantise", bits: changed.bits };
  if (state.seed !== 1) settings.seed = state.seed;
  return state.file ? { file: state.file.text, settings } : { scenario: state.scenario, settings };
}

function replan() {
  ageForecast();
  askPlan();
}

const askPlan = latest(async () => {
  document.body.dataset.asking = "true";
  const asked = question(), begin = performance.now();
  let answer;
  try {
    answer = await ask("/api/plan", { ...asked, digits: DIGITS });
  } catch (error) {
    refused(error.message);
    return;
  }
  refused(null);
  problem(null, "save");
  answer.plan.ues = rows(answer.plan.ues);
  state.answer = answer;
  state.planned = asked;
  state.base ??= { ...answer.values };
  answer.round_trip = performance.now() - begin;
  show(answer);
  document.querySelector(".three").classList.add("stale");
  document.body.dataset.asking = String(JSON.stringify(asked) !== JSON.stringify(question()));
  document.body.dataset.planned = String(Number(document.body.dataset.planned ?? 0) + 1);
  curves();
});

/** One object for each UE, from one list for each quantity. */
function rows(columns) {
  const names = Object.keys(columns);
  return columns.id.map((_, k) => Object.fromEntries(names.map((name) => [name, columns[name][k]])));
}

/** A change that the settings do not allow: said next to its control, while the last plan is greyed. */
function refused(why) {
  $("view-plan").classList.toggle("refused", Boolean(why));
  for (const input of document.querySelectorAll("#controls [aria-invalid]")) refuse(input, null);
  if (!why) return;
  document.body.dataset.asking = "false";
  if (!touched) throw new Error(why);
  refuse($(touched), why);
}

function show(answer) {
  map.show(answer);
  $("legend").replaceChildren(statusLegend(answer.plan.ues));
  figures(answer);
  if (!state.planner) $("planner").value = answer.plan.planner;
  scenarioLine();
  ageForecast();
  sliders(answer);
  detail();
  decisions(answer);
  bars(answer);
}

/** What is decided beyond the UEs' own parts, and why. */
function decisions({ decisions: rows }) {
  $("decisions").hidden = !rows.length;
  $("decisions-list").replaceChildren(...rows.flatMap(([name, value, why]) => [h("dt", {}, name), h("dd", {}, value, h("small", {}, ` ${why}`))]));
}

/** What the scenario is, and in what the cell departs from it. */
function scenarioLine() {
  const changed = SLIDERS.filter(([key]) => key in state.changed).map(([, label]) => label.split(/[,(]/)[0].trim());
  const departs = [...changed, ...(state.positions ? ["places of UEs"] : [])].join(", ");
  const what = state.file ? "Settings that were opened here." : scenarios.find(({ name }) => name === state.scenario).what;
  $("scenario-line").textContent = `${what}${departs ? ` Changed here: ${departs}.` : ""}`;
}

function figures({ plan, slowest, host_time: seconds }) {
  const again = plan.round_time > 1.001 * plan.planned_time; // this round's channel makes some UEs send again; other rounds have others
  const planned = again ? `; planned: ${si(plan.planned_time, "s")}, without this round's retransmissions` : "";
  const cards = [
    ["Round time", slowest === null ? "–" : si(plan.round_time, "s"), slowest === null ? "nobody takes part" : `UE ${slowest} is the slowest; downlink ${si(plan.downlink_time, "s")}, overhead ${si(plan.overhead, "s")}${planned}`],
    ["Take part", `${plan.num_feasible.toLocaleString("en")} of ${plan.ues.length.toLocaleString("en")}`, plan.certificate?.upper ? "proved to be near the optimum" : "in a round of all UEs"],
    ["Energy", si(plan.energy, "J"), "of all UEs together"],
    ["Planned in", si(seconds, "s"), `by the planner ${plan.planner}`],
  ];
  $("figures").replaceChildren(...cards.map(([name, value, note]) => h("div", {}, h("span", {}, name), h("strong", {}, value), h("small", {}, note))));
}

function bars({ plan, compute_energy: computing, slowest }) {
  const all = plan.ues.map((ue) => ue.id), time = (id) => plan.ues[id].upload_time + plan.ues[id].compute_time;
  const shown = all.length <= 80 ? all : all.toSorted((a, b) => time(b) - time(a)).slice(0, 60);
  const own = [["computing", "var(--compute)"], ["sending", "var(--send)"]];
  const whole = [...own, ["downlink", "var(--down)"], ["overhead", "var(--over)"]]; // what all wait for: with it, the slowest bar is the round
  const draw = (box, unit, yLabel, parts, values) => {
    barChart($(box), {
      ids: shown, unit, yLabel, slowest: unit === "s" ? slowest : null, chosen: map.chosen, onChoose: (id) => map.choose(id),
      xLabel: shown.length < all.length ? `UE, the ${shown.length} slowest of ${all.length}` : "UE",
      parts: parts.map(([name, colour], k) => ({ name, colour, values: shown.map((id) => values(id)[k]) })),
    });
    $(box).parentElement.querySelector(".keys")?.remove();
    $(box).before(legendOf(parts.map(([name, colour]) => ({ name, colour }))));
  };
  const shared = (id) => (time(id) > 0 ? [plan.downlink_time, plan.overhead] : [0, 0]);
  draw("bars-time", "s", "Time", whole, (id) => [plan.ues[id].compute_time, plan.ues[id].upload_time, ...shared(id)]);
  draw("bars-energy", "J", "Energy", own, (id) => [computing[id], plan.ues[id].energy - computing[id]]);
}

function detail() {
  const { plan, compute_energy: computing, max_power: limit, slowest } = state.answer, ue = plan.ues[map.chosen];
  const because = { power: "not decodable even at full power", energy: "it has too little energy", data: "it owns too few samples" };
  const rows = [
    ["Distance", si(ue.distance, "m")], ["Channel gain", ue.channel_gain > 0 ? `${(10 * Math.log10(ue.channel_gain)).toFixed(1)} dB` : "–"],
    ["Samples", `${ue.num_samples}`], ["Local steps", `${ue.local_steps}`],
    ["Power", `${si(ue.tx_power, "W")} of ${si(limit[ue.id], "W")}`], ["SNR", ue.snr > 0 ? `${(10 * Math.log10(ue.snr)).toFixed(1)} dB` : "–"],
    ["Chance of decoding", ue.success_probability === null ? "–" : `${(100 * ue.success_probability).toFixed(1)} %`],
    ["Computing", `${si(ue.compute_time, "s")}, ${si(computing[ue.id], "J")}`],
    ["Sending", `${si(ue.upload_time, "s")}, ${si(ue.energy - computing[ue.id], "J")}`],
    ["Energy", si(ue.energy, "J")], ["Bandwidth", si(ue.bandwidth, "Hz")], ["CPU", `${si(ue.cpu_frequency, "Hz")}`],
    ["Bits per weight", si(ue.bits_per_weight, "bit")], ["Samples limited by", ue.samples_limit], ["Power limited by", ue.power_limit], ["Weight", si(ue.weight)],
  ];
  const pill = h("span", { class: "pill" }, STATUS[ue.status]?.[0] ?? ue.status);
  pill.style.setProperty("--pill", STATUS[ue.status]?.[1] ?? "gray");
  $("detail").replaceChildren(
    h("div", { class: "head" }, h("h2", {}, `UE ${ue.id}`), pill),
    h("p", { class: "hint" }, ue.infeasible_because ? because[ue.infeasible_because] : ue.id === slowest ? "The slowest UE: the round ends with it." : "Click another UE, or press n or p."),
    h("dl", {}, ...rows.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
  );
}

// --- sliders ---

function rangeOf(key, kind) {
  if (key === "num_selected") return [1, Math.max(Math.min(state.answer?.values.num_ue ?? 100, 1000), 2)];
  if (key === "num_ue") return [2, state.answer?.most_ue ?? 10_000];
  if (kind.range) {
    const [low, high] = kind.range, [least, most] = state.answer?.ranges[key] ?? [low, high];
    return [Math.max(low, least ?? low), Math.min(high, most ?? high)];
  }
  const middle = state.base[key];
  return [middle / kind.factor, middle * kind.factor];
}
function valueAt(key, kind, position) {
  if (kind.list) return kind.list[position];
  const [low, high] = rangeOf(key, kind), value = low * (high / low) ** (position / STEPS);
  return kind.whole ? Math.round(value) : Number(value.toPrecision(3));
}
function positionOf(key, kind, value) {
  if (kind.list) return kind.list.reduce((best, one, k) => (Math.abs(one - value) < Math.abs(kind.list[best] - value) ? k : best), 0);
  const [low, high] = rangeOf(key, kind);
  return Math.round((STEPS * Math.log(Math.min(Math.max(value, low), high) / low)) / Math.log(high / low));
}

function buildSliders() {
  $("sliders").replaceChildren(...SLIDERS.map(([key, label, unit, kind]) => {
    const input = h("input", { type: "range", id: `s-${key}`, min: 0, max: kind.list ? kind.list.length - 1 : STEPS, step: 1 });
    const field = h("input", { id: `n-${key}`, inputmode: "decimal", autocomplete: "off", "aria-label": `${label}, as a number` });
    const change = (value, by) => {
      if (key === "radius" && state.positions) {
        const factor = value / Math.max(...state.positions.map(([x, y]) => Math.hypot(x, y)), 1e-9);
        state.positions = state.positions.map(([x, y]) => [x * factor, y * factor]);
      }
      if (key === "num_ue") {
        state.positions = null;
        if (state.changed.num_selected > value) state.changed.num_selected = value;
      }
      state.changed[key] = value;
      if (key === "num_selected" && isAll(value)) delete state.changed[key];
      touched = by.id;
      say(key, value, unit);
      replan();
    };
    input.addEventListener("input", () => change(valueAt(key, kind, Number(input.value)), input));
    field.addEventListener("change", () => {
      const all = key === "num_selected" && field.value.trim() === "all";
      const value = all ? state.answer.values.num_ue : numberOf(field.value, unit);
      refuse(field, Number.isNaN(value) ? `a number, such as ${si(state.answer.values[key], unit)}` : null);
      if (!Number.isNaN(value)) change(value, field);
    });
    return h("div", { class: "slider", id: `d-${key}` }, h("label", { for: `s-${key}` }, label), field, input);
  }));
}

/** Whether so many selected UEs leave it to the planner how many of all take part. */
const isAll = (value) => state.answer?.plan.planner === "joint" && value >= state.answer.values.num_ue;

/** A value as its field shows it; one that was set keeps its digits. */
function say(key, value, unit) {
  const all = key === "num_selected" && !(key in state.changed) && (state.answer?.all_asked || isAll(value));
  $(`n-${key}`).value = all ? "all" : si(value, unit, key in state.changed ? DIGITS : 3);
  $(`s-${key}`).setAttribute("aria-valuetext", $(`n-${key}`).value);
}

function sliders({ values, decided }) {
  for (const [key, , unit, kind] of SLIDERS) {
    const input = $(`s-${key}`), missing = values[key] === null || values[key] === undefined;
    $(`d-${key}`).hidden = missing;
    if (missing) continue;
    input.disabled = $(`n-${key}`).disabled = decided.includes(key);
    if (input.disabled) $(`n-${key}`).value = "planner decides";
    else if (document.activeElement !== $(`n-${key}`)) say(key, values[key], unit);
    if (document.activeElement !== input) input.value = positionOf(key, kind, values[key]);
  }
}

// --- what if ---

const NAMES = { round_time: ["Round time", "s"], energy: ["Energy of a round", "J"], feasible: ["UEs taking part", ""] };
const AXES = { energy: ["energy budget", "J"], radius: ["radius", "m"], selected: ["UEs selected", ""] };
const drawn = {};

const askCurves = latest(async () => {
  const asked = state.planned, target = numberIn("target") ?? 0.85; // settings that were refused have no curves
  for (const over of ["energy", "radius", "selected"]) {
    const curve = await ask("/api/curve", { ...asked, over, target });
    if (asked !== state.planned) return; // the cell has changed meanwhile, and its own curves come next
    drawn[over] = { ...curve, target };
    drawCurve(over);
  }
  document.querySelector(".three").classList.remove("stale");
  document.body.dataset.curves = document.body.dataset.planned;
});
const curves = later(askCurves, 350);

function drawCurve(over) {
  const curve = drawn[over], key = document.querySelector("input[name=quantity]:checked").value, [name, unit] = NAMES[key];
  const learns = over === "selected" && key === "round_time" && curve.time_to_target.some((value) => value !== null);
  lineChart($(`curve-${over}`), {
    series: [{ name: learns ? "Time to target" : name, x: curve.x, y: learns ? curve.time_to_target : curve[key], colour: "var(--accent)", dots: curve.x.length < 20 }],
    xLabel: AXES[over][0], xUnit: AXES[over][1], yLabel: learns ? "Time to target" : name, yUnit: unit, logX: true, fromZero: true,
    marks: [{ x: curve.here }], nothing: "Nobody takes part.",
  });
  $(`curve-${over}`).parentElement.querySelector(".hint")?.remove();
  if (curve.refused) $(`curve-${over}`).after(h("p", { class: "hint" }, `Ends where the settings do: ${curve.refused}.`));
  if (over === "selected") {
    const words = learns ? `time to ${si(100 * curve.target, "%")} over the UEs selected, |A` : "over the UEs selected in a round, |A";
    $("selected-caption").replaceChildren(words, h("sub", {}, "k"), "|");
  }
}

/** What a forecast is of: another forecast is due when it changes. */
const subject = () => JSON.stringify([state.scenario, state.file, $("planner").value, state.seed, state.changed, state.positions, $("target").value]);
let forecasted = null, forecasting = null; // what the forecast that is shown is of; how the one under way is ended

/** A forecast of other settings than those shown is marked. */
function ageForecast() {
  const old = forecasted !== null && forecasted !== subject();
  $("forecast-answer").classList.toggle("stale", old);
  $("forecast-old").hidden = !old;
}

async function forecast(event) {
  event.preventDefault();
  const box = $("forecast-answer"), button = $("forecast"), target = numberIn("target");
  if (target === null || forecasting) return;
  button.disabled = true;
  $("cancel").hidden = false;
  forecasting = new AbortController();
  forecasted = subject();
  ageForecast();
  const bar = h("progress", { "aria-label": "Networks drawn", max: 1, value: 0 }), line = h("p", { class: "hint busy" }, "Drawing networks of this cell …");
  box.replaceChildren(line, bar);
  try {
    let said = null;
    await askLines("/api/forecast", { ...question(), target }, forecasting.signal, (news) => {
      if (news.detail) throw new Error(news.detail);
      said = news.forecast;
      if (said) return;
      bar.value = news.drawn / news.of;
      line.textContent = `${news.drawn} of ${news.of} networks of this cell are drawn`;
    });
    if (!said) throw new Error("the server does not answer; is autofl explore still running?");
    const figure = (name, { median, low_95: low, high_95: high }, unit) => h("div", {}, h("span", {}, name), h("strong", {}, si(median, unit)), h("small", {}, `${si(low, unit)} to ${high === null ? "never" : si(high, unit)}`));
    box.replaceChildren(h("div", { class: "figures" }, figure("Rounds", said.rounds, ""), figure("Learning time", said.sim_time, "s"), figure("Energy per UE", said.energy, "J")),
      h("p", { class: "hint" }, `Medians and 95 % intervals of a single run, from ${said.num_pilots} pilots.${said.outside.length ? ` Outside what they cover: ${said.outside.join(", ")}.` : ""}`));
  } catch (error) {
    const cancelled = error.name === "AbortError";
    box.replaceChildren(h("p", { class: cancelled ? "hint" : "hint warn" }, cancelled ? "Cancelled." : error.message));
  } finally {
    button.disabled = false;
    $("cancel").hidden = true;
    forecasting = null;
    ageForecast();
  }
  askCurves();
}

export async function saveToml() {
  try {
    save(await ask("/api/toml", question(), "text"), "cell.toml", "application/toml");
    problem(null, "save");
  } catch (error) {
    problem(`not saved: ${error.message}`, "save");
  }
}

/** Settings in place of a scenario: only if the server plans them, so that what is shown is not lost. */
async function open(name, text) {
  try {
    await ask("/api/plan", { file: text, digits: DIGITS });
    problem(null, "open");
  } catch (error) {
    problem(`${name} is not opened: ${error.message}`, "open");
    return;
  }
  state.file = { name, text };
  state.planner = "";
  $("opened")?.remove();
  $("scenario").append(h("option", { value: "", id: "opened" }, name));
  $("scenario").value = "";
  fresh();
}
const openFile = async (file) => file && open(file.name, await file.text());

function fresh(all = true) {
  if (all) state.changed = {};
  if (all) state.base = null;
  if (all) state.seed = 1;
  state.positions = null;
  touched = null;
  replan();
}

/** Settings that were opened stay until others are, or a scenario is chosen. */
function choose(scenario) {
  state.scenario = scenario;
  state.file = null;
  $("opened")?.remove();
}

export function start(about) {
  map = new CellMap($("map"), {
    choose: () => { detail(); bars(state.answer); },
    move: (ue, x, y) => {
      state.positions ??= state.answer.positions.map((place) => [...place]);
      state.positions[ue] = [Number(x.toFixed(3)), Number(y.toFixed(3))];
      touched = null;
      replan();
    },
  });
  $("scenario").append(...about.scenarios.map(({ name }) => h("option", { value: name }, name)));
  $("planner").append(...about.planners.map(({ name, what }) => h("option", { value: name, title: what }, name)));
  const first = state.scenario;
  scenarios = about.scenarios;
  $("scenario").addEventListener("change", () => { choose($("scenario").value); fresh(); });
  $("planner").addEventListener("change", () => {
    state.planner = $("planner").value;
    touched = "planner";
    delete state.changed.epsilon, delete state.changed.num_samples;
    if (state.planner === "adaquantfl") state.changed.bits ??= 4;
    if (state.planner === "joint") delete state.changed.bits;
    replan();
  });
  $("save").addEventListener("click", saveToml);
  $("reset").addEventListener("click", () => {
    $("scenario").value = first;
    choose(first);
    state.planner = "";
    fresh();
  });
  $("redraw").addEventListener("click", () => { state.seed += 1; fresh(false); });
  $("quantity").addEventListener("change", () => Object.keys(drawn).forEach(drawCurve));
  $("forecast-form").addEventListener("submit", forecast);
  $("cancel").addEventListener("click", () => forecasting?.abort());
  $("target").addEventListener("input", ageForecast);
  $("open").addEventListener("click", () => $("file").click());
  $("file").addEventListener("change", async () => { await openFile($("file").files[0]); $("file").value = ""; });
  $("view-plan").addEventListener("dragover", (event) => event.preventDefault());
  $("view-plan").addEventListener("drop", (event) => { event.preventDefault(); openFile(event.dataTransfer.files[0]); });
  document.addEventListener("paste", (event) => {
    if ($("view-plan").hidden || event.target.closest("input")) return;
    const [file] = event.clipboardData.files;
    if (file) openFile(file);
    else open("What was pasted", event.clipboardData.getData("text/plain"));
  });
  for (const over of ["energy", "radius", "selected"]) empty($(`curve-${over}`), "…");
  scenarioLine();
  buildSliders();
  replan();
}
