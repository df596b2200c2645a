"use strict";
// Search, sorting, the theme and the legends. Without this script the page shows everything.
const byId = (id) => document.getElementById(id);
const rows = [...document.querySelectorAll("#numbers tbody tr")];
const search = byId("search"), theme = byId("theme");
search.hidden = theme.hidden = false;

search.addEventListener("input", () => {
  const words = search.value.toLowerCase().split(/\s+/);
  for (const row of rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
  byId("count").textContent = search.value && `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
});

// A cell without a value comes last in both directions.
function compare(one, two, column, sign) {
  const [a, b] = [one, two].map((row) => row.cells[column]);
  const [x, y] = [a, b].map((cell) => cell.dataset.value);
  if (x !== undefined && y !== undefined) return sign * (x - y);
  return (x === undefined) - (y === undefined) || sign * a.textContent.localeCompare(b.textContent, "en", { numeric: true });
}
const heads = [...document.querySelectorAll("#numbers th")];
heads.forEach((head, column) => {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...head.childNodes);
  head.append(button);
  button.addEventListener("click", () => {
    const down = head.ariaSort !== "descending";
    for (const each of heads) each.ariaSort = null;
    head.ariaSort = down ? "descending" : "ascending";
    rows.sort((one, two) => compare(one, two, column, down ? -1 : 1));
    document.querySelector("#numbers tbody").append(...rows);
  });
});

// A button of a legend dims all other devices of its picture.
for (const button of document.querySelectorAll(".legend button")) {
  button.addEventListener("click", () => {
    const figure = button.closest("figure"), only = button.ariaPressed === "true" ? "" : button.dataset.role;
    for (const each of figure.querySelectorAll("button")) each.ariaPressed = String(each.dataset.role === only);
    for (const mark of figure.querySelectorAll(".scroll g[class]")) {
      mark.classList.toggle("dim", only !== "" && !mark.classList.contains(only));
    }
  });
}

const dark = matchMedia("(prefers-color-scheme: dark)"), root = document.documentElement;
const other = () => ((root.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark" ? "light" : "dark");
const named = () => { theme.textContent = other(); };
theme.addEventListener("click", () => { root.dataset.theme = other(); named(); });
dark.addEventListener("change", named);
named();
