// The cell as a map: UEs to drag, coloured by what binds them, sized by samples, ringed by power.
import { h, s, si } from "./dom.js";
import { ticks } from "./chart.js";

export const STATUS = {
  energy: ["energy binds", "var(--energy)"],
  power: ["power binds", "var(--power)"],
  rate: ["highest rate", "var(--rate)"],
  accuracy: ["accuracy binds", "var(--accuracy)"],
  data: ["its data bind", "var(--data)"],
  left_out: ["left out", "var(--out)"],
  infeasible: ["cannot take part", "var(--bad)"],
};
const MANY = 400;

export class CellMap {
  /** on: { move(ue, x, y, done), choose(ue) } */
  constructor(box, on) {
    this.on = on;
    this.chosen = 0;
    this.root = s("svg", { class: "cell", viewBox: "-100 -100 200 200", role: "group", "aria-label": "Map of the cell" });
    this.back = s("g", { "aria-hidden": "true" });
    this.front = s("g");
    this.root.append(this.back, this.front);
    box.replaceChildren(this.root);
    this.root.addEventListener("pointerdown", (event) => this.grab(event));
    this.root.addEventListener("pointermove", (event) => this.drag(event));
    for (const name of ["pointerup", "pointercancel"]) this.root.addEventListener(name, (event) => this.drop(event));
    this.root.addEventListener("keydown", (event) => this.key(event));
    this.nodes = [];
  }

  /** answer: of /api/plan. The reach stays while a UE is dragged, or the ground would move under it. */
  show(answer) {
    this.answer = answer;
    const { positions, plan } = answer, count = positions.length;
    const farthest = Math.max(...positions.map(([x, y]) => Math.hypot(x, y)), 1);
    if (!this.held) this.reach = 1.1 * Math.max(farthest, this.held ? 0 : (answer.values.radius ?? 0));
    this.ground();
    if (this.nodes.length !== count || this.many !== count > MANY) this.build(count);
    if (this.chosen >= count) this.chosen = 0;
    const most = Math.max(...plan.ues.map((ue) => ue.num_samples), 1), big = count > MANY ? 1.1 : count > 60 ? 3.4 : count > 25 ? 4.4 : 5.2;
    plan.ues.forEach((ue, k) => this.place(this.nodes[k], ue, k, most, big));
    const slow = answer.slowest;
    this.slow.setAttribute("visibility", slow === null ? "hidden" : "visible");
    if (slow !== null) this.markSlow(slow, big + 4.4);
    this.ring();
  }

  ground() {
    if (this.drawn === this.reach) return;
    this.drawn = this.reach;
    this.back.replaceChildren();
    for (const metres of ticks(0, this.reach, 4).filter((value) => value > 0)) {
      const r = (98 * metres) / this.reach;
      if (r > 99) continue;
      this.back.append(s("circle", { class: "range", r }));
      this.back.append(s("text", { class: "range-text", x: 0, y: -r - 1.2, "text-anchor": "middle" }, si(metres, "m")));
    }
    this.back.append(s("path", { class: "mast", d: "M0,-6.5L-4,5.5H4ZM-2.2,0H2.2M-6,-9a6.5,6.5 0 0 1 0,0" }), s("circle", { class: "mast-top", cy: -7, r: 1.8 }));
  }

  build(count) {
    this.many = count > MANY;
    this.front.replaceChildren();
    this.halo = s("circle", { class: "halo", r: 8.5 });
    this.slow = s("g", { class: "slow", "aria-hidden": "true" }, s("circle", { r: 9.6 }), s("text", { y: -11, "text-anchor": "middle" }, "slowest"));
    this.front.append(this.halo);
    this.nodes = Array.from({ length: count }, (_, k) => {
      const disc = s("circle", { class: "disc" });
      const ring = this.many ? null : s("circle", { class: "power", transform: "rotate(-90)" });
      const cross = this.many ? null : s("path", { class: "cross", d: "M-2.2,-2.2L2.2,2.2M2.2,-2.2L-2.2,2.2", visibility: "hidden" });
      const text = count <= 60 ? s("text", { class: "ue-text", "text-anchor": "middle" }, String(k)) : null;
      const group = s("g", { class: "ue", "data-ue": k, ...(this.many ? { "aria-hidden": "true" } : { role: "button", tabindex: -1 }) });
      group.append(...[disc, ring, cross, text].filter(Boolean));
      this.front.append(group);
      return { group, disc, ring, cross, text };
    });
    this.front.append(this.slow); // above the UEs, which would hide it
  }

  /** The ring around the slowest UE; its word stands on the side where other UEs are farthest, inside the map. */
  markSlow(slow, r) {
    const places = this.answer.positions.map(([x, y]) => [(98 * x) / this.reach, (-98 * y) / this.reach]), [x, y] = places[slow];
    const sides = [[0, -r - 1.4, "middle"], [0, r + 4.4, "middle"], [r + 2, 1.4, "start"], [-r - 2, 1.4, "end"]];
    const clear = ([dx, dy]) => {
      const at = [x + dx + Math.sign(dx) * 8, y + dy - 1.4];
      if (Math.max(Math.abs(at[0]) + 8, Math.abs(at[1]) + 2) > 99) return -1;
      return places.reduce((least, [a, b], k) => (k === slow ? least : Math.min(least, Math.hypot((a - at[0]) / 2, b - at[1]))), Infinity);
    };
    const [dx, dy, anchor] = sides.reduce((best, side) => (clear(side) > clear(best) ? side : best));
    const [ring, word] = this.slow.children;
    this.slow.setAttribute("transform", this.nodes[slow].group.getAttribute("transform"));
    ring.setAttribute("r", r);
    word.setAttribute("x", dx), word.setAttribute("y", dy), word.setAttribute("text-anchor", anchor);
  }

  place(node, ue, k, most, big) {
    const [x, y] = this.held?.ue === k ? this.held.at : this.answer.positions[k];
    const away = ue.num_samples === 0, r = away ? 0.62 * big : big * (0.55 + 0.45 * Math.sqrt(ue.num_samples / most));
    node.group.setAttribute("transform", `translate(${((98 * x) / this.reach).toFixed(2)} ${((-98 * y) / this.reach).toFixed(2)})`);
    node.disc.setAttribute("r", r);
    node.disc.setAttribute("fill", STATUS[ue.status]?.[1] ?? "gray");
    if (node.ring) {
      const radius = r + 1.5, round = 2 * Math.PI * radius, share = Math.min(ue.tx_power / this.answer.max_power[k], 1);
      node.ring.setAttribute("r", radius);
      node.ring.setAttribute("stroke-dasharray", `${share * round} ${round}`);
      node.cross.setAttribute("visibility", ue.status === "infeasible" ? "visible" : "hidden");
      node.group.setAttribute("aria-label", `UE ${ue.id}, ${si(ue.distance, "m")}: ${STATUS[ue.status]?.[0] ?? ue.status}, ${ue.num_samples} samples, ${si(ue.tx_power, "W")}`);
    }
    if (node.text) node.text.setAttribute("y", r + 5.6);
  }

  ring() {
    const node = this.nodes[this.chosen];
    this.nodes.forEach((one, k) => !this.many && one.group.setAttribute("tabindex", k === this.chosen ? 0 : -1));
    if (this.many) this.root.setAttribute("tabindex", 0);
    else this.root.removeAttribute("tabindex");
    this.halo.setAttribute("transform", node.group.getAttribute("transform"));
    this.halo.setAttribute("r", Number(node.disc.getAttribute("r")) + 3.4);
  }

  choose(ue, focus = false) {
    this.chosen = ue;
    this.ring();
    if (focus && !this.many) this.nodes[ue].group.focus();
    this.on.choose(ue);
  }

  point(event) {
    const inverse = this.root.getScreenCTM().inverse(), at = new DOMPoint(event.clientX, event.clientY).matrixTransform(inverse);
    const x = (at.x * this.reach) / 98, y = (-at.y * this.reach) / 98, far = Math.hypot(x, y), most = this.reach * 0.99;
    return far > most ? [(x * most) / far, (y * most) / far] : [x, y];
  }

  grab(event) {
    const ue = Number(event.target.closest?.(".ue")?.dataset.ue ?? NaN);
    if (Number.isNaN(ue)) return;
    this.root.setPointerCapture(event.pointerId);
    this.held = { ue, at: this.answer.positions[ue], moved: false };
    this.choose(ue, true);
  }

  drag(event) {
    if (!this.held) return;
    this.held.at = this.point(event);
    this.held.moved = true;
    const [x, y] = this.held.at, node = this.nodes[this.held.ue];
    node.group.setAttribute("transform", `translate(${(98 * x) / this.reach} ${(-98 * y) / this.reach})`);
    this.ring();
    this.on.move(this.held.ue, x, y);
  }

  drop() {
    const held = this.held;
    this.held = null;
    if (held?.moved) this.on.move(held.ue, ...held.at);
  }

  key(event) {
    const count = this.nodes.length, step = (event.shiftKey ? 0.1 : 0.02) * this.reach;
    const ways = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    const turn = { n: 1, p: -1, PageDown: 1, PageUp: -1 }[event.key];
    if (turn) this.choose((this.chosen + turn + count) % count, true);
    else if (ways[event.key]) {
      const [x, y] = this.answer.positions[this.chosen], [dx, dy] = ways[event.key];
      this.on.move(this.chosen, x + step * dx, y + step * dy);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

/** What the colours mean, with how many UEs have each. */
export function statusLegend(ues) {
  const counts = Object.keys(STATUS).map((name) => [name, ues.filter((ue) => ue.status === name).length]);
  return h("ul", { class: "keys" }, ...counts.filter(([, count]) => count).map(([name, count]) => {
    const key = h("i", { class: "round" });
    key.style.background = STATUS[name][1];
    return h("li", {}, key, `${STATUS[name][0]} `, h("b", {}, String(count)));
  }));
}
