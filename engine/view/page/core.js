"use strict";
// The page is made of text nodes only: nothing that came from a program or a rule is ever read as markup.
let data = JSON.parse(document.getElementById("data").textContent);
const LEVELS = { d: "torch", a: "tensor", f: "fusion", l: "loop", t: "tile", k: "kernel" };
const find = (id) => document.getElementById(id);

function make(tag, fields, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(fields || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "own") node.style.setProperty("--own", `var(--${value})`);
    else if (name === "lines") node.style.setProperty("--lines", value);
    else if (name === "width") node.style.width = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== undefined && child !== null));
  return node;
}

function draw(tag, fields, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(fields || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value);
  }
  node.append(...children.flat());
  return node;
}

const say = (text) => { find("said").textContent = text; };
const plural = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;

const predicted = (record) => (record.kernels || []).reduce((sum, kernel) => sum + kernel.predicted_us * kernel.launches, 0);

function micro(us) {
  if (us === null || us === undefined) return "?";
  if (us >= 1e6) return `${(us / 1e6).toFixed(2)} s`;
  if (us >= 1e4) return `${(us / 1e3).toFixed(1)} ms`;
  return `${us.toFixed(us < 100 ? 2 : 0)} µs`;
}

function bytes(n) {
  if (n === null || n === undefined) return "?";
  for (const [size, unit] of [[1 << 30, "GiB"], [1 << 20, "MiB"], [1 << 10, "KiB"]])
    if (n >= size) return `${(n / size).toFixed(n < 10 * size ? 2 : 1)} ${unit}`;
  return `${Math.round(n)} B`;
}

const WORDS = new Set(("for in if else not and or load by each inside rule with on let where kernel graph const float int " +
  "double char bool void return extern __global__ __restrict__ uint32_t uint64_t true false none inf free reduce serial " +
  "BLOCK THREAD REG VEC lambda def class import from as").split(" "));
const TOKENS = /(\/\/.*$|^\s*#.*$|##.*$)|("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(\b\d[\w.]*\b)|([A-Za-z_]\w*)/g;

function code(text) {
  const out = [];
  let last = 0;
  for (const found of text.matchAll(TOKENS)) {
    const [all, remark, quoted, number] = found;
    const kind = remark ? "r" : quoted || number ? "n" : WORDS.has(all) ? "w" : text[found.index + all.length] === "(" ? "f" : "";
    if (!kind) continue;
    if (found.index > last) out.push(text.slice(last, found.index));
    out.push(make("span", { class: kind }, all));
    last = found.index + all.length;
  }
  out.push(text.slice(last));
  return out;
}

function difference(text) {
  const kind = (line) => (line.startsWith("@@") ? "hunk" : line[0] === "+" ? "add" : line[0] === "-" ? "drop" : "");
  return make("pre", { tabindex: 0, "aria-label": "difference" },
    text.split("\n").map((line) => make("span", { class: kind(line) }, line)));
}
