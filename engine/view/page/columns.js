// Seven texts side by side, three of them open at first; a line highlights the lines that it came from and that came from it.
const FIRST = ["source", "tile", "cuda"];
const shown = { column: null, line: null, chosen: new Map() }; // chosen: the columns that the reader opened or closed
const isOpen = ({ name }) => shown.chosen.get(name) ?? (FIRST.includes(name) || !data.columns.some((column) => FIRST.includes(column.name)));
let downs = [];
let rows = [];

function transposed(columns) {
  return columns.map((column, place) => {
    const down = column.lines.map(() => []);
    const next = columns[place + 1];
    if (next) next.up.forEach((found, line) => found.forEach((above) => down[above] && down[above].push(line)));
    return down;
  });
}

function related(column, line) {
  const found = data.columns.map(() => new Set());
  found[column].add(line);
  for (let place = column; place > 0; place--)
    for (const own of found[place]) for (const above of data.columns[place].up[own] || []) found[place - 1].add(above);
  for (let place = column; place + 1 < data.columns.length; place++)
    for (const own of found[place]) for (const below of downs[place][own] || []) found[place + 1].add(below);
  return found;
}

function columnsView(main) {
  main.className = "flush";
  downs = transposed(data.columns);
  rows = data.columns.map(() => []);
  const bar = make("div", { class: "bar", role: "group", "aria-label": "Columns" }, make("span", { class: "quiet" }, "Columns"));
  const board = make("div", { class: "columns" });
  data.columns.forEach((column, place) => {
    const box = make("section", { class: `column${column.name === "source" ? " narrow" : ""}`, own: column.name, "aria-label": title(column) });
    box.append(
      make("h2", {}, title(column), make("span", { class: "quiet" }, plural(column.lines.length, "line"))),
      listing(column, place));
    box.hidden = !isOpen(column);
    bar.append(make("button", {
      class: "chip", "aria-pressed": String(!box.hidden), onclick: (event) => {
        box.hidden = !box.hidden;
        shown.chosen.set(column.name, !box.hidden);
        event.target.setAttribute("aria-pressed", String(!box.hidden));
      } }, column.name));
    board.append(box);
  });
  if (data.counted) {
    const found = data.counted.findings;
    bar.append(make("span", { class: found.length ? "bad" : "good", title: found.map((one) => one.message).join("\n") },
      `run --check: ${found.length ? plural(found.length, "finding") : "no finding"}; costs per request of a warp stand at the lines of CUDA`));
  }
  bar.append(make("span", { class: "gap" }), make("span", { class: "quiet" }, "↑ ↓ a line, ← → along its links, Enter its rules"));
  main.append(bar, board, make("div", { class: "inspect", id: "inspect" }));
  if (shown.column !== null && rows[shown.column] && rows[shown.column][shown.line]) choose(shown.column, shown.line, false);
  else inspectNothing();
}

const title = (column) => ({ source: "your source", torch: "Torch IR", tensor: "Tensor IR", loop: "Loop IR", tile: "Tile IR",
  kernel: "Kernel IR", cuda: "CUDA" })[column.name] || column.name;

function listing(column, place) {
  const list = make("div", { class: "lines", role: "listbox", tabindex: 0, "aria-label": `${title(column)}, lines` });
  const starts = [...new Set([0, ...column.units.map((unit) => unit[0])])].sort((a, b) => a - b);
  starts.forEach((start, number) => {
    const end = starts[number + 1] ?? column.lines.length;
    const unit = make("div", { class: "unit", role: "presentation", lines: end - start });
    for (let line = start; line < end; line++) {
      const row = make("div", { class: "ln", role: "option", id: `l${place}-${line}`, "data-line": line, "aria-selected": "false", "aria-label": column.lines[line].trim() ? null : "empty line" },
        make("span", { class: "no", "aria-hidden": "true" }, String(line + 1)), ...code(column.lines[line]), ...(column.name === "cuda" ? costs(line) : []));
      rows[place][line] = row;
      unit.append(row);
    }
    list.append(unit);
  });
  const at = (event) => { const row = event.target.closest(".ln"); return row ? Number(row.dataset.line) : null; };
  list.addEventListener("click", (event) => { const line = at(event); if (line !== null) choose(place, line, true); });
  list.addEventListener("mouseover", (event) => { const line = at(event); if (line !== null) hover(place, line); });
  list.addEventListener("mouseleave", () => mark("near", []));
  list.addEventListener("keydown", (event) => keys(event, place, column));
  return list;
}

function costs(line) {
  return ((data.counted && data.counted.lines[line]) || []).map((one) => {
    const each = (n) => (n / one.requests).toFixed(n % one.requests ? 2 : 0);
    const more = one.cost > one.ideal;
    return make("span", { class: `cost ${more ? "bad" : "good"}`, title: `${one.access}: ${one.requests} requests of ${one.width} bytes a lane, ${one.cost} ${one.unit}; ${one.ideal} is the least` },
      `${each(one.cost)} ${one.unit}${more ? ` (least ${each(one.ideal)})` : ""}`);
  });
}

function mark(kind, found) {
  for (const row of document.querySelectorAll(`.ln.${kind}`)) row.classList.remove(kind);
  found.forEach((lines, place) => lines.forEach((line) => rows[place][line] && rows[place][line].classList.add(kind)));
}

function hover(place, line) { mark("near", related(place, line)); }

function choose(place, line, move) {
  const before = document.querySelector(".ln.at");
  if (before) { before.classList.remove("at"); before.setAttribute("aria-selected", "false"); }
  Object.assign(shown, { column: place, line });
  const found = related(place, line);
  mark("on", found);
  const row = rows[place][line];
  row.classList.add("at");
  row.setAttribute("aria-selected", "true");
  row.closest(".lines").setAttribute("aria-activedescendant", row.id);
  found.forEach((lines, other) => {
    if (lines.size && (other !== place || !move)) reveal(rows[other][Math.min(...lines)]);
  });
  if (move) {
    reveal(row);
    row.closest(".column").scrollIntoView({ inline: "nearest", block: "nearest" });
  }
  inspect(place, line, found);
}

function reveal(row, again = true) {
  if (!row || !row.offsetParent) return;
  const list = row.closest(".lines");
  const top = row.getBoundingClientRect().top - list.getBoundingClientRect().top;
  if (top < 30 || top > list.clientHeight - 60) list.scrollTop += top - list.clientHeight / 3;
  aside(list, row);
  if (again) requestAnimationFrame(() => reveal(row, false)); // a line out of sight has its true width only now
}

// A column is narrow, and a line far inside of loops begins to the right of it: what it says comes into sight.
function aside(list, row) {
  const first = row.childNodes[1];
  if (!first) return;
  const begins = document.createRange();
  const indent = first.nodeType === Node.TEXT_NODE ? first.data.search(/\S|$/) : 0;
  begins.setStart(first, indent);
  begins.setEndAfter(row.lastChild);
  const box = begins.getBoundingClientRect();
  const left = box.left - list.getBoundingClientRect().left;
  const wide = list.clientWidth;
  if (left < 0) list.scrollLeft = 0;
  if (left + Math.min(box.width, wide * 0.7) > wide) list.scrollLeft += left - wide * 0.2;
}

function keys(event, place, column) {
  const line = shown.column === place ? shown.line : 0;
  const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20 }[event.key];
  if (step) choose(place, Math.max(0, Math.min(column.lines.length - 1, line + step)), true);
  else if (event.key === "Home") choose(place, 0, true);
  else if (event.key === "End") choose(place, column.lines.length - 1, true);
  else if (event.key === "ArrowLeft" || event.key === "ArrowRight") along(place, line, event.key === "ArrowLeft" ? -1 : 1);
  else if (event.key === "Enter") { const first = document.querySelector("#inspect button"); if (first) first.focus(); }
  else return;
  event.preventDefault();
}

function along(place, line, way) {
  const found = related(place, line);
  let next = place + way;
  while (data.columns[next] && (!isOpen(data.columns[next]) || !found[next].size)) next += way;
  if (!data.columns[next]) return;
  choose(next, Math.min(...found[next]), true);
  rows[next][shown.line].closest(".lines").focus();
}

function inspectNothing() {
  find("inspect").append(make("span", { class: "quiet" }, "Choose a line: what it came from, what came of it, and the rules that shaped it light up."));
}

function inspect(place, line, found) {
  const box = find("inspect");
  const names = data.columns.map((column, other) => {
    const numbers = [...found[other]].map((n) => n + 1);
    return numbers.length ? `${column.name} ${numbers.slice(0, 4).join(", ")}${numbers.length > 4 ? " …" : ""}` : null;
  }).filter(Boolean);
  const events = new Set();
  found.forEach((lines, other) => { if (other <= place) lines.forEach((n) => (data.columns[other].made[n] || []).forEach((e) => events.add(e))); });
  box.replaceChildren(make("span", { class: "path" }, make("b", {}, `${title(data.columns[place])} ${line + 1}`), "  ", names.join("  ·  ")));
  if (!events.size) box.append(make("span", { class: "quiet" }, "No rule changed this line after it was made."));
  const byRule = new Map();
  [...events].sort((a, b) => a - b).forEach((number) => {
    const event = data.trace[number], key = `${event.level} ${event.rule}`;
    byRule.set(key, [...(byRule.get(key) || []), number]);
  });
  for (const numbers of byRule.values()) {
    const event = data.trace[numbers[0]], often = numbers.length > 1;
    box.append(make("button", { class: "chip", own: LEVELS[event.level], title: event.location + (often ? `; ${numbers.length} firings, the first is opened` : ""),
      onclick: () => openEvent(numbers[0]) }, event.rule + (often ? ` ×${numbers.length}` : "")));
  }
  say(`${title(data.columns[place])} line ${line + 1}: ${names.join("; ")}. ${plural(events.size, "rule")}.`);
}
