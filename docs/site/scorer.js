/* Which results of a search come first: a page or heading that is called so, and pages for users before those for us. */
var Scorer = {
  score: ([page, , , , score, , kind]) =>
    score + 20 * (kind === "title") - 8 * /^(CHANGELOG|CONTRIBUTING|docs\/architecture|results\/)/.test(page),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
