// What searches found: a tuning run, and the e-graph class by class.
VIEWS.push(["tuning", "Tuning", tuningView, () => data.tuning, () => data.tuning.tries ?? ""]);
VIEWS.push(["egraph", "E-graph", egraphView, () => data.egraph, () => (data.egraph.regions || []).reduce((sum, one) => sum + one.classes.length, 0)]);
const over = (ratio) => (ratio === null ? "-" : ratio.toFixed(3));
const gained = (reward) => (reward ? `${reward.toFixed(2)}×` : "no time");

function tuningView(main) {
  const run = data.tuning;
  if (run.error) { main.append(make("pre", {}, run.error)); return; }
  main.append(
    make("p", {}, make("b", {}, `${micro(run.default_us)} by default, ${micro(run.tuned_us)} tuned`), `, ${run.basis} for ${data.target.name}. ` +
      `${run.search}: ${run.tries} tries, ${run.programs} programs, ${run.refused} refused by limits, ${run.failed} failed, ${run.repeated} seen before, ${run.seconds.toFixed(1)} s.`),
    make("h2", {}, "Best so far"), curve(run),
    make("h2", {}, "Decisions"),
    make("p", { class: "quiet" }, "Candidates that decided alike so far share a branch; of what followed without a choice only firings are named. A reward is the default's time over theirs: the best, and the geometric mean."),
    decision(run.tree, 0, "tree"));
  for (const kernel of run.kernels) main.append(tuned(kernel));
}

function curve(run) {
  const WIDE = 760, HIGH = 180, LEFT = 70, LOW = 24;
  if (!run.curve.length) return make("p", { class: "quiet" }, "No candidate can be launched.");
  const top = Math.max(...run.curve.map(([, , us]) => us)) * 1.05;
  const x = (tries) => LEFT + ((WIDE - LEFT - 10) * tries) / Math.max(run.tries, 1);
  const y = (us) => (HIGH - LOW) * (1 - us / top);
  let path = "";
  run.curve.forEach(([tries, , us], place) => { path += place ? `H${x(tries).toFixed(1)}V${y(us).toFixed(1)}` : `M${x(tries).toFixed(1)} ${y(us).toFixed(1)}`; });
  const picture = draw("svg", { width: WIDE, height: HIGH, viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": `Best time over tries: ${run.curve.map(([tries, , us]) => `${micro(us)} after ${tries}`).join(", ")}` });
  for (const part of [0.25, 0.5, 0.75, 1])
    picture.append(draw("path", { class: "grid", d: `M${LEFT} ${y(top * part)}H${WIDE}` }), draw("text", { x: 0, y: y(top * part) + 12 }, micro(top * part)), draw("text", { x: x(run.tries * part) - 24, y: HIGH - 6 }, String(Math.round(run.tries * part))));
  picture.append(draw("path", { class: "best", d: `${path}H${x(run.tries)}` }));
  return make("div", { class: "wide" }, picture);
}

const toggled = new Map(); // what the reader opened or closed, for when the page is made again

function folding(key, opened, fields, summary, ...rest) {
  return make("details", { ...fields, open: toggled.get(key) ?? opened, ontoggle: (event) => toggled.set(key, event.target.open) },
    make("summary", { "data-key": key }, ...summary), ...rest);
}

function decision(node, depth, path) {
  const label = [make("code", {}, node.label || "everything"), make("span", { class: "quiet" }, ` ${plural(node.tried, "candidate")}, best `), make("b", {}, gained(node.best)), make("span", { class: "quiet" }, `, mean ${gained(node.mean)}${node.without ? `, ${node.without} without a time` : ""}`)];
  if (!node.below.length) return make("div", { class: "leaf" }, ...label);
  return folding(path, depth < 3, { class: "branch" }, label, node.below.map((one) => decision(one, depth + 1, `${path}/${one.label}`)));
}

function tuned(kernel) {
  const box = make("section", { class: "card tuned", "aria-label": kernel.kernel }, make("h3", {}, kernel.kernel + (kernel.count > 1 ? `, ${kernel.count} times` : "")),
    make("p", {}, `${micro(kernel.default_us)} by default, ${micro(kernel.tuned_us)} tuned`));
  const steps = kernel.schedule.map((step) => `${step.pass}: ${step.rule} at ${step.site}${Object.entries(step.parameters).map(([name, value]) => ` ${name}=${JSON.stringify(value)}`).join("")}`);
  box.append(folding(`schedule of ${kernel.kernel}`, false, {}, [`its schedule, ${plural(steps.length, "decision")}`], make("pre", { tabindex: 0 }, steps.map((step) => make("span", {}, step)))));
  for (const effect of kernel.effects) {
    const table = make("table", {}, make("caption", {}, effect.title), make("tr", {}, ["value", "tried", "no time", "best", "mean"].map((text) => make("th", { scope: "col" }, text))));
    for (const one of effect.values) table.append(make("tr", {}, make("td", {}, make("code", {}, one.value)), [one.tried, one.without, over(one.best), over(one.mean)].map((text) => make("td", { class: "num" }, String(text)))));
    box.append(make("div", { class: "wide" }, table));
  }
  if (kernel.effects.length) box.append(make("p", { class: "quiet" }, "Best and mean: time over the default's with this value; less is better."));
  return box;
}

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
