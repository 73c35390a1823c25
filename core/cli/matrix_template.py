"""The frame of the matrix page: style and script, with four places to fill."""

TEMPLATE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Interlock: what works with what</title>
<style>
:root {
  color-scheme: light dark;
  --paper: #fbfaf7; --card: #fff; --ink: #1d2429; --soft: #647078; --line: #e1dfd8; --focus: #2563eb;
  --valid: #14784a; --valid-bg: #dcf1e4; --unavailable: #8a5a00; --unavailable-bg: #fbeecb;
  --refused: #b3261e; --refused-bg: #fae0dd;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14181b; --card: #1c2226; --ink: #e6eaec; --soft: #94a1a9; --line: #313a40; --focus: #7aa7ff;
    --valid: #6fdca0; --valid-bg: #17382a; --unavailable: #f0c05a; --unavailable-bg: #3b2f12;
    --refused: #ff9a90; --refused-bg: #432120;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
header {
  position: sticky; top: 0; z-index: 2; padding: 14px 24px; background: var(--paper);
  border-bottom: 1px solid var(--line); display: flex; flex-wrap: wrap; gap: 10px 20px; align-items: center;
}
h1 { font-size: 18px; margin: 0; }
h1 small, h2 small { font-weight: 400; color: var(--soft); font-size: 13px; margin-left: 6px; }
input {
  font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: 6px 12px; width: 270px; max-width: 100%;
}
.legend { display: flex; flex-wrap: wrap; gap: 8px; }
button { font: inherit; color: inherit; cursor: pointer; border: 1px solid transparent; }
.key { border-radius: 999px; padding: 3px 12px; }
.key i { font-style: normal; }
.key[aria-pressed=false] { opacity: .45; text-decoration: line-through; }
.valid { color: var(--valid); background: var(--valid-bg); }
.unavailable { color: var(--unavailable); background: var(--unavailable-bg); }
.refused { color: var(--refused); background: var(--refused-bg); }
:focus-visible { outline: 2px solid var(--focus); outline-offset: 1px; }
main { display: grid; grid-template-columns: minmax(0, 1fr) 360px; gap: 24px; padding: 20px 24px 60px; }
section {
  background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 14px 18px 18px;
  margin-bottom: 18px;
}
h2 { font-size: 16px; margin: 0 0 8px; }
.scroll { overflow-x: auto; padding: 2px; }
table { border-collapse: separate; border-spacing: 3px; }
th { font-weight: 500; text-align: left; white-space: nowrap; padding: 2px 10px 2px 0; font-size: 14px; }
thead th { text-align: center; padding: 0 6px 4px; color: var(--soft); font-size: 13px; }
tbody th { position: sticky; left: 0; background: var(--card); }
td { padding: 0; }
.cell { width: 100%; min-width: 62px; height: 30px; border-radius: 6px; }
.cell:hover { border-color: currentColor; }
.cell[aria-current] { border-color: currentColor; box-shadow: inset 0 0 0 1px currentColor; }
.cell.off { opacity: .12; }
aside {
  position: sticky; top: 84px; align-self: start; background: var(--card); border: 1px solid var(--line);
  border-radius: 12px; padding: 16px 18px; max-height: calc(100vh - 110px); overflow: auto;
}
aside p { margin: 0 0 8px; }
aside ul { margin: 4px 0 12px; padding-left: 18px; }
aside li { margin-bottom: 6px; overflow-wrap: anywhere; }
aside h3 { font-size: 13px; color: var(--soft); margin: 12px 0 0; font-weight: 600; }
aside dl { display: grid; grid-template-columns: auto 1fr; gap: 0 12px; margin: 0 0 12px; }
dt { color: var(--soft); }
dd { margin: 0; font-weight: 600; overflow-wrap: anywhere; }
.state { display: inline-block; border-radius: 999px; padding: 2px 12px; }
code {
  display: block; font: 12.5px/1.5 ui-monospace, monospace; background: var(--paper); border: 1px solid var(--line);
  border-radius: 8px; padding: 8px 10px; white-space: pre; overflow-x: auto; margin-top: 4px;
}
.soft { color: var(--soft); }
[hidden] { display: none !important; }
@media (max-width: 900px) {
  main { grid-template-columns: minmax(0, 1fr); padding: 14px; }
  aside { position: sticky; top: auto; bottom: 10px; order: 2; max-height: 45vh; box-shadow: 0 6px 24px #0003; }
  header { padding: 12px 14px; position: static; }
}
@media print { header { position: static; } aside, input { display: none; } main { display: block; } }
</style>
</head>
<body>
<header>
  <h1>What works with what <small><!--TOTAL--> combinations</small></h1>
  <input id="filter" type="search" placeholder="filter by name, e.g. cuda bf16" aria-label="filter by name">
  <div class="legend" role="group" aria-label="states">
<!--LEGEND-->
  </div>
</header>
<main>
  <div>
<!--SECTIONS-->
    <p class="soft" id="none" hidden>No plugin has such a name.</p>
  </div>
  <aside id="detail" aria-live="polite">
    <p><b>Choose a cell</b> to see why it is what it is.</p>
    <p class="soft">Plugins are held against each other here. What a run asks for on top (several devices, clipping, a
    notebook) is checked by <i>explain</i> and by the Trainer.</p>
  </aside>
</main>
<script type="application/json" id="data">/*DATA*/</script>
<script>
"use strict";
const { texts, meanings } = JSON.parse(document.getElementById("data").textContent);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const make = (tag, text = "", name = "") =>
  Object.assign(document.createElement(tag), { textContent: text, className: name });
const lines = numbers => numbers ? numbers.split(" ").map(n => texts[n]) : [];

function names(cell) {
  return {
    accelerator: cell.closest("section").dataset.name, precision: cell.dataset.p,
    strategy: cell.closest("tr").dataset.name,
  };
}

function list(title, entries) {
  if (!entries.length) return [];
  const ul = make("ul");
  ul.append(...entries.map(entry => make("li", entry)));
  return [make("h3", title), ul];
}

function show(cell) {
  all(".cell[aria-current]").forEach(other => other.removeAttribute("aria-current"));
  cell.setAttribute("aria-current", "true");
  const state = cell.classList[1], chosen = names(cell), dl = make("dl");
  for (const [kind, name] of Object.entries(chosen)) dl.append(make("dt", kind), make("dd", name));
  const options = Object.entries(chosen).map(([kind, name]) => ` \\\\\n  --${kind} ${name}`).join("");
  const badge = make("p");
  badge.append(make("span", state, "state " + state));
  document.getElementById("detail").replaceChildren(
    dl, badge, make("p", meanings[state], "soft"),
    ...list(state === "refused" ? "broken rules" : "missing here", lines(cell.dataset.r)),
    ...list("left to the run", lines(cell.dataset.c)),
    make("h3", "ask for it"), make("code", `python -m core.registry explain${options}`),
  );
}

function filter() {
  const words = document.getElementById("filter").value.toLowerCase().split(/\\s+/).filter(Boolean);
  const known = all("[data-name]").map(element => element.dataset.name.toLowerCase());
  // a word narrows the kind whose names it occurs in; one that occurs nowhere leaves nothing
  const fits = (kind, name) => words.every(word => !kind.some(n => n.includes(word)) || name.includes(word));
  const lower = selector => [...new Set(all(selector).map(e => e.dataset.name.toLowerCase()))];
  const kinds = { a: lower("section"), s: lower("tr[data-name]"), p: lower("thead th") };
  const lost = words.some(word => !known.some(name => name.includes(word)));
  let shown = 0;
  for (const section of all("section")) {
    section.hidden = lost || !fits(kinds.a, section.dataset.name.toLowerCase());
    shown += !section.hidden;
    for (const row of all("tr[data-name]", section)) row.hidden = !fits(kinds.s, row.dataset.name.toLowerCase());
    all("thead th", section).forEach((head, index) => {
      head.hidden = !fits(kinds.p, head.dataset.name.toLowerCase());
      for (const row of all("tbody tr", section)) row.cells[index + 1].hidden = head.hidden;
    });
  }
  document.getElementById("none").hidden = shown > 0;
}

function toggle(key) {
  const on = key.getAttribute("aria-pressed") !== "true";
  key.setAttribute("aria-pressed", on);
  all(".cell." + key.dataset.state).forEach(cell => cell.classList.toggle("off", !on));
}

document.addEventListener("click", event => {
  const cell = event.target.closest(".cell"), key = event.target.closest(".key");
  if (cell) show(cell);
  if (key) toggle(key);
});
document.getElementById("filter").addEventListener("input", filter);
</script>
</body>
</html>
"""
