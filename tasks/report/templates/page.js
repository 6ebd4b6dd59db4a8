// Filters, sorting and folding. Without this script everything is shown, in the order of the values.
const form = document.querySelector("form.filters");
const bodies = [...document.querySelectorAll("tbody[data-sortable]")];
const tokens = (element) => new Map((element.dataset.t || "").split(" ").filter(Boolean).map((token) => token.split(".").map(Number)));
bodies.forEach((body) => { body.all = [...body.rows]; body.open = false; });

function chosen() {
  const selects = form ? [...form.querySelectorAll("select[data-filter]")] : [];
  return new Map(selects.filter((one) => one.value !== "").map((one) => [Number(one.dataset.filter), Number(one.value)]));
}

function fits(element, wanted) {
  const mine = tokens(element);
  return [...wanted].every(([axis, value]) => !mine.has(axis) || mine.get(axis) === value);
}

// While only the first cells are shown, their bars take the whole width.
function zoom(table, close) {
  if (!table.dataset.view) return;
  table.classList.toggle("zoomed", close);
  table.querySelectorAll("td.bars svg").forEach((bar) => bar.setAttribute("viewBox", close ? table.dataset.view : "0 0 100 10"));
  table.querySelectorAll("th.bars span").forEach((end) => {
    end.dataset.all ??= end.textContent;
    end.textContent = close ? end.dataset.top : end.dataset.all;
  });
}

function show() {
  const wanted = chosen();
  const by = form ? form.querySelector("select[data-sort]").value : "";
  let found = 0;
  bodies.forEach((body) => {
    const rows = [...body.all];
    if (by !== "") rows.sort((a, b) => (tokens(a).get(Number(by)) ?? 0) - (tokens(b).get(Number(by)) ?? 0));
    body.append(...rows);
    const top = Number(body.dataset.top || 0);
    const fold = top && !body.open && wanted.size === 0 && by === "" && rows.length > top;
    rows.forEach((row, place) => { row.hidden = !fits(row, wanted) || (fold && place >= top); });
    if (top) found += rows.filter((row) => fits(row, wanted)).length;
    const table = body.parentElement;
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const away = !fits(head, wanted);
      head.hidden = away;
      if (head.dataset.t) rows.forEach((row) => { row.cells[column].hidden = away; });
      if (head.hasAttribute("aria-sort")) {
        head.dataset.sort ??= head.getAttribute("aria-sort");
        const own = column === 0 ? (by === "" ? "none" : "ascending") : (by === "" ? head.dataset.sort : "none");
        head.setAttribute("aria-sort", own);
      }
    });
    zoom(table, Boolean(fold));
    if (body.button) {
      body.button.hidden = !(fold || body.open) || wanted.size > 0 || by !== "";
      body.button.textContent = body.open ? `Show the first ${top}` : `Show all ${rows.length}`;
      body.button.setAttribute("aria-expanded", String(body.open));
    }
  });
  if (form) form.querySelector("output").textContent = wanted.size ? `${found} cells` : "";
}

bodies.filter((body) => body.dataset.top && body.rows.length > Number(body.dataset.top)).forEach((body) => {
  body.button = document.createElement("button");
  body.button.type = "button";
  body.button.addEventListener("click", () => { body.open = !body.open; show(); });
  body.closest(".scroll").after(body.button);
});
if (form) {
  form.hidden = false;
  form.addEventListener("change", show);
  form.addEventListener("reset", () => setTimeout(show));
  form.addEventListener("submit", (event) => event.preventDefault());
}
addEventListener("beforeprint", () => document.querySelectorAll(".caution details").forEach((one) => { one.open = true; }));
show();
