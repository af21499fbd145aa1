"use strict";
// Names for controls of the theme that screen readers would not name as they are seen.
for (const button of document.querySelectorAll(".search-button__button"))
  button.setAttribute("aria-label", button.textContent.replace(/\s+/g, " ").trim() || "Search");
for (const summary of document.querySelectorAll(".toctree-toggle"))
  summary.parentElement.setAttribute("aria-label", "Show or hide the pages below");
// The parameters of a signature are no list of definitions, which Sphinx makes of them.
for (const part of document.querySelectorAll("dt.sig > dl, dt.sig > dl > dd"))
  part.setAttribute("role", "none");
// A table that scrolls by itself can be reached by the keyboard.
for (const table of document.querySelectorAll(".bd-article table"))
  if (table.scrollWidth > table.clientWidth) table.tabIndex = 0;
