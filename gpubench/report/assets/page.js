"use strict";
// Draws what gpubench.report.webpage decided: which rows, names, verdicts and sentences there are comes from Python.
const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId("data").textContent);
const rows = data.rows.map((values) => {
  const row = Object.fromEntries(data.columns.map((name, i) => [name, values[i]]));
  for (const name of data.interned) row[name] = data.strings[row[name]];
  return row;
});

// Numbers for people: three digits.
function digits(value, count = 3) {
  if (value === 0) return "0";
  const decimals = count - 1 - Math.floor(Math.log10(Math.abs(value)));
  const fixed = decimals > 0 ? value.toFixed(Math.min(decimals, 12)) : String(Math.round(value / 10 ** -decimals) * 10 ** -decimals);
  return fixed.includes(".") ? fixed.replace(/\.?0+$/, "") : fixed.replace(/\B(?=(\d{3})+$)/g, ",");
}
// As quantities.ratio_text, words.times and words.times_range in Python: two digits, three from a hundred on.
const plain = (value) => (value >= 999.5 ? digits(value) : value >= 9.95 ? value.toFixed(0) : value >= 0.995 ? value.toFixed(1) : digits(value, 2));
function times(value) {
  if (value == null) return "—";
  if (value >= 1) return `${plain(value)}×`;
  return plain(1 / value) === "1.0" ? "1.0×" : `${plain(1 / value)}× slower`;
}
function timesRange(low, high) {
  const first = high < 1 ? `${plain(1 / high)}×` : times(low), last = high < 1 ? times(low) : times(high);
  return times(low) === times(high) ? last : `${first} to ${last}`;
}

const tick = (value) => times(value).replace(".0×", "×");

// Elements. Text always goes through textContent: names may be anything.
const kept = (text) => text.replace(/([≥≤≈]) (?=\d)/g, "$1\u00a0");  // a sign and its number stay in one line
function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value != null && value !== false) node.setAttribute(name, value);
  node.append(...children.filter((child) => child != null).map((child) => (typeof child === "string" ? kept(child) : child)));
  return node;
}

// With SI prefixes, rounded as quantities.text in Python does; a tick has no zeros at its end.
function prefixed(value, unit, count = 3, isTick = false) {
  if (value == null) return "—";
  const steps = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]];
  const large = unit !== "s";
  const [scale, prefix] = steps.find(([step]) => Math.abs(value) >= step * 0.9995 && (large || step <= 1)) ?? steps[8];
  const rounded = Number((value / scale).toPrecision(count));
  const decimals = Math.max(0, count - 1 - Math.floor(Math.log10(Math.abs(rounded) || 1)));
  return `${isTick ? digits(value / scale, count) : rounded.toFixed(decimals)} ${prefix}${unit}`;
}
const size = (value) => (typeof value === "number" && value >= 10000 && Math.log10(value) % 1 === 0 ? `10${superscript(Math.log10(value))}` : typeof value === "number" ? value.toLocaleString("en", { maximumSignificantDigits: 15 }) : String(value));
const superscript = (number) => [...String(number)].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]).join("");
const setting = (row) => [row.dtype, row.variant !== "eager" && row.variant, row.setting].filter(Boolean).join(" · ");
const atSize = (row) => (row.size == null ? "" : `${row.size_name} = ${size(row.size)}`);

let WIDTH = 820;  // as wide as its place in the page, so that type is as large on a phone

function drawn(parent, tag, attributes = {}, text = null) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, typeof value === "number" ? Math.round(value * 10) / 10 : value);
  if (text != null) node.textContent = text;
  parent.append(node);
  return node;
}
function lines(text, room) {
  const made = [];
  for (const word of text.split(" ")) {
    if (made.length && textWidth(`${made.at(-1)} ${word}`) <= room) made.push(`${made.pop()} ${word}`);
    else made.push(word);
  }
  return made;
}
function canvas(height, title, subtitle, label) {
  const svg = drawn(document.createDocumentFragment(), "svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": label });
  drawn(svg, "text", { x: 8, y: 24, class: "title" }, title);
  subtitle.forEach((line, i) => drawn(svg, "text", { x: 8, y: 46 + 20 * i, class: "small" }, line));
  return svg;
}
function upright(svg, up, left, right, format) {
  for (const tick of up.ticks) {
    drawn(svg, "line", { x1: left, x2: right, y1: up(tick), y2: up(tick), class: "grid" });
    drawn(svg, "text", { x: left - 8, y: up(tick) + 5, class: "small", "text-anchor": "end" }, format(tick));
  }
}
// Corners of matplotlib's markers, in degrees from the top, and their distances.
const corners = (count, first, radius, inner) => [...Array(inner ? 2 * count : count).keys()].map((i) => [first + (i * 360) / (inner ? 2 * count : count), inner && i % 2 ? inner : radius]);
const OUTLINES = {
  s: corners(4, 45, 7), 8: corners(8, 22.5, 6.5), "^": corners(3, 0, 7.5), v: corners(3, 180, 7.5), "<": corners(3, 270, 7.5), ">": corners(3, 90, 7.5),
  p: corners(5, 0, 6.5), h: corners(6, 0, 6.5), H: corners(6, 30, 6.5), "*": corners(5, 0, 8, 3.5), P: [-18, 18, 45, 72, 108, 135, 162, 198, 225, 252, 288, 315].map((angle) => [angle, angle % 45 ? 7 : 3.1]),
  X: [27, 63, 90, 117, 153, 180, 207, 243, 270, 297, 333, 360].map((angle) => [angle, angle % 90 ? 7 : 3.1]),
};
function mark(parent, device, x, y, hollow) {
  const { shape, colour } = data.devices[device];
  const look = { class: `mark ${hollow ? "hollow" : ""} ${colour}` };
  if (shape === "o") return drawn(parent, "circle", { cx: x, cy: y, r: 5.2, ...look });
  const points = OUTLINES[shape].map(([angle, radius]) => [x + radius * Math.sin((angle * Math.PI) / 180), y - radius * Math.cos((angle * Math.PI) / 180)]);
  return drawn(parent, "path", { d: `M${points.map((point) => point.map((value) => value.toFixed(1)).join(" ")).join("L")}Z`, ...look });
}
// A limit's mark points on to where the value is.
function limitMark(parent, device, x, y, upwards, half) {
  const tip = upwards ? -half : half;
  return drawn(parent, "path", { d: `M${x} ${y + tip}L${x + half} ${y - tip * 0.8}L${x - half} ${y - tip * 0.8}Z`, class: `mark hollow ${data.devices[device].colour}` });
}
function logScale(values, from, to, pad = 1.15) {
  const positive = values.filter((value) => value > 0);
  const low = Math.log10(Math.min(...positive) / pad), high = Math.log10(Math.max(...positive) * pad);
  const scale = (value) => from + ((Math.log10(value) - low) / (high - low || 1)) * (to - from);
  scale.value = (place) => 10 ** (low + ((place - from) / (to - from)) * (high - low));
  const span = high - low, steps = span < 1.5 ? [1, 2, 5] : span < 3 ? [1, 3] : [1];
  const every = span > 8 ? Math.ceil(span / 7) : 1;
  scale.ticks = [];
  for (let power = Math.floor(low); power <= Math.ceil(high); power += 1) {
    if (power % every === 0) for (const step of steps) {
      const value = step * 10 ** power;
      if (Math.log10(value) >= low && Math.log10(value) <= high) scale.ticks.push(value);
    }
  }
  return scale;
}
// Moves labels apart so that none lies on another; they keep their order.
function apart(labels, gap, top, bottom) {
  const sorted = [...labels].sort((a, b) => a.y - b.y);
  for (let i = 1; i < sorted.length; i += 1) sorted[i].y = Math.max(sorted[i].y, sorted[i - 1].y + gap);
  const over = sorted.length ? sorted.at(-1).y - bottom : 0;
  if (over > 0) {
    sorted.at(-1).y -= over;
    for (let i = sorted.length - 2; i >= 0; i -= 1) sorted[i].y = Math.min(sorted[i].y, sorted[i + 1].y - gap);
  }
  for (const label of sorted) label.y = Math.max(label.y, top);
  return sorted;
}

let ruler = null;
function textWidth(text, weight = 400) {
  ruler ??= document.createElement("canvas").getContext("2d");
  ruler.font = `${weight} 15px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif`;
  return ruler.measureText(text).width;
}
const FIELDS = ["workload", "dtype", "variant", "setting"];
const usual = { quantity: data.quantity, sort: "" };
const state = { workload: null, dtype: null, variant: null, setting: null, hidden: "", search: "", theme: "", ...usual };
const quantities = { speedup: "speedup", time_s: "time", rate: "throughput" };
const explorable = rows.filter((row) => row.time_s != null);
const like = (fields) => explorable.filter((row) => fields.every((name) => row[name] === state[name]));
function settle() {
  FIELDS.forEach((field, i) => {
    const choices = [...new Set(like(FIELDS.slice(0, i)).map((row) => row[field]))].sort();
    if (!choices.includes(state[field])) state[field] = [field === "workload" && data.first, (data.plainest[state.workload] ?? {})[field]].find((each) => choices.includes(each)) ?? choices[0] ?? null;
    byId(field).replaceChildren(...choices.map((choice) => element("option", { value: choice, selected: choice === state[field] && "" }, choice || "–")));
    byId(field).parentElement.hidden = choices.length < 2;
  });
  if (!selection().some((row) => row[state.quantity] != null)) state.quantity = selection().some((row) => row[data.quantity] != null) ? data.quantity : "time_s";
}
// Of a quantity that a line shows: what is told of it in the tables, and its bar.
const told = (row, field) => ({ speedup: row.told, copies: row.told_copies }[field] ?? row.told_time);
const isLimit = (row, field) => told(row, field).startsWith("≥");
const isNoisy = (row, field) => told(row, field).includes("*");
// As words.throughput in Python: a noisy one has two digits.
const throughput = (row) => prefixed(row.rate, row.rate_unit ?? "", isNoisy(row) ? 2 : 3);
const bar = (row, field) => ({ speedup: [row.speedup_low, row.speedup_high], time_s: [row.low_s, row.high_s] }[field] ?? []);
const hidden = () => new Set(state.hidden ? state.hidden.split(".").map(Number) : []);
const selection = () => like(FIELDS).filter((row) => !hidden().has(row.device));
const chosenKey = () => FIELDS.map((field) => state[field] ?? "").join("|");
function drawToggles() {
  const devices = [...new Set(like(FIELDS).filter((row) => row[state.quantity] != null).map((row) => row.device))];
  byId("devices").replaceChildren(...(devices.length > 1 ? devices : []).map((device) => {
    const button = element("button", { type: "button", "aria-pressed": !hidden().has(device), "data-key": `device ${device}` }, data.devices[device].name);
    button.addEventListener("click", () => {
      const off = hidden();
      if (!off.delete(device)) off.add(device);
      change({ hidden: [...off].join(".") });
    });
    return button;
  }));
}

const BEYOND = 10;  // how many times beyond the outermost values a bar is shown: a wider one would flatten the lines
let explored = [], cursor = -1;
function drawExplorer() {
  settle();
  for (const [name, label] of Object.entries(quantities)) {
    const button = byId(`quantity-${name}`);
    button.textContent = label;
    button.setAttribute("aria-pressed", state.quantity === name);
    button.hidden = !explorable.some((row) => row.workload === state.workload && row[name] != null);
  }
  drawToggles();
  const chosen = selection(), wanted = chosen.filter((row) => row[state.quantity] != null);
  byId("finding").textContent = kept(data.findings[chosenKey()] ?? "");
  explored = wanted.sort((a, b) => a.device - b.device || (a.size ?? 0) - (b.size ?? 0));
  cursor = -1;
  detail(null);
  const figure = byId("explorer-figure");
  if (!wanted.length) return figure.replaceChildren(element("p", { class: "muted" }, "Nothing was measured for this choice."));
  const isSpeedup = state.quantity === "speedup";
  const format = isSpeedup ? times : (value) => prefixed(value, state.quantity === "rate" ? wanted[0].rate_unit : "s", 2, true);
  WIDTH = Math.max(360, Math.min(820, figure.clientWidth || 820));
  const copies = isSpeedup && wanted.some((row) => row.copies != null);
  // On a phone names stand above the panel, and only values beside it.
  const phone = WIDTH < 600, named = (text, name) => (phone ? text : `${text} ${name}`);
  const label = (row) => named({ speedup: row.told, time_s: row.told_time }[state.quantity] ?? throughput(row) + "*".repeat(isNoisy(row)), data.devices[row.device].name);
  const devices = [...new Set(wanted.map((row) => row.device))];
  const ends = devices.flatMap((device) => {
    const own = wanted.filter((row) => row.device === device), copied = own.findLast((row) => copies && row.copies != null);
    return [label(own.at(-1)), ...(copied ? [copied.told_copies, "unknown"].map((text) => named(text, "with copies")) : []), ...(chosen.some((row) => row.device === device && row.doubt) ? [named("unknown", data.devices[device].name)] : [])];
  });
  const room = Math.max(...ends.map((text) => textWidth(text, 700)));
  const right = Math.max(WIDTH / 2, Math.min(640, WIDTH - 14 - room)), bottom = 400;
  const legend = phone ? devices : [];
  const what = isSpeedup ? `speedup over ${data.baseline}${copies ? "; dashed: with copies" : ""}${(data.crossings[chosenKey()] ?? []).length ? "; ◇ faster from here on" : ""}` : state.quantity === "rate" ? `throughput in ${wanted[0].rate_unit}` : "time per call";
  const noisy = wanted.filter((row) => isNoisy(row, state.quantity)), models = modelsOf(like(FIELDS));
  const notice = noisy.length * 3 > wanted.length ? `⚠ ${noisy.length} of ${wanted.length} result${wanted.length === 1 ? "" : "s"} ${noisy.length === 1 ? "is" : "are"} noisy and may be off` : "";
  const subtitle = [[setting(wanted[0]), what].filter(Boolean).join(" · "), notice].filter(Boolean).flatMap((line) => lines(line, WIDTH - 16));
  const top = 54 + 20 * subtitle.length + 24 * legend.length;
  const svg = canvas(460, state.workload + (models.length ? (/modelled/i.test(models) ? " (modelled)" : " (simulated)") : ""), subtitle, `${state.workload}, ${quantities[state.quantity]} by size`);
  legend.forEach((device, i) => {
    const y = 52 + 20 * subtitle.length + 24 * i;
    mark(svg, device, 16, y);
    drawn(svg, "text", { x: 30, y: y + 5 }, data.devices[device].name);
  });
  const sized = wanted.every((row) => row.size != null);
  const places = sized ? wanted.map((row) => row.size) : wanted.map((row, i) => i + 1);
  const values = wanted.flatMap((row) => [row[state.quantity], copies && row.copies, isSpeedup && 1].filter(Boolean));
  const least = Math.min(...values) / BEYOND, most = Math.max(...values) * BEYOND;
  const all = [...values, ...wanted.flatMap((row) => bar(row, state.quantity)).filter(Boolean).map((end) => Math.min(Math.max(end, least), most))];
  const up = logScale(all, bottom, top, 1.4);
  const left = 16 + Math.max(...up.ticks.map((value) => textWidth((isSpeedup ? tick : format)(value))));
  const across = logScale(places, left + 20, right - 20, sized && new Set(places).size > 1 ? 1.05 : 2);
  if (isSpeedup) drawn(svg, "rect", { x: left, y: up(1), width: right - left, height: Math.max(0, bottom - up(1)), class: "shade" });
  upright(svg, up, left, right, isSpeedup ? tick : format);
  if (isSpeedup) {
    drawn(svg, "line", { x1: left, x2: right, y1: up(1), y2: up(1), class: "one" });
    if (bottom - up(1) > 24 && textWidth(data.slower) < right - left - 12) drawn(svg, "text", { x: right - 6, y: bottom - 8, class: "small", "text-anchor": "end" }, data.slower);
  }
  let last = Infinity;  // the largest size has its words in any case
  for (const value of sized ? [...new Set(places)].sort((a, b) => b - a) : []) {
    drawn(svg, "line", { x1: across(value), x2: across(value), y1: bottom, y2: bottom + 5, class: "grid" });
    if (last - across(value) > 44) {
      drawn(svg, "text", { x: across(value), y: bottom + 22, class: "small", "text-anchor": "middle" }, size(value));
      last = across(value);
    }
  }
  if (sized) drawn(svg, "text", { x: (left + right) / 2, y: bottom + 46, class: "small", "text-anchor": "middle" }, wanted[0].size_name);
  const labels = [];
  for (const device of devices) {
    const own = wanted.filter((row) => row.device === device);
    const ink = data.devices[device].colour;
    const x = (row) => across(sized ? row.size : wanted.indexOf(row) + 1);
    for (const [field, dashed] of copies ? [["copies", true], [state.quantity, false]] : [[state.quantity, false]]) {
      const points = own.filter((row) => row[field] != null);
      if (!points.length) continue;
      // A line through a limit would say that the value is there.
      const step = (row, i) => (isLimit(row, field) ? "" : `${i && !isLimit(points[i - 1], field) ? "L" : "M"}${x(row).toFixed(1)} ${up(row[field]).toFixed(1)}`);
      const joined = points.map(step).join("");
      if (joined.includes("L")) drawn(svg, "path", { d: joined, class: `curve ${dashed ? "copies" : ""} ${ink}` });
      for (const row of points) {
        const [low, high] = bar(row, field), at = [x(row), up(row[field])];
        if (low != null && high != null) drawn(svg, "line", { x1: at[0], x2: at[0], y1: low > 0 ? Math.min(up(low), bottom) : bottom, y2: Math.max(up(high), top), class: `error ${ink}` });
        const dot = isLimit(row, field) ? limitMark(svg, device, ...at, row[field] > 1, dashed ? 4.5 : 6.5)
          : dashed ? drawn(svg, "circle", { cx: at[0], cy: at[1], r: 2.6, class: `mark ${ink}` }) : mark(svg, device, ...at, isNoisy(row, field));
        if (!dashed) dot.dataset.row = explored.indexOf(row);
      }
      // The words at the end are of the last size.
      const end = points.at(-1), name = dashed ? "with copies" : data.devices[device].name;
      const cut = dashed ? own.at(-1) !== end : chosen.some((row) => row.device === device && row.doubt && row.size > end.size);
      const words = cut ? named("unknown", name) : dashed ? named(end.told_copies, name) : label(end);
      labels.push({ y: up(end[field]), text: words, ink, bold: !dashed });
    }
  }
  if (isSpeedup && sized) {
    const crossings = (data.crossings[chosenKey()] ?? []).filter((each) => devices.includes(each.device) && across(each.size) >= left && across(each.size) <= right);
    crossings.sort((a, b) => a.size - b.size).forEach((each, i) => {
      const x = across(each.size), y = up(1), ink = data.devices[each.device].colour;
      drawn(svg, "path", { d: `M${x} ${y - 8}L${x + 8} ${y}L${x} ${y + 8}L${x - 8} ${y}Z`, class: `mark hollow ${ink}` });
      if (!phone || crossings.length < 3) drawn(svg, "text", { x, y: y - 14 - 18 * (i % 2), class: `named strong halo ${ink}`, "text-anchor": "middle" }, each.text);
    });
  }
  for (const label of apart(labels, 18, top, bottom)) drawn(svg, "text", { x: right + 8, y: label.y + 5, class: `named halo ${label.bold ? "strong" : ""} ${label.ink}` }, label.text);
  const foot = lines(meanings(wanted, copies, labels, models), WIDTH - 16), height = 460 + 20 * foot.length;
  foot.forEach((line, i) => drawn(svg, "text", { x: 8, y: 474 + 20 * i, class: "small" }, line));
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${height}`);
  const focus = drawn(svg, "circle", { r: 11, cx: 0, cy: 0, fill: "none", class: "one", visibility: "hidden" });
  focus.id = "focus";
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * WIDTH, y = ((event.clientY - box.top) / box.height) * height;
    let best = -1, least = 60 ** 2;
    for (const dot of svg.querySelectorAll("[data-row]")) {
      const [cx, cy] = centre(dot);
      const distance = (cx - x) ** 2 + (cy - y) ** 2;
      if (distance < least) [best, least] = [Number(dot.dataset.row), distance];
    }
    if (best >= 0 && best !== cursor) point(best);
  });
  show(figure, svg, state.workload.replace(/\W+/g, "-"));
}
const modelsOf = (used) => [...new Set(used.map((row) => data.devices[row.device].model))].filter(Boolean).sort();
// What the marks and signs that occur in the picture mean, and that a model made its numbers.
function meanings(wanted, copies, labels, models) {
  const field = state.quantity, limits = wanted.filter((row) => isLimit(row, field));
  const left = field === "speedup" ? selection().filter((row) => row.doubt && row.speedup == null) : [];
  const copied = copies && wanted.some((row) => isLimit(row, "copies"));
  const parts = [
    wanted.some((row) => bar(row, field)[0] != null) && `Bar: ${field === "speedup" ? data.uncertainty : "95% interval"}`,
    limits.length ? "Triangle: only a limit is known, and that the speedup lies within the bar" : copied && "Triangle: only a limit is known",
    wanted.some((row) => isNoisy(row, field) && !limits.includes(row)) && "Hollow: noisy measurement",
    ...Object.entries(data.signs).filter(([sign]) => sign !== "≥" && labels.some(({ text }) => text.includes(sign))).map(([, meaning]) => meaning),
    left.length && `${left.length} result${left.length === 1 ? "" : "s"} not drawn: ${[...new Set(left.map((row) => row.doubt))].join(", ")}`,
    models.length && data.modelled.replace("{}", models.join(", ")),
  ];
  return parts.filter(Boolean).map((part) => `${part}. `).join("").trim();
}
function centre(dot) {
  const number = (name) => Number(dot.getAttribute(name));
  if (dot.tagName === "circle") return [number("cx"), number("cy")];
  if (dot.tagName === "rect") return [number("x") + 5, number("y") + 5];
  const box = dot.getBBox();
  return [box.x + box.width / 2, box.y + box.height / 2];
}
function point(index) {
  cursor = index;
  const dot = document.querySelector(`#explorer-figure [data-row="${index}"]`);
  const [x, y] = centre(dot);
  byId("focus").setAttribute("visibility", "visible");
  byId("focus").setAttribute("cx", x);
  byId("focus").setAttribute("cy", y);
  detail(explored[index]);
}
const share = (row) => (row.utilisation == null || row.utilisation > 1 ? "—" : row.utilisation < 0.01 ? "<1" : `${Math.round(row.utilisation * 100)}`);
function detail(row) {
  const box = byId("detail");
  if (!row) return box.replaceChildren("Point at a mark, or press the arrow keys in the picture, for its numbers.");
  const parts = [`${data.devices[row.device].name}, ${atSize(row) || "one size"}: ${row.told_time}`];
  if (row.low_s != null) parts.push(`95% CI ${prefixed(row.low_s, "s")} to ${prefixed(row.high_s, "s")}`);
  if (row.speedup != null) {
    parts.push(`${row.told} (${isLimit(row, "speedup") ? "within " : ""}${timesRange(row.speedup_low, row.speedup_high)}) ${row.told.includes("slower") ? "than" : "as fast as"} ${row.baseline}, which takes ${prefixed(row.baseline_s, "s")}`);
  }
  if (row.doubt) parts.push(`speedup: ${row.doubt}`);
  if (row.told_copies && row.told_copies !== "—") parts.push(`with copies ${row.told_copies}`);
  if (row.rate != null) parts.push(throughput(row));
  if (row.utilisation != null) parts.push(row.utilisation > 1 ? "above the measured peak, which was measured too low" : `${share(row)} % of peak`);
  box.replaceChildren(parts.join(" · "), ...(row.flags ? [element("br"), element("span", { class: "stays" }, `! ${row.flags}`)] : []));
}

// All numbers: search, sort, open, download.
const shown = [
  ["workload", "benchmark", (row) => [...row.workload.split(/(?<=\w[._])(?=[^\W\d])/).flatMap((part) => [element("wbr"), part]), element("br"), element("small", {}, setting(row))]],
  ["size", "at size", atSize],
  ["device", "device", (row) => data.devices[row.device].name],
  ["time_s", "time", (row) => row.told_time || row.status],
  ["speedup", data.speedup, speedupCell],
  ["copies", "with copies", (row) => row.told_copies || "—"],
  ["rate", "throughput", throughput],
  ["utilisation", "% of peak", share],
  ["flags", "notes", (row) => element("small", { class: "note", title: row.reason || row.flags || null }, row.reason || row.notes)],
].filter(([name]) => name === "time_s" || name === "workload" || name === "device" || rows.some((row) => row[name] != null && row[name] !== ""));
const widest = Math.max(...rows.map((row) => Math.abs(Math.log10(row.speedup || 1))), 1);
function speedupCell(row) {
  if (row.speedup == null) return row.doubt ? element("small", {}, row.doubt) : "—";
  const bar = element("span", { class: `bar ${data.devices[row.device].colour}` });
  bar.style.width = `${(60 * Math.max(0, Math.log10(row.speedup))) / widest}px`;
  const spread = timesRange(row.speedup_low, row.speedup_high);
  return [row.told, bar, ...(isLimit(row, "speedup") || spread === times(row.speedup) ? [] : [element("br"), element("small", {}, spread)])];
}
// The search, as runfile/matching.py reads -k: words joined by and, or, not and brackets; of a kind of work whole words.
const TOKEN = /(?:and|or|not)(?=[\s(])|[()]|(?:[^\s()]|(?<=[\w\])])\((?:[^()]|\([^()]*\))*\))+/g;
const escaped = (word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
const powers = (text) => text.replace(/10([⁰¹²³⁴⁵⁶⁷⁸⁹]{1,2})/g, (_, raised) => String(10 ** Number([...raised].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹".indexOf(digit)).join(""))));
const heap = (row) => powers([row.names, data.devices[row.device].names, row.workload, setting(row), data.devices[row.device].name, row.status, row.flags, row.reason].join("\n").toLowerCase());
const haystacks = new Map(rows.map((row) => [row, { names: heap(row), kind: row.kind.toLowerCase() }]));
function testOf(word) {
  if (word.includes("=")) return ({ names }) => new RegExp(`(?<!\\w)${escaped(word)}(?![\\w.])`).test(names);
  const ofKind = new RegExp(`(?<!\\w)${escaped(word)}(?!\\w)`);
  return ({ names, kind }) => names.includes(word) || ofKind.test(kind);
}
function matcher(expression) {
  const tokens = (powers(expression.toLowerCase()).replace(/(?<=\w)\s+=\s+(?=\w)/g, "=").match(TOKEN) ?? []).map((token) => token.replace(/,+$/, "") || token);
  // What isn't finished yet, as while it is typed, chooses all.
  while (["and", "or", "not", "("].includes(tokens.at(-1))) tokens.pop();
  function term() {
    const token = tokens.shift();
    if (token === undefined) return () => true;
    if (token === "not") { const inner = term(); return (row) => !inner(row); }
    if (token === "(") { const inner = either(); tokens.shift(); return inner; }
    return testOf(token);
  }
  function both() {
    let test = term();
    while (tokens.length && !["or", ")"].includes(tokens[0])) {
      if (tokens[0] === "and") tokens.shift();
      const left = test, right = term();
      test = (row) => left(row) && right(row);
    }
    return test;
  }
  function either() {
    let test = both();
    while (tokens[0] === "or") {
      tokens.shift();
      const left = test, right = both();
      test = (row) => left(row) || right(row);
    }
    return test;
  }
  return either();
}
// A short expression that finds some of these rows, if there is one with a size and a device.
const cost = (text) => text.length + 100 * !text.includes("=") + 100 * !text.endsWith("not cpu");
const example = rows.filter((row) => row.time_s != null).flatMap((row) => {
  const text = [row.workload, row.dtype, row.size != null && `${row.size_name}=${row.size}`].filter(Boolean).join(" ");
  return [`${text} and not cpu`, text];
}).sort((a, b) => cost(a) - cost(b)).find((text) => rows.some((row) => matcher(text)(haystacks.get(row)))) ?? "";
function matching() {
  const matches = matcher(state.search);
  const kept = rows.filter((row) => matches(haystacks.get(row)));
  const [name, direction] = state.sort.split(" ");
  const value = (row) => (name === "device" ? data.devices[row.device].name : name === "utilisation" && row[name] > 1 ? null : row[name]);
  if (name) kept.sort((a, b) => {
    const [one, two] = [value(a), value(b)];
    if (one == null || two == null) return (one == null) - (two == null);
    return (one < two ? -1 : one > two ? 1 : 0) * (direction === "down" ? -1 : 1);
  });
  return kept;
}
let opened = "";  // the row that Escape goes back to
function drawTable() {
  const kept = matching();
  byId("count").textContent = kept.length ? `${kept.length} of ${rows.length}` : `Nothing matches. To type, for example: ${example}`;
  const [sorted, direction] = state.sort.split(" ");
  const head = shown.map(([name, label]) => {
    const button = element("button", { type: "button", "data-key": `column ${name}` }, label + (name === sorted ? (direction === "down" ? " ▾" : " ▴") : ""));
    button.addEventListener("click", () => change({ sort: name === sorted && direction === "down" ? `${name} up` : `${name} down` }));
    return element("th", { scope: "col", "aria-sort": name === sorted ? (direction === "down" ? "descending" : "ascending") : "none" }, button);
  });
  // One tab stop for all rows: the arrow keys move between them.
  const opening = (row) => byId("explore") && row.time_s != null, first = kept.find(opening);
  const body = kept.map((row) => {
    const opens = opening(row);
    const line = element("tr", opens ? { tabindex: row === first ? 0 : -1, class: "opens", "data-key": `row ${rows.indexOf(row)}` } : {}, ...shown.map(([name, , cell]) => element("td", { class: ["time_s", "speedup", "rate", "size"].includes(name) ? "number" : null }, ...[cell(row)].flat())));
    const open = () => {
      change({ workload: row.workload, dtype: row.dtype, variant: row.variant, setting: row.setting, hidden: "" });
      byId("explore").scrollIntoView({ behavior: "instant", block: "start" });
      byId("explorer-figure").focus({ preventScroll: true });
      if (explored.includes(row)) point(explored.indexOf(row));
    };
    if (opens) {
      line.addEventListener("click", open);
      line.addEventListener("keydown", (event) => {
        if (event.key === "Enter") { opened = line.dataset.key; return open(); }
        const lines = [...document.querySelectorAll("#table .opens")], step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
        const next = step && lines[lines.indexOf(line) + step];
        if (!next) return;
        event.preventDefault();
        line.tabIndex = -1;
        next.tabIndex = 0;
        next.focus();
      });
    }
    return line;
  });
  byId("table").replaceChildren(element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body));
}
function csv() {
  const names = data.columns.toSpliced(data.columns.indexOf("device") + 1, 0, "machine").slice(0, -3);
  const value = (row, name) => (name === "device" ? data.devices[row.device].name : name === "machine" ? data.devices[row.device].machine : row[name]);
  // A leading = + - @ would be a formula to a spreadsheet.
  const cell = (content) => (content == null ? "" : typeof content === "number" ? String(content) : `"${String(content).replace(/(^|[;\t])(?=[=+\-@＝＋－＠])/g, "$1'").replaceAll('"', '""')}"`);
  return [names.join(","), ...matching().map((row) => names.map((name) => cell(value(row, name))).join(","))].join("\n") + "\n";
}

// Saving. A picture takes its colours with it: they are computed from the page's style.
function show(figure, svg, name) {
  const button = element("button", { type: "button", "data-key": "save" }, "save as SVG");
  button.addEventListener("click", () => save(`${name}.svg`, standalone(svg), "image/svg+xml"));
  figure.replaceChildren(svg, element("div", { class: "tools" }, button));
}
const looks = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-weight", "font-family", "paint-order"];
function standalone(svg) {
  const copy = svg.cloneNode(true);
  const [from, to] = [svg.querySelectorAll("*"), copy.querySelectorAll("*")];
  from.forEach((node, i) => {
    const style = getComputedStyle(node);
    for (const name of looks) to[i].setAttribute(name, style.getPropertyValue(name));
    to[i].removeAttribute("class");
  });
  copy.prepend(drawn(copy, "rect", { width: "100%", height: "100%", fill: getComputedStyle(document.body).backgroundColor }));
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  return new XMLSerializer().serializeToString(copy);
}
const save = (name, text, type) => saveBlob(name, new Blob([text], { type }));
function saveBlob(name, blob) {
  const link = element("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// The view is in the address, so that it can be linked.
function readHash() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const name of Object.keys(state)) if (given.has(name)) state[name] = given.get(name).slice(0, 1000);  // brackets nest
  if (!Object.hasOwn(quantities, state.quantity)) state.quantity = data.quantity;
}
function change(changes) {
  Object.assign(state, changes);
  redraw();
  const kept = Object.entries(state).filter(([name, value]) => value && value !== usual[name]);
  history.replaceState(null, "", `#${new URLSearchParams(kept)}`);
}
function redraw() {
  const focused = document.activeElement?.dataset.key;
  if (state.theme) document.documentElement.dataset.theme = state.theme;
  const dark = state.theme ? state.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  byId("theme").textContent = dark ? "light" : "dark";
  if (byId("explorer-figure")) drawExplorer();
  drawTable();
  if (focused) document.querySelector(`[data-key="${focused}"]`)?.focus({ preventScroll: true });
}
function start() {
  readHash();
  byId("theme").addEventListener("click", () => change({ theme: byId("theme").textContent }));
  if (byId("explorer-figure")) {
    for (const field of FIELDS) byId(field).addEventListener("change", (event) => change({ [field]: event.target.value }));
    for (const name of Object.keys(quantities)) byId(`quantity-${name}`).addEventListener("click", () => change({ quantity: name }));
    byId("explorer-figure").addEventListener("keydown", (event) => {
      if (event.key === "Escape") return document.querySelector(`[data-key="${opened}"]`)?.focus();
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      const jump = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if ((!step && !jump) || !explored.length) return;
      event.preventDefault();
      let next = cursor + (step ?? 0);
      if (jump) {
        const devices = [...new Set(explored.map((row) => row.device))];
        const at = cursor < 0 ? 0 : devices.indexOf(explored[cursor].device);
        const other = devices[(at + jump + devices.length) % devices.length];
        next = explored.findIndex((row) => row.device === other && (cursor < 0 || row.size === explored[cursor].size));
        if (next < 0) next = explored.findIndex((row) => row.device === other);
      }
      point(Math.min(Math.max(next, 0), explored.length - 1));
    });
  }
  byId("search").placeholder = example;
  byId("search").value = state.search;
  byId("search").addEventListener("input", (event) => change({ search: event.target.value }));
  byId("download").addEventListener("click", () => save("gpubench.csv", csv(), "text/csv"));
  window.addEventListener("hashchange", () => { readHash(); byId("search").value = state.search; redraw(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  redraw();
}
start();
