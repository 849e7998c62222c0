// Small helpers: elements, numbers with units, requests.

export const $ = (id) => document.getElementById(id);
const NS = "http://www.w3.org/2000/svg";

export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(NS, tag), attributes, children);
}
function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const PREFIXES = [[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]];
const PLAIN = new Set(["", "%", "dB", "UEs", "bit"]);

/** So many digits and a unit with its prefix, such as 155 ms. */
export function si(value, unit = "", wanted = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return unit ? `0 ${unit}` : "0";
  const size = Math.abs(value);
  const [factor, prefix] = PLAIN.has(unit) ? [1, ""] : PREFIXES.find(([f]) => size >= f * 0.9995) ?? PREFIXES.at(-1);
  const scaled = value / factor;
  const digits = Math.min(Math.max(wanted - 1 - Math.floor(Math.log10(Math.abs(scaled) * 1.0005)), 0), 9);
  const text = PLAIN.has(unit) && (size >= 1e5 || size < 1e-3) ? scaled.toExponential(wanted - 1) : trimmed(scaled, digits);
  return unit || prefix ? `${text} ${prefix}${unit}` : text;
}

/** The number that was typed, with or without a unit and its prefix: "155 ms", "0.155 s" and "0.155" are the same. */
export function numberOf(text, unit) {
  const [, digits, said] = /^\s*([-+.\deE]+)\s*(\S*)\s*$/.exec(text) ?? [];
  const prefix = unit && said?.endsWith(unit) ? said.slice(0, -unit.length) : said;
  const found = PREFIXES.find(([, sign]) => sign === (/^[uμ]$/.test(prefix) ? "µ" : prefix));
  return digits && found ? Number((Number(digits) * found[0]).toPrecision(12)) : NaN;
}
export const trimmed = (value, digits) => String(Number(value.toFixed(digits)));

const token = new URLSearchParams(location.search).get("token") ?? "";
export const withToken = (path) => `${path}${path.includes("?") ? "&" : "?"}token=${encodeURIComponent(token)}`;

/** An answer of the server; what is wrong becomes an Error with its one line. */
export async function ask(path, body, as = "json") {
  return (await answerTo(path, body))[as]();
}

/** Lines of JSON as the server sends them, each given to `each`; a signal ends it. */
export async function askLines(path, body, signal, each) {
  const reader = (await answerTo(path, body, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = "", part = await reader.read(); !part.done; part = await reader.read()) {
    const lines = (rest + part.value).split("\n");
    rest = lines.pop();
    lines.forEach((line) => each(JSON.parse(line)));
  }
}

async function answerTo(path, body, signal) {
  const headers = { Authorization: `Bearer ${token}` };
  const request = body === undefined ? { headers } : {
    signal, method: "POST", headers: { ...headers, "Content-Type": "application/json" }, body: JSON.stringify(body),
  };
  let response;
  try {
    response = await fetch(path, request);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("the server does not answer; is autofl explore still running?");
  }
  if (response.ok) return response;
  const said = await response.json().catch(() => ({}));
  throw new Error(said.detail ?? `the server answered ${response.status}`);
}

/** What is wrong, in one line; it stays until what it is about succeeds and says null. */
const wrong = new Map();
export function problem(text, about) {
  wrong.delete(about);
  if (text) wrong.set(about, text);
  const line = $("problem"), last = [...wrong.values()].at(-1);
  line.textContent = last ?? "";
  line.hidden = !last;
}

/** A line next to a field that says why its value is refused; null takes it away. */
export function refuse(input, why) {
  const id = `${input.id}-why`, box = input.closest("label, .slider") ?? input;
  $(id)?.remove();
  if (!why) {
    input.removeAttribute("aria-invalid"), input.removeAttribute("aria-describedby");
    return;
  }
  const line = h("small", { id, class: "why", role: "alert" }, why);
  input.setAttribute("aria-invalid", "true"), input.setAttribute("aria-describedby", id);
  if (box.matches(".slider, .pair > *")) box.append(line);
  else box.after(line);
}

/** The number in a field; null where it is refused, which is then said next to the field. */
export function numberIn(id) {
  const input = $(id), value = input.value.trim() === "" ? NaN : Number(input.value), whole = input.step === "1";
  const low = Number(input.min), high = input.max === "" ? Infinity : Number(input.max);
  const good = value >= low && value <= high && (!whole || Number.isInteger(value));
  const kind = whole ? "a whole number" : "a number";
  refuse(input, good ? null : high === Infinity ? `${kind}, ${low} or more` : `${kind} from ${low} to ${high.toLocaleString("en")}`);
  return good ? value : null;
}

/** Runs one request at a time; of those that come meanwhile only the last. */
export function latest(work) {
  let busy = false, waiting = null;
  return async function go(...given) {
    if (busy) {
      waiting = given;
      return;
    }
    busy = true;
    try {
      await work(...given);
      problem(null, work);
    } catch (error) {
      problem(error.message, work);
    } finally {
      busy = false;
      if (waiting) {
        const next = waiting;
        waiting = null;
        go(...next);
      }
    }
  };
}

export function later(work, milliseconds) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...given), milliseconds);
  };
}

export function save(content, name, type) {
  const address = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  const link = h("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
