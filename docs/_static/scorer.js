// How the search orders what it finds: a page by its keywords, an exact name, then pages
// that explain before pages that list, and at last what is a record.
var Scorer = {
  score: ([page, , , , score, , kind]) => {
    if (kind === "index") return page === "glossary" ? score - 1 : score;
    if (kind === "object") return score >= Scorer.objNameMatch ? score + 30 : score;
    if (/^(changelog|_modules|architecture|experiments)/.test(page)) return score - 30;
    return /^(reference|programs|measurements|format|reliability|cost)/.test(page) ? score - 12 : score;
  },
  objNameMatch: 11,
  objPartialMatch: 3,
  objPrio: { 0: 0, 1: 0, 2: -6 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
