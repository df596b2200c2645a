"use strict";
// What all pages share. It stands before a page's own script.
const byId = (id) => document.getElementById(id);

// Numbers for people: three digits.
function digits(value, count = 3) {
  if (value === 0) return "0";
  const decimals = count - 1 - Math.floor(Math.log10(Math.abs(value)));
  const fixed = decimals > 0 ? value.toFixed(Math.min(decimals, 12)) : String(Math.round(value / 10 ** -decimals) * 10 ** -decimals);
  return fixed.includes(".") ? fixed.replace(/\.?0+$/, "") : fixed.replace(/\B(?=(\d{3})+$)/g, ",");
}
// As format.ratio_text, words.times and words.times_range in Python: two digits, three from a hundred on.
const plain = (value) => (value >= 999.5 ? digits(value) : value >= 9.95 ? value.toFixed(0) : value >= 0.995 ? value.toFixed(1) : digits(value, 2));
function times(value) {
  if (value == null) return "–";
  if (value >= 1) return `${plain(value)}×`;
  return plain(1 / value) === "1.0" ? "1.0×" : `${plain(1 / value)}× slower`;
}
function timesRange(low, high) {
  const first = high < 1 ? `${plain(1 / high)}×` : times(low), last = high < 1 ? times(low) : times(high);
  return times(low) === times(high) ? last : `${first} to ${last}`;
}

// Elements. Text always goes through textContent: names may be anything.
function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value != null && value !== false) node.setAttribute(name, value);
  node.append(...children.filter((child) => child != null));
  return node;
}
