// Line and bar charts as SVG: drawn from plain arrays, saved as SVG or PNG.
import { h, s, si } from "./dom.js";

export const COLOURS = ["var(--c1)", "var(--c2)", "var(--c3)", "var(--c4)", "var(--c5)", "var(--c6)", "var(--c7)", "var(--c8)"];

/** Calls draw(width, height) now and whenever the box changes its width. */
const sizes = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const width = Math.round(target.clientWidth);
    if (width && width !== target.drawnAt && target.redraw) target.redraw();
  }
});
function fitted(box, draw) {
  box.redraw = () => {
    const width = Math.round(box.clientWidth), height = Math.round(box.clientHeight);
    if (!width) return;
    box.drawnAt = width;
    box.replaceChildren(...draw(width, height));
  };
  sizes.observe(box);
  box.redraw();
}

export function empty(box, words) {
  box.redraw = null;
  box.replaceChildren(h("p", { class: "nothing" }, words));
}

/** Round steps for an axis: about so many between low and high. */
export function ticks(low, high, wanted) {
  if (!(high > low)) return [low];
  const ideal = (high - low) / Math.max(wanted, 1), power = 10 ** Math.floor(Math.log10(ideal));
  const step = power * ([1, 2, 2.5, 5, 10].find((factor) => factor * power >= ideal * 0.999) ?? 10);
  const list = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) list.push(k * step);
  return list;
}
function logTicks(low, high, wanted) {
  const list = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high) + 1; power++)
    for (const factor of [1, 2, 5]) list.push(factor * 10 ** power);
  const inside = list.filter((value) => value >= low * 0.999 && value <= high * 1.001);
  const stride = Math.ceil(inside.length / Math.max(wanted, 2));
  return inside.filter((_, place) => place % stride === 0);
}
function scale(low, high, from, to, log) {
  const f = log ? Math.log : (value) => value;
  const span = f(high) - f(low) || 1;
  return (value) => from + ((f(value) - f(low)) / span) * (to - from);
}

/**
 * Lines over a common axis.
 * given: { series: [{name, x, y, colour, dash, thin, dots}], xLabel, xUnit, yLabel, yUnit, logX, percent, marks, level, fromZero }
 */
export function lineChart(box, given) {
  const series = given.series.map((line) => ({ ...line, points: pairs(line, given.logX) })).filter((line) => line.points.length);
  if (!series.length) return empty(box, given.nothing ?? "Nothing to draw yet.");
  const all = series.flatMap((line) => line.points);
  let [x0, x1] = extent(all.map((p) => p[0])), [y0, y1] = extent(all.map((p) => p[1]));
  if (given.fromZero) y0 = Math.min(0, y0);
  if (given.level) y1 = Math.max(y1, given.level);
  if (y1 - y0 < 1e-9 * Math.abs(y1) || y0 === y1) [y0, y1] = [y0 - Math.abs(y0) * 0.1 - 1e-12, y1 + Math.abs(y1) * 0.1 + 1e-12];
  else y1 += 0.06 * (y1 - y0);
  if (given.percent) [y0, y1] = [Math.max(0, y0), Math.min(1, y1)];
  if (x0 === x1) x1 = x0 + 1;
  fitted(box, (width, height) => {
    const left = 58, right = 14, top = given.level ? 28 : 10, bottom = 40;
    const x = scale(x0, x1, left, width - right, given.logX), y = scale(y0, y1, height - bottom, top, false);
    const shown = (value) => (given.percent ? si(100 * value, "%") : si(value, given.yUnit));
    const root = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": words(given, series, shown) });
    for (const value of ticks(y0, y1, Math.max(2, height / 55))) {
      root.append(s("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }));
      root.append(s("text", { class: "tick", x: left - 8, y: y(value) + 4, "text-anchor": "end" }, shown(value)));
    }
    const across = given.logX ? logTicks(x0, x1, width / 62) : ticks(x0, x1, width / 80);
    for (const value of across) root.append(s("text", { class: "tick", x: x(value), y: height - bottom + 18, "text-anchor": "middle" }, si(value, given.xUnit)));
    root.append(s("line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }));
    root.append(s("text", { class: "label", x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, given.xLabel));
    if (given.level) {
      root.append(s("line", { class: "level", x1: left, x2: width - right, y1: y(given.level), y2: y(given.level) }));
      // above the plot, where no curve can run through it
      root.append(s("line", { class: "level", x1: width - right - 28, x2: width - right, y1: 10, y2: 10 }));
      root.append(s("text", { class: "tick level-name", x: width - right - 34, y: 14, "text-anchor": "end" }, `target ${shown(given.level)}`));
    }
    for (const mark of given.marks ?? []) {
      if (mark.x < x0 || mark.x > x1) continue;
      root.append(s("line", { class: "mark", x1: x(mark.x), x2: x(mark.x), y1: top, y2: height - bottom }));
    }
    for (const line of series) {
      const d = line.points.map((p, k) => `${k ? "L" : "M"}${x(p[0]).toFixed(1)},${y(p[1]).toFixed(1)}`).join("");
      root.append(s("path", { class: "line", d, stroke: line.colour, "stroke-width": line.thin ? 1.4 : 2.2, "stroke-dasharray": line.dash ?? null, opacity: line.faint ? 0.45 : null }));
      if (line.dots || line.points.length === 1) for (const p of line.points) root.append(s("circle", { cx: x(p[0]), cy: y(p[1]), r: 3, fill: line.colour }));
    }
    const tip = h("div", { class: "tip", hidden: true });
    const dot = s("circle", { class: "dot", r: 4.5, visibility: "hidden" });
    root.append(dot);
    root.addEventListener("pointermove", (event) => {
      const at = root.getBoundingClientRect(), px = event.clientX - at.left, py = event.clientY - at.top;
      let best = null;
      for (const line of series) for (const p of line.points) {
        const away = Math.hypot(x(p[0]) - px, (y(p[1]) - py) * 0.6);
        if (!best || away < best.away) best = { away, line, p };
      }
      dot.setAttribute("cx", x(best.p[0])), dot.setAttribute("cy", y(best.p[1]));
      dot.setAttribute("fill", best.line.colour), dot.setAttribute("visibility", "visible");
      tip.hidden = false;
      tip.replaceChildren(h("b", {}, best.line.name), ` ${shown(best.p[1])} at ${si(best.p[0], given.xUnit)}`);
      tip.style.left = `${Math.min(Math.max(x(best.p[0]), 90), width - 90)}px`;
      tip.style.top = `${y(best.p[1])}px`;
    });
    root.addEventListener("pointerleave", () => { tip.hidden = true; dot.setAttribute("visibility", "hidden"); });
    return [root, tip];
  });
}
function pairs(line, log) {
  const list = [];
  line.x.forEach((value, k) => {
    if (Number.isFinite(value) && line.y[k] !== null && Number.isFinite(line.y[k]) && (!log || value > 0)) list.push([value, line.y[k]]);
  });
  return list;
}
function extent(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) low = Math.min(low, value), high = Math.max(high, value);
  return [low, high];
}
function words(given, series, shown) {
  const ends = series.slice(0, 8).map((line) => `${line.name} ends at ${shown(line.points.at(-1)[1])}`);
  return `${given.yLabel} over ${given.xLabel}: ${ends.join(", ")}`;
}

/** Stacked bars, one for each UE. given: { ids, parts: [{name, colour, values}], unit, yLabel, chosen, slowest, onChoose } */
export function barChart(box, given) {
  const totals = given.ids.map((_, k) => given.parts.reduce((sum, part) => sum + (part.values[k] ?? 0), 0));
  const high = Math.max(...totals, 0);
  if (!(high > 0)) return empty(box, given.nothing ?? "Nobody takes part.");
  fitted(box, (width, height) => {
    const left = 58, right = 10, top = 18, bottom = 36;
    const y = scale(0, high * 1.04, height - bottom, top, false), step = (width - left - right) / given.ids.length;
    const root = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `${given.yLabel} of ${given.ids.length} UEs, at most ${si(high, given.unit)}` });
    for (const value of ticks(0, high, Math.max(2, height / 55))) {
      root.append(s("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }));
      root.append(s("text", { class: "tick", x: left - 8, y: y(value) + 4, "text-anchor": "end" }, si(value, given.unit)));
    }
    const every = Math.ceil((10 + 7 * String(Math.max(...given.ids)).length) / step); // no number upon another
    given.ids.forEach((id, k) => {
      let base = 0;
      const pad = Math.min(0.15 * step, 3), group = s("g", { class: id === given.chosen ? "bar chosen" : "bar" });
      for (const part of given.parts) {
        const value = part.values[k] ?? 0;
        if (value > 0) group.append(s("rect", { x: left + k * step + pad, width: Math.max(step - 2 * pad, 0.8), y: y(base + value), height: Math.max(y(base) - y(base + value), 0), fill: part.colour }));
        base += value;
      }
      group.append(s("rect", { class: "hit", x: left + k * step, width: step, y: top, height: height - top - bottom }));
      group.append(s("title", {}, `UE ${id}: ${given.parts.map((part) => `${part.name} ${si(part.values[k], given.unit)}`).join(", ")}`));
      if (given.onChoose) group.addEventListener("click", () => given.onChoose(id));
      if (id === given.slowest) group.append(s("path", { class: "slowmark", d: `M${left + (k + 0.5) * step},${y(totals[k]) - 3}l-5,-8h10z` }));
      root.append(group);
      if (k % every === 0) root.append(s("text", { class: "tick", x: left + (k + 0.5) * step, y: height - bottom + 15, "text-anchor": "middle" }, String(id)));
    });
    root.append(s("line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }));
    root.append(s("text", { class: "label", x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, given.xLabel ?? "UE"));
    return [root];
  });
}

export function legendOf(parts) {
  return h("ul", { class: "keys" }, ...parts.map((part) => {
    const key = h("i");
    key.style.background = part.colour;
    return h("li", {}, key, part.name);
  }));
}

const KEPT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "paint-order", "opacity", "font-size", "font-family", "font-weight", "visibility"];

/** The chart in a box as SVG text that stands alone, with a legend below. */
export function svgText(box, title, parts) {
  const live = box.querySelector("svg"), copy = live.cloneNode(true);
  const from = [live, ...live.querySelectorAll("*")], to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((node, k) => {
    const style = getComputedStyle(node);
    for (const name of KEPT) to[k].setAttribute(name, style.getPropertyValue(name));
  });
  const width = Number(live.getAttribute("width")), height = Number(live.getAttribute("height"));
  const lines = parts.flatMap((part) => wrapped(part.name, (width - 54) / 7).map((words, k) => ({ words, colour: k ? null : part.colour })));
  const full = height + 34 + 20 * lines.length;
  const ink = getComputedStyle(document.body).color, font = { "font-family": "sans-serif", fill: ink };
  const outer = s("svg", { xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${width} ${full}`, width, height: full });
  outer.append(s("rect", { width, height: full, fill: getComputedStyle(document.querySelector(".card")).backgroundColor }));
  outer.append(s("text", { x: 14, y: 20, "font-size": 14, "font-weight": 600, ...font }, title));
  const moved = s("g", { transform: "translate(0 28)" });
  moved.append(...copy.childNodes);
  outer.append(moved);
  lines.forEach(({ words, colour }, k) => {
    const y = height + 40 + 20 * k;
    outer.append(s("text", { x: 40, y: y - 3, "font-size": 12, ...font }, words));
    if (!colour) return;
    const probe = h("i");
    probe.style.color = colour;
    document.body.append(probe);
    outer.append(s("rect", { x: 14, y: y - 9, width: 18, height: 4, fill: getComputedStyle(probe).color }));
    probe.remove();
  });
  return new XMLSerializer().serializeToString(outer);
}

/** Words in lines of at most so many letters; a word that is longer has a line of its own. */
function wrapped(text, letters) {
  return text.split(" ").reduce((lines, word) => {
    const last = lines.at(-1);
    if (last !== undefined && last.length + 1 + word.length <= letters) lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(word);
    return lines;
  }, []);
}

export async function pngBlob(text) {
  const address = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  const image = new Image();
  image.src = address;
  await image.decode();
  const canvas = h("canvas", { width: 2 * image.naturalWidth, height: 2 * image.naturalHeight });
  const pen = canvas.getContext("2d");
  pen.scale(2, 2);
  pen.drawImage(image, 0, 0);
  URL.revokeObjectURL(address);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}
