"use strict";
// The tree is drawn as it is unfolded: a page of sixty layers holds no more rows than one looks at.
(() => {
  const root = document.documentElement, button = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const paint = (theme) => { root.dataset.theme = theme; button.textContent = theme === "dark" ? "Light" : "Dark"; };
  paint(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => paint(dark.matches ? "dark" : "light"));
  button.addEventListener("click", () => paint(root.dataset.theme === "dark" ? "light" : "dark"));

  const model = JSON.parse(document.getElementById("model").textContent);
  const tree = document.getElementById("tree"), search = document.getElementById("search");
  const [NAME, OP, SCOPE, INS, OUTS, COST, LINE, ATTRS] = [0, 1, 2, 3, 4, 5, 6, 7];
  let metric = 0;

  const element = (tag, cls, text) => {
    const made = document.createElement(tag);
    if (cls) made.className = cls;
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const scale = (number, steps, units) => {
    let k = 0;
    while (number >= steps && k < units.length - 1) { number /= steps; k++; }
    return (k ? number.toPrecision(3) : number) + units[k];
  };
  const shown = (number, what) => !number ? "–" : what === 1 ? scale(number, 1024, [" B", " KiB", " MiB", " GiB", " TiB"])
    : scale(number, 1000, ["", " k", " M", " G", " T"]);

  // Scopes as a tree: each knows its children in program order and the sum of what is in it.
  const top = { name: "", children: [], byName: new Map(), cost: [0, 0, 0], count: 0 };
  const homes = [];
  model.calls.forEach((call, index) => {
    let place = top;
    const walk = [top];
    for (const part of model.scopes[call[SCOPE]]) {
      let next = place.byName.get(part);
      if (!next) {
        next = { name: part, children: [], byName: new Map(), cost: [0, 0, 0], count: 0, up: place };
        place.byName.set(part, next);
        place.children.push(next);
      }
      walk.push(place = next);
    }
    place.children.push(index);
    homes[index] = place;
    for (const scope of walk) { scope.count++; call[COST].forEach((number, i) => { scope.cost[i] += number; }); }
  });
  const makers = new Map();
  const readers = new Map();
  model.calls.forEach((call, index) => {
    for (const value of call[OUTS]) makers.set(value, index);
    for (const value of call[INS]) readers.set(value, [...(readers.get(value) || []), index]);
  });

  function item(child, depth) {
    const call = typeof child === "number" ? model.calls[child] : null;
    const made = element("li");
    made.setAttribute("role", "treeitem");
    made.setAttribute("aria-level", depth + 1);
    made.setAttribute("aria-expanded", "false");
    made.tabIndex = -1;
    made.child = child;
    made.depth = depth;
    const row = element("div", "row");
    row.style.setProperty("--d", depth);
    const name = element("div", "name");
    name.append(element("span", "turn", "›"));
    if (call) {
      name.append(element("span", "op", model.ops[call[OP]]), element("span", "mono dim", call[NAME].split("/").pop()));
    } else {
      name.append(element("span", "op mono", child.name), element("span", "dim", child.count + (child.count > 1 ? " calls" : " call")));
    }
    const first = call && call[OUTS].length ? model.types[model.values[call[OUTS][0]][1]] : "";
    row.append(name, element("div", "shape mono", first));
    const gauge = element("div", "gauge");
    gauge.append(element("i"));
    row.append(gauge, element("div", "figure"));
    row.title = call ? call[NAME] : child.name;
    made.append(row);
    measure(made);
    return made;
  }
  function measure(made) {
    const cost = typeof made.child === "number" ? model.calls[made.child][COST] : made.child.cost;
    const beside = (typeof made.child === "number" ? homes[made.child] : made.child.up).children;
    const most = beside.most || (beside.most = [0, 1, 2].map((i) => Math.max(0, ...beside.map((other) =>
      (typeof other === "number" ? model.calls[other][COST] : other.cost)[i]))));
    const share = most[metric] ? cost[metric] / most[metric] : 0;
    made.querySelector(".gauge i").style.width = (100 * share).toFixed(2) + "%";
    made.querySelector(".figure").textContent = shown(cost[metric], metric);
  }
  function unfold(made, open) {
    if ((made.getAttribute("aria-expanded") === "true") === open) return;
    made.setAttribute("aria-expanded", open);
    if (!open) { made.lastElementChild.remove(); return; }
    if (typeof made.child === "number") { made.append(facts(made.child, made.depth)); return; }
    const list = element("ul");
    list.setAttribute("role", "group");
    fill(list, made.child.children, made.depth + 1);
    made.append(list);
  }
  function fill(list, children, depth) {
    const step = 300;
    const add = (from) => {
      for (const child of children.slice(from, from + step)) list.append(item(child, depth));
      if (children.length <= from + step) return;
      const more = element("li", "more");
      const go = element("button", "", `Show ${Math.min(step, children.length - from - step)} more of ${children.length}`);
      go.addEventListener("click", () => { more.remove(); add(from + step); });
      more.append(go);
      list.append(more);
    };
    add(0);
  }
  function facts(index, depth) {
    const call = model.calls[index], made = element("div", "facts"), list = element("dl");
    made.style.setProperty("--d", depth);
    const add = (label, ...parts) => { const said = element("dd"); said.append(...parts); list.append(element("dt", "", label), said); };
    const value = (id, jump) => {
      const line = element("div"), [name, type] = model.values[id];
      if (jump !== undefined) {
        const go = element("button", "mono", name);
        go.addEventListener("click", (event) => { event.stopPropagation(); reveal(jump); });
        line.append(go);
      } else line.append(element("code", "", name));
      line.append(" ", element("span", "mono dim", model.types[type]));
      return line;
    };
    add("name", element("code", "", call[NAME]));
    if (call[LINE]) add("line", element("code", "", call[LINE]));
    if (call[INS].length) add("reads", ...call[INS].map((id) => value(id, makers.get(id))));
    add("gives", ...call[OUTS].map((id) => value(id)));
    const next = [...new Set(call[OUTS].flatMap((id) => readers.get(id) || []))];
    if (next.length) add("read by", ...next.slice(0, 12).map((to) => {
      const line = element("div"), go = element("button", "mono", model.calls[to][NAME]);
      go.addEventListener("click", (event) => { event.stopPropagation(); reveal(to); });
      line.append(go);
      return line;
    }));
    if (call[ATTRS]) add("with", element("code", "", call[ATTRS]));
    add("costs", `${shown(call[COST][0], 0)} operations, ${shown(call[COST][1], 1)} moved, ${shown(call[COST][2], 2)} parameters`);
    made.append(list);
    return made;
  }
  function rows() { return [...tree.querySelectorAll("[role=treeitem]")]; }
  function focus(made) {
    for (const other of tree.querySelectorAll("[tabindex='0']")) other.tabIndex = -1;
    made.tabIndex = 0;
    made.focus({ preventScroll: true });
    made.firstElementChild.scrollIntoView({ block: "nearest" });
  }
  function reveal(index) {
    if (search.value) { search.value = ""; draw(); }
    const path = [];
    for (let at = homes[index]; at && at.up; at = at.up) path.unshift(at);
    let list = tree, found;
    for (const step of [...path, index]) {
      while (!(found = [...list.children].find((entry) => entry.child === step))) {
        const more = list.querySelector(":scope > .more button");
        if (!more) return;
        more.click();
      }
      unfold(found, true);
      list = found.lastElementChild;
    }
    focus(found);
    found.firstElementChild.scrollIntoView({ block: "center" });
  }
  function draw() {
    const wanted = search.value.trim().toLowerCase();
    tree.replaceChildren();
    let children = top.children;
    if (wanted) {
      children = [];
      model.calls.forEach((call, index) => {
        const text = `${call[NAME]} ${model.ops[call[OP]]} ${call[LINE]} ${[...call[INS], ...call[OUTS]].map((id) => model.values[id][0]).join(" ")}`;
        if (text.toLowerCase().includes(wanted)) children.push(index);
      });
    }
    fill(tree, children, 0);
    document.getElementById("found").textContent = wanted ? `${children.length} of ${model.calls.length} calls` : "";
    if (!children.length) tree.append(element("li", "more", "Nothing of that name."));
    const first = tree.querySelector("[role=treeitem]");
    if (first) first.tabIndex = 0;
  }
  tree.addEventListener("click", (event) => {
    const row = event.target.closest(".row");
    if (!row) return;
    const made = row.parentElement;
    focus(made);
    unfold(made, made.getAttribute("aria-expanded") !== "true");
  });
  tree.addEventListener("keydown", (event) => {
    const made = event.target;
    if (made.getAttribute("role") !== "treeitem") return;
    const all = rows(), at = all.indexOf(made), open = made.getAttribute("aria-expanded") === "true";
    const up = made.parentElement.closest("[role=treeitem]");
    const moves = {
      ArrowDown: () => all[at + 1] && focus(all[at + 1]),
      ArrowUp: () => all[at - 1] && focus(all[at - 1]),
      ArrowRight: () => open ? all[at + 1] && focus(all[at + 1]) : unfold(made, true),
      ArrowLeft: () => open ? unfold(made, false) : up && focus(up),
      Home: () => focus(all[0]),
      End: () => focus(all[all.length - 1]),
      Enter: () => unfold(made, !open),
      " ": () => unfold(made, !open),
    };
    if (moves[event.key]) { event.preventDefault(); moves[event.key](); }
  });
  document.querySelectorAll("[name=metric]").forEach((choice) => choice.addEventListener("change", () => {
    metric = Number(choice.value);
    rows().forEach(measure);
  }));
  let waiting;
  search.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(draw, 120); });
  draw();
})();
