// The views, and how one is opened.
const VIEWS = [
  ["program", "Program", columnsView, () => data.columns, () => ""],
  ["timeline", "Timeline", timelineView, () => data.trace, () => data.trace.length],
  ["kernels", "Kernels", kernelsView, () => data.kernels, () => data.kernels.length],
  ["fusion", "Fusion", fusionView, () => data.fusion, () => ""],
];
let open = null;

function facts() {
  if (!data.kernels) return;
  const launches = data.kernels.reduce((sum, kernel) => sum + kernel.launches, 0);
  const fired = data.trace.filter((event) => event.event === "fired").length;
  const spent = Object.values(data.timings).reduce((sum, ms) => sum + ms, 0);
  find("facts").replaceChildren(
    make("span", {}, make("b", {}, String(launches)), ` launch${launches === 1 ? "" : "es"}`),
    make("span", {}, make("b", {}, micro(predicted(data))), ` predicted, ${data.target.name}`),
    make("span", {}, make("b", {}, String(fired)), " firings"),
    make("span", {}, make("b", {}, spent < 1e4 ? `${Math.round(spent)} ms` : `${(spent / 1e3).toFixed(1)} s`), " to compile"));
}

// A tab that is there stays the same element: news may come between the two halves of a click on it.
function tabs() {
  const there = VIEWS.filter(([, , , has]) => has());
  const bar = find("tabs"), shown = [...bar.children].map((tab) => tab.id).join();
  if (shown !== there.map(([id]) => `tab-${id}`).join()) bar.replaceChildren(...there.map((view) => newTab(view)));
  for (const [id, , , , count] of there) find(`tab-${id}`).querySelector(".count").textContent = count();
  return there;
}

function newTab([id, name]) {
  return make("button", {
    role: "tab", id: `tab-${id}`, "aria-controls": "main", "aria-selected": String(id === open), tabindex: id === open ? 0 : -1,
    onclick: () => openTab(id),
    onkeydown: (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const all = [...find("tabs").children];
      const next = all[(all.indexOf(event.currentTarget) + step + all.length) % all.length];
      next.click();
      next.focus();
    } }, name, make("span", { class: "count" }));
}

function markTab(tab, id) {
  const own = tab.id === `tab-${id}`;
  tab.setAttribute("aria-selected", String(own));
  tab.tabIndex = own ? 0 : -1;
}

function openTab(id) {
  open = id;
  for (const tab of find("tabs").children) {
    markTab(tab, id);
  }
  const main = find("main");
  main.className = "";
  main.setAttribute("role", "tabpanel");
  main.setAttribute("aria-labelledby", `tab-${id}`);
  main.replaceChildren();
  main.scrollTop = 0;
  VIEWS.find((view) => view[0] === id)[2](main);
}

function start() {
  const there = tabs().map((view) => view[0]);
  facts();
  if (there.length) openTab(there.includes(open) ? open : there[0]);
}
