// The lines are there already: they are searched, sorted and chosen here. The view is in the address.
const table = byId("machines"), lines = [...table.tBodies];
const heads = [...table.querySelectorAll("thead button")].map((button) => button.parentElement);
const texts = new Map(lines.map((line) => [line, line.textContent.toLowerCase()]));
const state = { q: "", by: "", sort: "" };

function value(line, column) {
  const cell = line.rows[0].cells[column];
  return cell.dataset.value ? Number(cell.dataset.value) : cell.textContent.trim();
}
function compared(one, other) {
  if (typeof one !== typeof other) return typeof one === "number" ? -1 : 1;
  return typeof one === "number" ? one - other : one.localeCompare(other);
}
function sort() {
  const column = Math.abs(state.sort), sign = Math.sign(state.sort);
  for (const head of heads) head.removeAttribute("aria-sort");
  if (!column || !heads[column - 1]) return;
  heads[column - 1].setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
  const keys = new Map(lines.map((line) => [line, value(line, column)]));
  const missing = (line) => keys.get(line) === "—";
  lines.sort((a, b) => missing(a) - missing(b) || sign * compared(keys.get(a), keys.get(b)));
  table.append(...lines);
}
function filter() {
  const wanted = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  for (const line of lines) {
    line.hidden = (state.by && line.dataset.by !== state.by) || !wanted.every((word) => texts.get(line).includes(word));
  }
  const shown = lines.filter((line) => !line.hidden).length;
  byId("count").textContent = shown < lines.length ? `${shown} of ${lines.length}` : "";
}
function change(changes) {
  Object.assign(state, changes);
  history.replaceState(null, "", `#${new URLSearchParams(Object.entries(state).filter(([, each]) => each))}`);
  filter();
}
function start() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const name of Object.keys(state)) state[name] = given.get(name) ?? "";
  byId("search").value = state.q;
  if (byId("by")) byId("by").value = state.by;
  sort();
  filter();
}
heads.forEach((head, i) => head.firstChild.addEventListener("click", () => {
  change({ sort: String(state.sort === String(i + 1) ? -i - 1 : i + 1) });
  sort();
}));
byId("search").addEventListener("input", (event) => change({ q: event.target.value }));
byId("by")?.addEventListener("change", (event) => change({ by: event.target.value }));
let chosen = [];
table.addEventListener("change", (event) => {
  const line = event.target.closest("tbody");
  chosen = event.target.checked ? [...chosen, line] : chosen.filter((each) => each !== line);
  for (const each of chosen.splice(0, chosen.length - 2)) each.querySelector("input").checked = false;
  byId("compare").href = `compare.html#${new URLSearchParams(chosen.map((each, i) => ["ab"[i], each.id]))}`;
  byId("compare").textContent = chosen.length < 2 ? "tick two to compare them" : `compare ${chosen.map((each) => each.querySelector("a").textContent).join(" with ")}`;
});
window.addEventListener("hashchange", start);
start();
