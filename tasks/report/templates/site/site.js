// Of a list: finding, filtering, ordering. Of a chart: what is known of the night under the pointer, or that the arrow keys chose.
const form = document.querySelector("form.filters");
const body = document.querySelector("tbody[data-rows]");
if (form && body) {
  const rows = [...body.rows].map((row) => ({ row, tokens: row.dataset.t.split("."), text: row.textContent.toLowerCase() }));
  const show = () => {
    const words = form.querySelector("[data-find]").value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = [...form.querySelectorAll("select[data-filter]")].filter((one) => one.value !== "");
    let found = 0;
    rows.forEach(({ row, tokens, text }) => {
      row.hidden = !(words.every((word) => text.includes(word)) && wanted.every((one) => tokens[one.dataset.filter] === one.value));
      found += !row.hidden;
    });
    const ordered = [...rows];
    if (form.querySelector("[data-sort]").value === "name") ordered.sort((a, b) => (a.text < b.text ? -1 : 1));
    body.append(...ordered.map(({ row }) => row));
    form.querySelector("output").textContent = found < rows.length ? `${found} of ${rows.length} cells` : "";
  };
  form.hidden = false;
  form.addEventListener("input", show);
  form.addEventListener("reset", () => setTimeout(show));
  form.addEventListener("submit", (event) => event.preventDefault());
  show();
}

const nights = JSON.parse(document.getElementById("nights")?.textContent ?? "null");
document.querySelectorAll("[data-figure]").forEach((figure) => {
  const data = JSON.parse(figure.querySelector("script").textContent);
  const [plot, tip, line] = [".plot", ".tip", ".at"].map((name) => figure.querySelector(name));
  const svg = plot.querySelector("svg");
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  const last = data.x.length - 1;
  let at = -1;

  const percent = (value) => (value > 0 ? "+" : value < 0 ? "\u2212" : "") + Math.abs(value).toFixed(1);
  function lines(place) {
    const night = data.night[place];
    const [change, low, high] = data.change.map((row) => row[place]);
    const value = data.value[place].toLocaleString("en", { maximumSignificantDigits: 5 });
    return [
      `${nights.date[night]}: ${data.words[data.verdict[place]]}`,
      `${value} ${data.unit}`,
      low === null ? "no baseline yet" : `${percent(change)} % (${percent(low)} to ${percent(high)}, 95 %)${data.paired.includes(place) ? " in pairs" : ""}`,
      data.said[place] ?? "",
      `commit ${nights.commit[night] || "unknown"}`,
      nights.environments[nights.environment[night]] ?? "",
      nights.changed[night] ? `changed: ${nights.changed[night]}` : "",
      nights.report[night] ? "Enter opens that night's report" : "",
    ].filter(Boolean);
  }
  function choose(place) {
    at = place;
    tip.classList.toggle("away", at < 0);
    line.setAttribute("d", at < 0 ? "" : `M${data.x[at]} 16V${height - 44}`);
    if (at < 0) return;
    tip.replaceChildren(...lines(at).map((text, number) => {
      const row = document.createElement(number ? "p" : "b");
      row.textContent = text;
      return row;
    }));
    const inside = data.x[at] / width * svg.clientWidth;
    if (inside < plot.scrollLeft || inside > plot.scrollLeft + plot.clientWidth) plot.scrollLeft = inside - plot.clientWidth / 2;
    const x = inside - plot.scrollLeft;
    const room = plot.clientWidth - tip.offsetWidth;
    tip.style.left = `${Math.max(0, Math.min(room, x < plot.clientWidth / 2 ? x + 14 : x - 14 - tip.offsetWidth))}px`;
    tip.style.top = `${plot.offsetTop + 8}px`;
  }
  function nearest(event) {
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * width;
    let best = 0;
    data.x.forEach((one, place) => { if (Math.abs(one - x) < Math.abs(data.x[best] - x)) best = place; });
    return best;
  }
  function open() {
    const report = nights.report[data.night[at]];
    if (report) location.href = report;
  }
  plot.scrollLeft = plot.scrollWidth; // on a narrow screen: the newest nights
  plot.addEventListener("pointermove", (event) => choose(nearest(event)));
  plot.addEventListener("pointerleave", () => { if (document.activeElement !== plot) choose(-1); });
  plot.addEventListener("blur", () => choose(-1));
  plot.addEventListener("focus", () => { if (at < 0 && plot.matches(":focus-visible")) choose(last); });
  plot.addEventListener("keydown", (event) => {
    const to = { ArrowLeft: Math.max(0, at - 1), ArrowRight: Math.min(last, at + 1), Home: 0, End: last, Escape: -1 }[event.key];
    if (to !== undefined) {
      event.preventDefault();
      choose(to);
    } else if (event.key === "Enter" && at >= 0) open();
  });
});
