// A suite: a row for each rule, a column for each case; darker where the rule gained more.
VIEWS.push(["suite", "Suite", suiteView, () => data.heat, () => data.heat.cases.length]);

function header(one) {
  return make("th", { scope: "col", title: one.error || `${micro(one.us)} predicted` }, make("span", {}, one.name));
}

function suiteView(main) {
  const { cases, rules } = data.heat;
  main.append(make("p", { class: "quiet" }, `How often each rule fired in each case; darker where the model says that it gained more, for ${data.target.name}. Nothing was measured.`));
  const told = make("p", { role: "status", id: "cell" }, plural(cases.length, "case") + ", " + plural(rules.length, "rule") + (cases.some((one) => one.error) ? `; ${cases.filter((one) => one.error).length} did not compile` : ""));
  const table = make("table", { class: "heat" });
  table.append(make("thead", {}, make("tr", {}, make("td"), cases.map(header))));
  const body = make("tbody");
  for (const rule of rules) {
    const row = make("tr", {}, make("th", { scope: "row", title: rule.location }, rule.name));
    cases.forEach((one, place) => {
      const cell = one.fired[rule.name];
      const warmth = !cell ? "" : cell[1] > 3 ? "h3" : cell[1] > 1.05 ? "h2" : "h1";
      row.append(make("td", { class: warmth, "data-case": place }, cell ? String(cell[0]) : ""));
    });
    row.addEventListener("mouseover", (event) => {
      const place = event.target.dataset.case;
      const cell = place === undefined ? null : cases[place].fired[rule.name];
      if (cell) told.textContent = `${rule.name} fired ${plural(cell[0], "time")} in ${cases[place].name}` + (cell[1] === 1 ? "" : `: ${cell[1].toFixed(2)} times as fast, predicted`);
    });
    body.append(row);
  }
  table.append(body);
  main.append(told, make("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Rules by cases" }, table));
}
