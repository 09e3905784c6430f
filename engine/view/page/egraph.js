// The e-graph of fusion, class by class.
VIEWS.push(["egraph", "E-graph", egraphView, () => data.egraph, () => (data.egraph.regions || []).reduce((sum, one) => sum + one.classes.length, 0)]);

function egraphView(main) {
  if (data.egraph.error) { main.append(make("pre", {}, data.egraph.error)); return; }
  const { regions, candidates, left_out } = data.egraph;
  main.append(make("p", { class: "quiet" }, "A class holds the spellings that are equal by the rules; ✓ is what the best solution takes. Choose an operand to see its class." + (left_out ? ` ${left_out} classes are not shown.` : "")));
  const table = make("table", {}, make("tr", {}, ["candidate", "launches", "moved", "predicted", "by"].map((text) => make("th", { scope: "col" }, text))));
  candidates.forEach((one, number) => table.append(make("tr", {}, make("td", {}, `${number + 1}`), make("td", { class: "num" }, String(one.kernels)), make("td", { class: "num" }, bytes(one.bytes)), make("td", { class: "num" }, micro(one.predicted_us)), make("td", {}, one.problem || one.rules.join(", ") || one.label))));
  main.append(make("div", { class: "wide" }, table));
  regions.forEach((region, number) => {
    const names = new Map(region.classes.map((one, place) => [one.title, `c${number}-${place}`]));
    const box = make("section", { "aria-label": `region ${number + 1}` }, make("h2", {}, `Region ${number + 1}${region.times > 1 ? `, ${region.times} times` : ""}`),
      make("p", { class: "quiet" }, `${region.classes.length} classes, ${region.enodes} spellings of ${region.operations} operations; ${region.stop}. Launches: ${region.kernels.join("; ")}.`));
    const fired = region.rules.join(", ");
    if (fired) box.append(make("p", { class: "quiet" }, `Equations that fired: ${fired}.`));
    region.classes.forEach((one, place) => box.append(eclass(one, `c${number}-${place}`, names)));
    main.append(box);
  });
}

function eclass(one, id, names) {
  const state = [one.stored && "stored", !one.needed && "not needed", one.known && "weight"].filter(Boolean).join(", ");
  const box = make("section", { class: `eclass${one.needed ? "" : " idle"}`, id, tabindex: -1, "aria-label": `class ${one.title}` },
    make("h3", {}, one.title, make("span", { class: "quiet" }, ` ${one.dtype}[${one.axes}]${state ? `, ${state}` : ""}`)));
  one.spellings.forEach((spelling) => box.append(make("div", { class: `spelling${spelling.chosen ? " good" : ""}` }, spelling.chosen ? "✓ " : "", linked(spelling.text, names, one.title))));
  return box;
}

function linked(text, names, own) {
  return make("code", {}, text.split(/(\w+)/).map((word) => (names.has(word) && word !== own
    ? make("button", { class: "link", onclick: () => { const to = find(names.get(word)); to.scrollIntoView({ block: "center" }); to.focus(); } }, word) : word)));
}
