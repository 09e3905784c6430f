// A page on a server: it hears of every compile, and its reader may turn rules off and set their parameters.
const token = new URLSearchParams(location.search).get("token");
const address = (path, more = "") => `${path}?token=${encodeURIComponent(token)}${more}`;
let news = data.live;
let busy = false;
VIEWS.push(["rules", "Rules", rulesView, () => data.rules, () => Object.keys(data.rules).length]);

async function listen() {
  for (;;) {
    try {
      const answer = await fetch(address("/news", `&since=${news.number}`));
      if (!answer.ok) throw new Error(String(answer.status));
      const found = await answer.json();
      if (found && found.number > news.number) hear(found);
    } catch {
      banner("The server does not answer: dplc view has ended, or is busy.", true);
      await new Promise((done) => setTimeout(done, 2000));
    }
  }
}

function total(record) {
  return record.kernels.reduce((sum, kernel) => sum + (kernel.predicted ? kernel.predicted.us * kernel.launches : 0), 0);
}

function hear(found) {
  const before = total(data);
  news = found;
  if (found.error) { banner(found.error, true); say("The rules do not compile."); return; }
  refresh(found.data);
  const lines = found.diff ? found.diff.split("\n").filter((line) => /^[+-]/.test(line)).length : 0;
  banner(`${found.why}: compiled in ${Math.round(found.ms)} ms. Predicted ${micro(before)} → ${micro(total(data))}. ` +
    (lines ? `CUDA differs in ${plural(lines, "line")}: see Rules.` : "The CUDA is the same."), false);
  say(find("banner").textContent);
}

function banner(text, bad) {
  const box = find("banner");
  box.hidden = false;
  box.className = bad ? "bad" : "";
  box.textContent = text;
}

async function change(edit) {
  if (busy) return;
  busy = true;
  const now = data.switches || { without: [], settings: [] };
  const wanted = { without: [...now.without], settings: [...now.settings] };
  edit(wanted);
  banner("compiling …", false);
  try {
    const answer = await fetch(address("/change"), { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(wanted) });
    if (answer.ok) { const found = await answer.json(); if (found.number > news.number) hear(found); }
    else banner(`The server refused: ${answer.status}`, true);
  } finally { busy = false; }
}

function rulesView(main) {
  const now = data.switches || { without: [], settings: [] };
  main.append(make("p", { class: "quiet" }, "A rule that is off stands in no pipeline. A parameter that is set is set everywhere the rule fires, as by --set. Both compile the program again."));
  if (news.diff) main.append(make("details", { open: true, id: "difference" }, make("summary", {}, "What the last change did to the CUDA"), difference(news.diff)));
  if (now.without.length || now.settings.length)
    main.append(make("p", {}, make("button", { class: "chip", id: "reset", onclick: () => change((wanted) => { wanted.without = []; wanted.settings = []; }) }, "as the rules say"), ` ${[...now.without.map((name) => `without ${name}`), ...now.settings.map((text) => `--set ${text}`)].join(", ")}`));
  const names = [...new Set([...now.without, ...Object.keys(data.rules).sort((a, b) => data.rules[b].fired - data.rules[a].fired || a.localeCompare(b))])];
  const table = make("table", { class: "rules" }, make("tr", {}, ...["on", "rule", "fired", "parameters", "what it does"].map((text) => make("th", { scope: "col" }, text))));
  for (const name of names) {
    const rule = data.rules[name] || { fired: 0, parameters: [], docs: "", location: "" };
    const cell = make("td");
    if (rule.parameters.length && rule.fired) parameterCell(cell, name, rule, now);
    table.append(make("tr", {},
      make("td", {}, make("input", { type: "checkbox", "aria-label": `${name} is on`, "data-rule": name, checked: !now.without.includes(name),
        onchange: (event) => change((wanted) => { wanted.without = wanted.without.filter((other) => other !== name); if (!event.target.checked) wanted.without.push(name); }) })),
      make("td", {}, make("code", { title: rule.location }, name)),
      make("td", { class: "num" }, String(rule.fired)),
      cell,
      make("td", { class: "quiet" }, rule.docs.slice(0, 140))));
  }
  main.append(make("div", { class: "wide" }, table));
}

function parameterCell(cell, name, rule, now) {
  const set = now.settings.filter((text) => text.startsWith(`${name}.`));
  cell.append(make("button", { class: "chip", "data-parameters": name, onclick: async (event) => {
    event.target.disabled = true;
    const answer = await fetch(address("/parameters", `&rule=${encodeURIComponent(name)}`));
    cell.replaceChildren(...(await answer.json()).map((one) => slider(name, one)));
  } }, set.length ? set.map((text) => text.slice(name.length + 1)).join(", ") : rule.parameters.join(", ")));
}

function slider(name, one) {
  const label = make("label", {}, `${one.name} `);
  const set = (value) => change((wanted) => {
    wanted.settings = wanted.settings.filter((text) => !text.startsWith(`${name}.${one.name}=`));
    if (value !== null) wanted.settings.push(`${name}.${one.name}=${value}`);
  });
  if (one.values.length > 1) {
    const shownValue = make("output", {}, one.now);
    label.append(make("input", { type: "range", min: 0, max: one.values.length - 1, step: 1, value: Math.max(0, one.values.indexOf(one.now)),
      "data-parameter": `${name}.${one.name}`, "aria-valuetext": one.now,
      oninput: (event) => { shownValue.textContent = one.values[event.target.value]; event.target.setAttribute("aria-valuetext", one.values[event.target.value]); },
      onchange: (event) => set(one.values[event.target.value]) }), " ", shownValue);
  } else {
    label.append(make("input", { type: "text", value: one.now, size: 10, "data-parameter": `${name}.${one.name}`, onchange: (event) => set(event.target.value) }));
  }
  return make("div", {}, label);
}

listen();
