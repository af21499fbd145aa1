// How the search orders what it finds: pages that explain before pages that list.
var Scorer = {
  score: ([page, , , , score]) =>
    /^(reference|_modules|programs|changelog|measurements)/.test(page) ? score - 12 : score,
  objNameMatch: 11,
  objPartialMatch: 3,
  objPrio: { 0: 0, 1: -3, 2: -6 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
