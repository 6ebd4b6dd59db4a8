"use strict";
// A button beside each command, that copies it. The first script of every page that has commands.
document.querySelectorAll("code[data-copy]").forEach((code) => {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "copy";
  button.setAttribute("aria-label", "Copy the command");
  button.addEventListener("click", async () => {
    const selection = getSelection();
    selection.selectAllChildren(code);
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      document.execCommand("copy"); // where a page of a file may not write to the clipboard
    }
    button.textContent = "copied";
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  });
  code.after(" ", button);
});
