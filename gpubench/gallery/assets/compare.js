// Puts two machines side by side: GPU against GPU, CPU against CPU, on the benchmarks that both have.
const loaded = {}, sides = ["a", "b"];
const noisy = Number(byId("comparison").dataset.noisy);

// What the script of a machine calls: a page on a disk can load scripts and nothing else.
function machine(ident, data) {
  loaded[ident] = data;
}
const load = (ident) => loaded[ident] ?? new Promise((done, failed) => {
  const script = element("script", { src: `machines/${ident}.js` });
  script.addEventListener("load", () => done(loaded[ident]));
  script.addEventListener("error", () => failed(new Error(`machines/${ident}.js can't be read`)));
  document.head.append(script);
});
const counted = (count) => `${count} benchmark${count === 1 ? "" : "s"}`;
const row = ([key, kind, name, setting, seconds, low, high, time, waited]) => ({ key, kind, name, setting, seconds, low, high, time, waited });
function pair(one, other) {
  const value = other.seconds / one.seconds, low = other.low / one.high, high = other.high / one.low;
  const wide = high > noisy * low, unknown = one.waited || other.waited || (wide && low <= 1 && high >= 1);
  const text = unknown ? "unknown (too noisy)" : wide ? timesRange(low, high) : `${times(value)} (${timesRange(low, high)})`;
  return { ...one, other: other.time, value, low, high, unknown, wide, text };
}
// As cards.WorkRow in Python: the pair in the middle stands for its kind.
function ofKind(kind, pairs) {
  const first = [...new Map(pairs.toReversed().map((each) => [each.name, each])).values()];
  const known = first.filter((each) => !each.unknown).sort((a, b) => a.value - b.value);
  const middle = known[Math.floor((known.length - 1) / 2)];
  const ends = known.length > 1 ? timesRange(known[0].value, known.at(-1).value) : middle && timesRange(middle.low, middle.high);
  return [kind, !middle ? "unknown (too noisy)" : middle.wide ? timesRange(middle.low, middle.high) : times(middle.value), ends ?? "—", String(first.length)];
}
function tabled(caption, heads, rows) {
  const line = (cells, tag) => element("tr", {}, ...cells.map((cell) => element(tag, tag === "th" ? { scope: "col" } : {}, cell)));
  return element("table", {}, element("caption", {}, caption), element("thead", {}, line(heads, "th")), element("tbody", {}, ...rows.map((cells) => line(cells, "td"))));
}
function against(device, one, other) {
  const [mine, theirs] = [one, other].map((each) => each.devices[device]);
  if (!mine || !theirs) return [];
  const known = new Map(theirs.rows.map(row).map((each) => [each.key, each]));
  const pairs = mine.rows.map(row).filter((each) => known.has(each.key)).map((each) => pair(each, known.get(each.key)));
  const title = element("h2", {}, `${device} against ${device}`);
  const who = `${mine.name} against ${theirs.name}`;
  if (!pairs.length) return [title, element("p", {}, `${who}: no benchmark was measured on both in the same way.`)];
  const kinds = Map.groupBy(pairs.filter((each) => each.kind), (each) => each.kind);
  const summary = tabled(`${who}: ${counted(pairs.length)} that both have`, ["work", "typically", "range", "benchmarks"], [...kinds].map(([kind, of]) => ofKind(kind, of)));
  const dated = (side, name) => `${name}, ${side.facts.measured}`;
  const heads = ["benchmark", dated(one, mine.name), dated(other, theirs.name), who];
  const every = tabled(`Time per call, and ${who}`, heads, pairs.map((each) => [`${each.name} ${each.setting}`, each.time, each.other, each.text]));
  const details = element("details", {}, element("summary", {}, `All: ${counted(pairs.length)}`), element("div", { class: "card", tabindex: 0 }, every));
  return [title, ...(kinds.size ? [element("div", { class: "card kinds" }, summary)] : []), details];
}
function facts(one, other) {
  const names = [...new Set([one, other].flatMap((each) => Object.keys(each.facts)))];
  const [known, always] = [(side, name) => side.facts[name] || "unknown", ["GPU", "CPU", "measured"]];
  const differ = names.filter((name) => always.includes(name) || known(one, name) !== known(other, name));
  const said = (side) => side.said.filter(Boolean).join(" ⚠ ");
  const rows = differ.map((name) => [name, known(one, name), known(other, name)]);
  rows.push(["report", ...sides.map((side) => element("a", { href: `machines/${byId(side).value}.html` }, "report"))]);
  return element("div", { class: "card", tabindex: 0 }, tabled("What differs", ["what", one.label, other.label], [...rows, ["in a sentence", said(one), said(other)]]));
}
async function draw() {
  history.replaceState(null, "", `#${new URLSearchParams(sides.map((side) => [side, byId(side).value]))}`);
  const chosen = sides.map((side) => byId(side).value);
  try {
    const [one, other] = await Promise.all(chosen.map(load));
    if (chosen.some((ident, i) => ident !== byId(sides[i]).value)) return;
    document.title = `${one.label} against ${other.label}`;
    const found = ["GPU", "CPU"].flatMap((device) => against(device, one, other));
    byId("comparison").replaceChildren(facts(one, other), ...(found.length ? found : [element("p", {}, "They have no kind of device in common.")]));
  } catch (error) {
    byId("comparison").replaceChildren(element("p", { class: "warning" }, error.message));
  }
}
function start() {
  const given = new URLSearchParams(location.hash.slice(1));
  sides.forEach((side, i) => {
    const options = [...byId(side).options].map((option) => option.value);
    byId(side).value = options.includes(given.get(side)) ? given.get(side) : options[Math.min(i, options.length - 1)];
  });
  draw();
}
for (const side of sides) byId(side).addEventListener("change", draw);
window.addEventListener("hashchange", start);
start();
