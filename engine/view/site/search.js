"use strict";
const root = document.currentScript.dataset.root;
const box = document.getElementById("site-search");
const list = document.getElementById("site-found");

function look() {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  list.hidden = !words.length;
  list.replaceChildren();
  if (!words.length) return;
  const worth = ([, name, , docs]) => {
    const low = name.toLowerCase();
    if (!words.every((word) => low.includes(word) || docs.toLowerCase().includes(word))) return 0;
    return low === words.join("_") ? 4 : low.startsWith(words[0]) ? 3 : words.every((word) => low.includes(word)) ? 2 : 1;
  };
  const hits = WORDS.map((entry) => [worth(entry), entry]).filter(([value]) => value).sort((a, b) => b[0] - a[0]).slice(0, 40);
  for (const [, [kind, name, where, docs]] of hits) {
    const link = document.createElement("a");
    link.href = root + where;
    link.textContent = name;
    const said = document.createElement("span");
    said.className = "quiet";
    said.textContent = ` ${kind}. ${docs.slice(0, 120)}`;
    const item = document.createElement("li");
    item.append(link, said);
    list.append(item);
  }
  if (!hits.length) list.append("nothing is called so, and no comment says it");
}

box.addEventListener("input", look);
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== box) { event.preventDefault(); box.focus(); }
  if (event.key === "Escape") { box.value = ""; look(); }
});
