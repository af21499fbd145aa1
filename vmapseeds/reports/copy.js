"use strict";
// Buttons that copy a text. Without this script they stay hidden.
{
  // Where a page may not use the clipboard, as in the frame of a notebook.
  const copySelected = (text) => {
    const field = document.createElement("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  };

  for (const button of document.querySelectorAll("[data-copy]")) {
    const label = button.textContent;
    // The page keeps a number and its unit on one line; elsewhere a space is a space.
    const text = button.dataset.copy.replaceAll("\u00a0", " ");
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text);
      } catch {
        copySelected(text);
      }
      button.focus();
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = label), 2000);
    });
    button.parentElement.hidden = false;
  }
}
