// What each kernel will take, and how its schedule got there; the kernels as a graph with the cuts between them.
function kernelsView(main) {
  main.append(make("p", { class: "quiet" }, `Times are predicted for ${data.target.name} by the model; nothing here was measured` +
    (data.kernels.some((kernel) => kernel.assembled) ? " but registers, by the assembler." : ".")));
  const box = make("div", { class: "cards" });
  data.kernels.forEach((kernel) => box.append(card(kernel)));
  main.append(box);
}

function card(kernel) {
  const box = make("section", { class: "card", "aria-label": kernel.name }, make("h3", {}, kernel.name));
  box.append(make("p", { class: "quiet" }, `${kernel.launches > 1 ? `${kernel.launches} launches, ` : ""}grid ${kernel.grid.join(" × ")}, ${kernel.block} threads, ${bytes(kernel.smem)} shared` +
    (kernel.predicted_registers ? `, about ${kernel.predicted_registers} registers a thread (predicted)` : "")));
  if (kernel.assembled) box.append(make("p", {}, make("b", {}, `${kernel.assembled.registers} registers`), ` a thread, measured by the assembler (${kernel.assembled.by}, ${data.target.arch})` +
    (kernel.assembled.spill_bytes ? `, ${bytes(kernel.assembled.spill_bytes)} spilled` : ", nothing spilled")));
  box.append(make("p", {}, make("b", {}, micro(kernel.predicted_us)), ` bound by ${kernel.predicted_bound}, ${bytes(kernel.dram_bytes)} of DRAM, occupancy ${(kernel.occupancy * 100).toFixed(0)}% (held by ${kernel.held_by}), ${plural(kernel.waves, "wave")}`));
  const most = Math.max(...Object.values(kernel.busy_us), 1e-9);
  for (const [name, us] of Object.entries(kernel.busy_us)) {
    if (!us) continue;
    box.append(make("div", { class: `meter${us === most ? " most" : ""}` }, make("span", {}, name),
      make("span", { class: "track" }, make("span", { class: "fill", width: `${Math.max(1, (us / most) * 100)}%` })), make("span", { class: "num" }, micro(us))));
  }
  const steps = data.trace.map((event, number) => number).filter((number) => data.trace[number].event === "fired" && data.trace[number].unit === kernel.name && data.effects[number]);
  if (steps.length) {
    const table = make("table", { class: "steps" }, make("tr", {}, make("th", { scope: "col" }, "rule"), ...EFFECT.map((text) => make("th", { scope: "col" }, text))));
    steps.forEach((number) => table.append(make("tr", {}, make("td", {}, make("button", { class: "chip", onclick: () => openEvent(number) }, data.trace[number].rule)), ...effectOf(number).map((cell) => make("td", {}, cell)))));
    box.append(make("details", { open: data.kernels.length < 4 }, make("summary", {}, plural(steps.length, "firing")), table));
  }
  return box;
}

const short = (name, most = 12) => (name.length > most ? `${name.slice(0, most - 1)}…` : name); // two names share a gap between boxes

function fusionView(main) {
  const { nodes, edges } = data.fusion;
  main.append(make("p", { class: "quiet" }, "A box is a kernel with the values that it computes, as fusion cuts them: a schedule may make several launches of one. A line is a buffer in memory, orange where a rule cut. Choose one for its reason."));
  const place = nodes.map(() => 0);
  edges.forEach((edge) => { if (edge.from >= 0 && edge.to >= 0) place[edge.to] = Math.max(place[edge.to], place[edge.from] + 1); });
  const WIDE = 270, GAP = 190, ROW = 15;
  const tops = {};
  const boxes = nodes.map((node, number) => {
    const lines = node.values.slice(0, 8);
    if (node.values.length > 8) lines.push(`and ${node.values.length - 8} more`);
    const height = 30 + ROW * lines.length;
    const y = tops[place[number]] || 40;
    tops[place[number]] = y + height + 40;
    return { node, lines, x: 150 + place[number] * (WIDE + GAP), y, height };
  });
  const width = 300 + (Math.max(...place, 0) + 1) * (WIDE + GAP);
  const height = Math.max(...Object.values(tops), 120) + 20;
  const picture = draw("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Launches and the buffers between them" });
  const counts = {}, ports = {};
  const told = make("p", { id: "cut", role: "status", class: "quiet" }, plural(nodes.length, "kernel"));
  edges.forEach((edge) => {
    const from = boxes[edge.from], to = boxes[edge.to];
    const ins = to ? (counts[edge.to] = (counts[edge.to] || 0) + 1) : 0;
    const out = `${edge.from} ${edge.buffer}`, first = from && !(out in ports);
    if (first) { counts[`out ${edge.from}`] = (counts[`out ${edge.from}`] || 0) + 1; ports[out] = from.y + 2 + 14 * counts[`out ${edge.from}`]; }
    const x1 = from ? from.x + WIDE : to.x - 16, y1 = from ? ports[out] : to.y + 14 * ins, x2 = to ? to.x : from.x + WIDE + 60, y2 = to ? to.y + 14 * ins : y1;
    const text = `${edge.buffer}: ${edge.type}, ${bytes(edge.bytes)}${edge.reason ? `; stored because ${edge.reason}${edge.location ? ` (${edge.location})` : ""}` : ""}`;
    const tell = () => { told.textContent = text; };
    picture.append(draw("path", { d: `M${x1} ${y1} C${x1 + 50} ${y1} ${x2 - 50} ${y2} ${x2} ${y2}`, class: edge.reason ? "cut" : "" }, draw("title", {}, text)));
    if (!from) picture.append(draw("text", { x: to.x - 20, y: y2 + 4, "text-anchor": "end", class: "quiet" }, short(edge.buffer, place[edge.to] ? 12 : 20), draw("title", {}, text)));
    else if (first) picture.append(draw("text", { x: x1 + 6, y: y1 - 3, class: "quiet", tabindex: 0, onfocus: tell, onclick: tell }, short(edge.buffer), draw("title", {}, text)));
  });
  boxes.forEach(({ node, lines, x, y, height: tall }) => {
    picture.append(draw("g", { class: "node", tabindex: 0, role: "img", "aria-label": `${node.name} computes ${node.values.join(", ")}` },
      draw("rect", { x, y, width: WIDE, height: tall, rx: 6 }),
      draw("text", { x: x + 10, y: y + 19, "font-weight": "bold" }, node.name.slice(0, 34), draw("title", {}, node.name)),
      ...lines.map((text, row) => draw("text", { x: x + 10, y: y + 36 + row * ROW, class: "quiet" }, text.slice(0, 36)))));
  });
  main.append(told, make("div", { class: "graph" }, picture));
}
