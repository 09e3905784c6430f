// A page on a server: it hears of every compile, and its reader may turn rules off and set their parameters.
const token = new URLSearchParams(location.search).get("token");
const address = (path, more = "") => `${path}?token=${encodeURIComponent(token)}${more}`;
let news = data.live;
let busy = false;
let held = null; // what is pressed stays until it is let go: a click needs the same element at both ends
document.addEventListener("pointerdown", () => {
  held = new Promise((done) => { document.addEventListener("pointerup", () => setTimeout(done), { once: true }); setTimeout(done, 1000); });
});
VIEWS.splice(4, 0, ["rules", "Rules", rulesView, () => data.rules, () => Object.keys(data.rules).length]);

async function listen() {
  for (;;) {
    try {
      const answer = await fetch(address("/news", `&since=${news.number}`));
      if (!answer.ok) throw new Error(String(answer.status));
      const found = await answer.json();
      await held;
      if (found && found.number > news.number) hear(found);
    } catch {
      banner("The server does not answer: dplc view has ended, or is busy.", true);
      await new Promise((done) => setTimeout(done, 2000));
    }
  }
}

// News bring the parts of the record that are new: all of a compile, or what followed it.
function hear(found) {
  const before = predicted(data), first = !data.kernels, compiled = found.compiles > news.compiles;
  news = found;
  for (const [part, value] of Object.entries(found.data)) { if (value === null) delete data[part]; else data[part] = value; }
  const parts = Object.keys(found.data).filter((part) => part !== "stages");
  if ("stages" in found.data) stages();
  if (!compiled && data.kernels && parts.every((part) => part in LATER)) later(parts);
  else if (parts.length) keepView(start);
  if (!compiled) return;
  if (found.error) { banner(found.error, true); say("It does not compile."); return; }
  if (first) { find("banner").hidden = true; say("Compiled."); return; }
  const lines = found.diff ? found.diff.split("\n").filter((line) => /^[+-]/.test(line)).length : 0;
  banner(`${found.why}: compiled in ${Math.round(found.ms)} ms. Predicted ${micro(before)} → ${micro(predicted(data))}. ` +
    (lines ? `CUDA differs in ${plural(lines, "line")}: see Rules.` : "The CUDA is the same."), false);
  say(find("banner").textContent);
}

function stages() {
  const box = find("stages");
  box.hidden = !data.stages;
  if (!data.stages) return;
  box.replaceChildren(...data.stages.map((one) => make("li", { class: one.now ? "now" : one.ms === null ? "quiet" : "good" },
    make("span", { "aria-hidden": "true" }, one.now ? "◌ " : one.ms === null ? "· " : "✓ "), one.text,
    make("span", { class: "quiet" }, one.now ? " …" : one.ms === null ? "" : ` ${Math.round(one.ms)} ms`))));
  const now = data.stages.find((one) => one.now);
  if (now) say(`${now.text} …`);
}

// Parts that come after a compile, several in one message where the server was quick, and the views each is shown in.
const LATER = { effects: ["timeline", "kernels"], kernels: ["kernels"], counted: ["program"], egraph: ["egraph"] };

function later(parts) {
  keepView(() => {
    tabs();
    if (!parts.some((part) => LATER[part].includes(open))) return;
    if (open === "timeline") gains();
    else openTab(open);
  });
}

// What the model says of firings goes into the rows that are there, open or not.
function gains() {
  for (const box of document.querySelectorAll(".event")) {
    const number = Number(box.id.slice(1));
    if (!data.effects[number]) continue;
    box.querySelector(".gain").replaceWith(gain(number));
    if (box.open && box.childNodes.length > 1) box.lastChild.replaceWith(detail(number));
  }
}

// The page is drawn while its reader looks: what is scrolled and focused stays so.
function keepView(draw) {
  const top = find("main").scrollTop, { id, dataset: { key } } = document.activeElement || document.body;
  draw();
  find("main").scrollTop = top;
  const again = id ? find(id) : key && [...document.querySelectorAll("[data-key]")].find((node) => node.dataset.key === key);
  if (again && again !== document.activeElement) again.focus({ preventScroll: true });
}

function refused(answer) {
  banner(answer.status === 503 ? "It is not compiled yet: ask again in a moment." : `The server refused: ${answer.status}`, true);
}

async function explore() {
  const answer = await fetch(address("/explore"), { method: "POST", headers: { "Content-Type": "application/json" }, body: "{}" });
  if (!answer.ok) refused(answer);
}

// The view of the e-graph is there before it is explored, with a button that does so.
function exploring(view) {
  const [, , draw, , count] = view;
  view[2] = (main) => {
    main.append(make("p", { class: "tools" },
      make("button", { class: "chip", id: "explore", "data-key": "explore", onclick: explore }, data.egraph ? "explore again" : "explore"),
      make("span", { class: "quiet" }, "Algebra and cuts together, by equality saturation: it may take as long as dplc fuse --explore does.")));
    if (data.egraph) draw(main);
  };
  view[3] = () => data.kernels;
  view[4] = () => (data.egraph ? count() : "");
}
exploring(VIEWS.find((one) => one[0] === "egraph"));

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
    if (!answer.ok) { refused(answer); keepView(() => openTab(open)); } // what it made comes as news
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
      make("td", { class: "quiet" }, rule.docs.length > 140 ? `${rule.docs.slice(0, 140).replace(/ \S*$/, "")} …` : rule.docs)));
  }
  main.append(make("div", { class: "wide" }, table));
}

function parameterCell(cell, name, rule, now) {
  const set = now.settings.filter((text) => text.startsWith(`${name}.`));
  cell.append(make("button", { class: "chip", "data-parameters": name, onclick: async (event) => {
    event.target.disabled = true;
    const answer = await fetch(address("/parameters", `&rule=${encodeURIComponent(name)}`));
    if (!answer.ok) { refused(answer); event.target.disabled = false; return; }
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

stages();
listen();
