"use strict";
// Search, sorting and the legends. Without this script the page shows everything.
const [search, count, body] = ["#search", "#count", "#numbers tbody"].map((place) => document.querySelector(place));
const rows = [...body.rows];
search.hidden = false;

search.addEventListener("input", () => {
  const words = search.value.toLowerCase().split(/\s+/);
  for (const row of rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
  count.textContent = search.value && `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
});

// A cell without a value comes last in both directions.
function compare(one, two, column, sign) {
  const [a, b] = [one, two].map((row) => row.cells[column]), [x, y] = [a, b].map((cell) => cell.dataset.value || undefined);
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
    for (const other of heads) other.ariaSort = null;
    head.ariaSort = down ? "descending" : "ascending";
    body.append(...rows.sort((one, two) => compare(one, two, column, down ? -1 : 1)));
  });
});

// A button of a legend dims all other devices of its picture.
for (const button of document.querySelectorAll(".legend button")) {
  button.addEventListener("click", () => {
    const figure = button.closest("figure"), only = button.ariaPressed === "true" ? "" : button.dataset.role;
    for (const other of figure.querySelectorAll("button")) other.ariaPressed = String(other.dataset.role === only);
    for (const mark of figure.querySelectorAll(".scroll g[class]")) {
      mark.classList.toggle("dim", only !== "" && !mark.classList.contains(only));
    }
  });
}
