// What the rules did, in order: a row for each event, its contents made when it is opened.
const GLYPHS = { fired: "●", refused: "✕", skipped: "○", remark: "◆" };
const filter = { text: "", kinds: new Set(["fired", "refused", "remark"]), level: "" };
const AT_ONCE = 400;

function kindOf(event) {
  if (event.event !== "skipped") return event.event;
  return /matched, but|not preferred/.test(event.reason) ? "refused" : "skipped";
}

function timelineView(main) {
  const counts = {};
  data.trace.forEach((event) => { counts[kindOf(event)] = (counts[kindOf(event)] || 0) + 1; });
  const tools = make("div", { class: "tools", role: "group", "aria-label": "What is listed" });
  tools.append(make("input", { type: "search", placeholder: "rule, kernel, reason …", "aria-label": "Filter by text", value: filter.text,
    oninput: (event) => { filter.text = event.target.value.toLowerCase(); list(); } }));
  for (const kind of Object.keys(GLYPHS)) {
    if (!counts[kind]) continue;
    tools.append(make("button", { class: "chip", "aria-pressed": String(filter.kinds.has(kind)), onclick: (event) => {
      filter.kinds[filter.kinds.has(kind) ? "delete" : "add"](kind);
      event.target.setAttribute("aria-pressed", String(filter.kinds.has(kind)));
      list();
    } }, `${GLYPHS[kind]} ${kind} ${counts[kind]}`));
  }
  const levels = [...new Set(data.trace.map((event) => event.level))];
  tools.append(make("select", { "aria-label": "Level", onchange: (event) => { filter.level = event.target.value; list(); } },
    make("option", { value: "" }, "all levels"), levels.map((level) => make("option", { value: level, selected: filter.level === level }, LEVELS[level] || level))));
  const told = make("span", { class: "quiet", role: "status" });
  tools.append(told);
  const box = make("div", { id: "events" });
  main.append(tools, make("div", { class: "heads" }, make("span", { class: "gain" }, ...EFFECT.map((text) => make("span", {}, text)))), box);

  function list() {
    const chosen = data.trace.map((event, number) => number).filter((number) => matches(data.trace[number]));
    told.textContent = `${chosen.length} of ${data.trace.length}`;
    box.replaceChildren();
    let next = 0;
    const more = () => {
      if (!box.isConnected) return;
      const part = document.createDocumentFragment();
      for (; next < chosen.length && part.childNodes.length < AT_ONCE; next++) part.append(row(chosen[next]));
      box.append(part);
      if (next < chosen.length) setTimeout(more);
    };
    more();
  }
  list();
}

function matches(event) {
  if (!filter.kinds.has(kindOf(event)) || (filter.level && event.level !== filter.level)) return false;
  return !filter.text || [event.rule, event.pass, event.unit, event.reason, event.text, event.location]
    .some((part) => part && part.toLowerCase().includes(filter.text));
}

function row(number) {
  const event = data.trace[number];
  const kind = kindOf(event);
  const level = LEVELS[event.level] || event.level;
  const details = make("details", { class: `event ${kind}`, id: `e${number}`, own: level });
  details.append(make("summary", {},
    make("span", { class: "glyph", title: kind }, make("span", { "aria-hidden": "true" }, GLYPHS[kind]), make("span", { class: "hidden" }, kind)),
    make("span", { class: "level" }, level),
    make("span", { class: "rule" }, event.rule || event.pass),
    make("span", { class: "what" }, summary(event)),
    gain(number)));
  details.addEventListener("toggle", () => { if (details.open) fill(details, number); });
  return details;
}

function fill(details, number) {
  if (details.childNodes.length === 1) details.append(detail(number));
}

function summary(event) {
  if (event.event === "remark") return `${event.unit}: ${event.text}`;
  if (event.event === "skipped") return `${event.unit}: ${withoutPlace(event)}`;
  const values = Object.entries(event.parameters).map(([name, value]) => `${name}=${value}`).join(", ");
  return `${event.unit} ${event.site}${values ? ` (${values})` : ""}`;
}

// A row names its rule beside: where the rule stands, and its name again, are said when the row is opened.
function withoutPlace(event) {
  const [, place, rest] = /^(\S+\.rw:\d+): (.*)$/s.exec(event.reason) || [null, "", event.reason];
  const named = `${event.rule}: `;
  return place && rest.startsWith(named) ? rest.slice(named.length) : event.reason;
}

const EFFECT = ["predicted time", "effect"];

function gain(number) { return make("span", { class: "gain" }, ...effectOf(number)); }

// The time after a firing and what the firing changed, apart. A kernel that cannot be launched yet has only a final time.
function effectOf(number) {
  const [before, after, rest] = data.effects[number] || [];
  const time = make("span", { class: "quiet", title: rest ? `${OF_REST} Predicted.` : "predicted by the model" }, after ? `${rest ? "final " : ""}${micro(after.us)}` : "");
  if (!before || !after) return [time, make("span")];
  const part = after.us / before.us;
  const kind = part < 0.995 ? "good" : part > 1.005 ? "bad" : "quiet";
  const change = part < 0.2 ? `${(1 / part).toFixed(part < 0.1 ? 0 : 1)}× faster` : `${part > 1 ? "+" : "−"}${Math.abs((part - 1) * 100).toFixed(1)}%`;
  return [time, make("span", { class: kind, title: "time with the firing over time without it" }, kind === "quiet" ? "none" : change)];
}

const MEASURES = [["us", "time, predicted", micro], ["dram", "DRAM", bytes], ["shared", "shared memory", bytes],
  ["registers", "registers of a thread, predicted from Tile IR", (n) => (n ? `about ${n}` : "not known of a loop nest")],
  ["threads", "threads of a block", String], ["blocks", "blocks", String], ["occupancy", "occupancy", (x) => `${(x * 100).toFixed(0)}%`],
  ["binding", "bound by", String]];

function detail(number) {
  const event = data.trace[number];
  const box = make("div", { class: "detail" });
  const list = make("dl");
  const put = (name, value) => { if (value) list.append(make("dt", {}, name), make("dd", {}, value)); };
  put("pass", `${event.level}:${event.pass}`);
  put("rule", event.location && make("code", {}, event.location));
  put("at", `${event.unit} ${event.site || ""}`);
  for (const [name, value] of Object.entries(event.parameters || {})) put(name, make("code", {}, value));
  put("then", (event.canonical || []).join(", "));
  put("folded", (event.folded || []).join(", "));
  put("why not", event.reason);
  put("", event.text);
  const docs = data.rules[event.rule] && data.rules[event.rule].docs;
  put("the rule says", docs);
  box.append(list);
  const bound = Object.entries(event.bound || {});
  if (bound.length) box.append(make("details", { class: "bound" }, make("summary", {}, `bound ${plural(bound.length, "name")}: ${bound.map(([name]) => name).join(", ")}`),
    make("dl", {}, ...bound.flatMap(([name, value]) => [make("dt", {}, make("code", {}, name)), make("dd", {}, make("code", {}, value))]))));
  for (const choice of event.weighed || []) box.append(weighed(choice));
  const effect = data.effects[number];
  if (effect && (effect[0] || effect[1])) box.append(effects(effect, event.level));
  else if (effect) box.append(make("p", { class: "quiet" }, "The model says nothing of it: these kernels cannot be launched as they stand."));
  else if (event.event === "fired" && "ltk".includes(event.level) && !data.live) box.append(make("p", { class: "quiet" }, "The model was not asked: a written page gives it a second and a half. dplc view without -o asks it of every firing."));
  if (event.diff) box.append(difference(event.diff));
  return box;
}

function weighed(choice) {
  const said = make("p", { class: "quiet" }, `choose ${choice.name}, ${choice.maximising ? "maximising" : "minimising"} ${choice.cost}` + (choice.set === null ? "" : `; set to ${choice.set}`));
  const table = make("table", {});
  table.append(make("tr", {}, make("th", { scope: "col" }, choice.name), make("th", { scope: "col" }, choice.maximising ? "worth" : "cost")));
  choice.alternatives.forEach((one, place) => table.append(
    make("tr", {}, make("td", {}, make("code", {}, place ? one.value : `${one.value} ✓`)), make("td", { class: "num" }, one.cost))));
  return make("div", { class: "wide" }, said, table);
}

const OF_LEVEL = { l: "Of the kernels that the default order makes of these loop nests.", k: "Registers are those of the Tile IR that it was lowered from." };

const OF_REST = "Of what the rest of the order makes of these kernels, without the firing and with it: as they stand they cannot be launched.";

function effects([before, after, rest], level) {
  const table = make("table", {}, make("tr", {}, ...["", "before", "after"].map((text) => make("th", { scope: "col" }, text))));
  for (const [key, name, write] of MEASURES) {
    const [a, b] = [before, after].map((side) => (side ? write(side[key]) : "cannot be launched as it stands"));
    table.append(make("tr", {}, make("th", { scope: "row" }, name), make("td", { class: "num" }, a), make("td", { class: "num" }, a === b ? make("span", { class: "quiet" }, b) : make("b", {}, b))));
  }
  return make("div", { class: "wide" }, OF_LEVEL[level] || rest ? make("p", { class: "quiet" }, rest ? OF_REST : OF_LEVEL[level]) : "", table);
}

function openEvent(number) {
  filter.kinds.add(kindOf(data.trace[number]));
  filter.text = "";
  filter.level = "";
  openTab("timeline");
  const reach = (tries) => {
    const row = find(`e${number}`);
    if (!row) { if (tries) setTimeout(() => reach(tries - 1), 20); return; }
    row.open = true;
    fill(row, number); // the event of opening comes later: without its contents there may be nothing to scroll to
    const head = row.querySelector("summary");
    head.focus({ preventScroll: true });
    head.scrollIntoView({ block: "center" });
  };
  reach(200);
}
