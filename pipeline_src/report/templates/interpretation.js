"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const COLOURS = ["var(--model)", "var(--other)", "var(--third)", "var(--fourth)"];
const SVG = "http://www.w3.org/2000/svg";

function element(tag, attributes = {}, ...children) {
  const svg = ["svg", "circle", "rect", "line", "path", "text", "g", "title"].includes(tag);
  const node = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}
function part(name) {
  return document.querySelector(`[data-part="${name}"]`);
}
function choice(label, names, changed) {
  const select = element("select", { onchange: () => changed(select.selectedIndex) });
  names.forEach((name) => select.append(element("option", {}, name)));
  return element("label", {}, label, select);
}
function slider(label, changed) {
  const output = element("output", {});
  const input = element("input", {
    type: "range", min: 0, step: 1,
    oninput: () => { output.textContent = input.value; changed(Number(input.value)); },
  });
  const control = element("label", {}, label, input, output);
  control.set = (value, max) => { input.max = max; input.value = value; output.textContent = value; };
  return control;
}
function checkbox(label, checked, changed) {
  const box = element("input", { type: "checkbox", onchange: () => changed(box.checked) });
  box.checked = checked;
  return element("label", {}, box, label);
}
const percent = (share) => `${(100 * share).toFixed(0)} %`;

function sentencePart() {
  const container = part("sentence");
  if (!container) return;
  const { layers, heads } = data.model;
  const state = { sentence: 0, layer: 0, head: 0, marks: true, row: null };
  const bytes = data.sentences.map((sentence) => Uint8Array.from(atob(sentence.weights), (letter) => letter.charCodeAt(0)));
  const grid = element("div", { class: "heads", role: "group", "aria-label": "Heads by layer" });
  const holder = element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Attention between words" });
  const message = element("p", { class: "message", role: "status" });
  const title = element("h3", {});
  const size = () => data.sentences[state.sentence].words.length;
  const weight = (layer, head, row, column) =>
    bytes[state.sentence][((layer * heads + head) * size() + row) * size() + column] / 255;
  const positions = () => {
    const [before, after] = data.sentences[state.sentence].marks;
    return [...Array(size()).keys()].filter((at) => state.marks || (at >= before && at < size() - after));
  };
  const role = (layer, head) => (data.roles ? data.roles[layer][head] : null);
  function thumbnail(layer, head) {
    const visible = positions();
    const canvas = element("canvas", { width: visible.length, height: visible.length, "aria-hidden": "true" });
    const context = canvas.getContext("2d");
    const rgb = getComputedStyle(document.documentElement).getPropertyValue("--heat");
    visible.forEach((row, y) => visible.forEach((column, x) => {
      context.fillStyle = `rgba(${rgb}, ${weight(layer, head, row, column)})`;
      context.fillRect(x, y, 1, 1);
    }));
    return canvas;
  }
  function drawGrid() {
    grid.replaceChildren();
    for (let layer = 0; layer < layers; layer++) {
      const row = element("div", {}, element("span", {}, `layer ${layer + 1}`));
      for (let head = 0; head < heads; head++) {
        const name = role(layer, head);
        const button = element("button", {
          type: "button", "aria-pressed": String(layer === state.layer && head === state.head),
          "aria-label": `layer ${layer + 1} head ${head + 1}${name ? ", " + name : ""}`,
          onclick: () => {
            grid.querySelectorAll("button").forEach((peer) => peer.setAttribute("aria-pressed", String(peer === button)));
            Object.assign(state, { layer, head }); drawView();
          },
        }, thumbnail(layer, head), element("small", {}, name || "–"));
        row.append(button);
      }
      grid.append(row);
    }
  }
  function drawView() {
    title.textContent = `Layer ${state.layer + 1}, head ${state.head + 1}: from each word on the left to words on the right`;
    drawLines();
  }
  function strongest(row) {
    const order = [...positions()].sort((a, b) => weight(state.layer, state.head, row, b) - weight(state.layer, state.head, row, a));
    const { words } = data.sentences[state.sentence];
    return `“${words[row]}” attends to ${order.slice(0, 3).map((at) => `“${words[at]}” with ${percent(weight(state.layer, state.head, row, at))}`).join(", ")}.`;
  }
  function drawLines() {
    const { words } = data.sentences[state.sentence];
    const visible = positions();
    if (!visible.includes(state.row)) state.row = null;
    const step = 26, left = 128, right = 232;
    const y = (at) => step * visible.indexOf(at) + step / 2;
    const short = (word) => (word.length > 15 ? `${word.slice(0, 14)}…` : word);
    const svg = element("svg", {
      class: "lines", viewBox: `0 0 360 ${step * visible.length}`, role: "group", "aria-label": "Words, and lines to those that they attend to",
    });
    const strokes = new Map(visible.map((row) => [row, element("g", { "aria-hidden": "true" })]));
    const names = new Map();
    function light(row) {
      strokes.forEach((lines, from) => lines.setAttribute("class", row === null ? "" : from === row ? "on" : "off"));
      names.forEach((name, from) => name.setAttribute("class", from === row ? "from on" : "from"));
    }
    function choose(row) {
      names.forEach((name, from) => {
        name.setAttribute("tabindex", from === row ? "0" : "-1");
        name.setAttribute("aria-pressed", String(from === row));
      });
      state.row = row; light(row); message.textContent = strongest(row);
    }
    visible.forEach((row, order) => {
      visible.forEach((column) => {
        const share = weight(state.layer, state.head, row, column);
        if (share >= 0.02) strokes.get(row).append(element("line", {
          x1: left, y1: y(row), x2: right, y2: y(column), "stroke-width": (0.6 + 3 * share).toFixed(2), "stroke-opacity": Math.max(0.12, share).toFixed(2),
        }));
      });
      const name = element("g", {
        role: "button", tabindex: (state.row === null ? !order : row === state.row) ? 0 : -1, "aria-pressed": String(row === state.row), "aria-label": strongest(row),
        onmouseenter: () => { light(row); message.textContent = strongest(row); },
        onmouseleave: () => { light(state.row); if (state.row !== null) message.textContent = strongest(state.row); },
        onfocus: () => choose(row), onclick: () => choose(row),
        onkeydown: (event) => {
          const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
          const next = names.get(visible[order + move]);
          if (next) { event.preventDefault(); next.focus(); }
        },
      }, element("rect", { x: 1, y: y(row) - step / 2 + 1, width: left - 7, height: step - 2, rx: 4 }),
      element("text", { x: left - 12, y: y(row) + 4.5, "text-anchor": "end" }, short(words[row])));
      names.set(row, name);
      svg.append(strokes.get(row), name, element("text", { x: right + 6, y: y(row) + 4.5, "aria-hidden": "true" }, short(words[row])));
    });
    light(state.row);
    holder.replaceChildren(svg);
    message.textContent = state.row === null ? "Point at a word on the left, or choose it; move with the arrow keys." : strongest(state.row);
  }
  const draw = () => { drawGrid(); drawView(); };
  const texts = data.sentences.map(({ words, marks }) => words.slice(marks[0], words.length - marks[1]).join(" "));
  container.append(
    element("div", { class: "controls" },
      choice("Sentence", texts, (at) => { Object.assign(state, { sentence: at, row: null }); draw(); }),
      checkbox("special tokens too", true, (on) => { state.marks = on; draw(); })),
    grid, title, holder, message);
  draw();
}

function wordPart() {
  const container = part("word");
  if (!container) return;
  const names = data.names;
  const state = { word: 0, layer: data.model.layers, chosen: 0 };
  const message = element("p", { class: "message", role: "status" });
  const sides = element("div", { class: "sides" });
  const uses = element("div", { class: "controls" });
  const word = () => data.words[names[state.word]];
  const named = (at) => `${word().texts[at]} (${word().senses[at]})`;
  function keyOf(at) {
    const sense = [...new Set(word().senses)].indexOf(word().senses[at]);
    return element("span", { class: "key", style: `background: ${COLOURS[sense % COLOURS.length]}; border-radius: ${sense % 2 ? "0" : "50%"}` });
  }
  function list(layer) {
    const rows = word().neighbours[layer][state.chosen].map((at) => element("li", {}, keyOf(at), ` ${named(at)}`));
    return element("div", {}, element("h3", {}, `Nearest in layer ${layer}`), element("ol", {}, ...rows));
  }
  function draw() {
    const { accuracy, random } = word();
    message.textContent = `Layer ${state.layer}: the nearest neighbour has the same sense in ${percent(accuracy[state.layer])} of cases; with random weights in ${percent(random[state.layer])}.`;
    sides.replaceChildren(list(state.layer), list(0));
  }
  function change(at) {
    Object.assign(state, { word: at, chosen: 0 });
    uses.replaceChildren(choice("Sentence", word().texts.map((_, use) => named(use)), (use) => { state.chosen = use; draw(); }));
    draw();
  }
  const layer = slider("Layer", (at) => { state.layer = at; draw(); });
  layer.set(state.layer, data.model.layers);
  container.append(element("div", { class: "controls" }, choice("Word", names, change), layer), uses, message, sides);
  change(0);
}

function layersPart() {
  const container = part("layers");
  if (!container) return;
  const state = { measure: 0, hidden: new Set() };
  const plot = element("svg", { class: "plot", viewBox: "0 0 420 270", role: "img" });
  const ticks = element("div", { class: "controls" });
  const note = element("p", { class: "soft" });
  function draw() {
    const measure = data.measures[state.measure];
    const curves = measure.curves.filter((curve) => !state.hidden.has(curve.name));
    const all = measure.curves.flatMap((curve) => [...curve.values, ...curve.between.flat()]);
    const min = Math.min(...all), max = Math.max(...all);
    const step = [0.05, 0.1, 0.2, 0.5, 1, 2, 5].find((size) => (max - min) / size <= 5) ?? 10;
    const low = step * Math.floor(min / step), high = Math.max(low + step, step * Math.ceil(max / step));
    const format = (value) => (measure.factor * value).toFixed(measure.digits);
    const x = (layer) => 44 + (365 * layer) / Math.max(1, measure.curves[0].values.length - 1);
    const y = (value) => 230 - (215 * (value - low)) / (high - low);
    plot.setAttribute("aria-label", `${measure.title} by layer (${measure.unit})`);
    plot.replaceChildren(
      element("line", { class: "axis", x1: 40, x2: 412, y1: 230, y2: 230 }), element("line", { class: "axis", x1: 40, x2: 40, y1: 12, y2: 230 }));
    for (let value = low; value < high + step / 2; value += step) {
      const digits = measure.factor === 1 ? Math.max(0, -Math.floor(Math.log10(step))) : 0;
      plot.append(element("text", { x: 34, y: y(value) + 4, "text-anchor": "end" }, (measure.factor * value).toFixed(digits)));
    }
    measure.curves[0].values.forEach((_, layer) => plot.append(element("text", { x: x(layer), y: 248, "text-anchor": "middle" }, String(layer))));
    plot.append(
      element("text", { x: 225, y: 266, "text-anchor": "middle" }, "layer"),
      element("text", { x: -121, y: 10, transform: "rotate(-90)", "text-anchor": "middle" }, measure.axis));
    for (const curve of curves) {
      const at = measure.curves.indexOf(curve);
      const side = (end) => curve.between.map((ends, layer) => `${x(layer)} ${y(ends[end])}`);
      plot.append(element("path", { d: `M${side(0).concat(side(1).reverse()).join("L")}Z`, fill: COLOURS[at], opacity: 0.14 }));
      const points = curve.values.map((value, layer) => `${layer ? "L" : "M"}${x(layer)} ${y(value)}`).join("");
      plot.append(element("path", { d: points, fill: "none", stroke: COLOURS[at], "stroke-width": 2, "stroke-dasharray": ["", "6 4", "2 3", "8 3 2 3"][at] }));
      curve.values.forEach((value, layer) => plot.append(
        element("circle", { cx: x(layer), cy: y(value), r: 4, fill: COLOURS[at] }, element("title", {}, `${curve.name}, layer ${layer}: ${format(value)} ${measure.unit} (${curve.between[layer].map(format).join(" to ")})`))));
    }
    note.textContent = measure.note;
  }
  function drawTicks() {
    ticks.replaceChildren(...data.measures[state.measure].curves.map((curve, at) => {
      const box = checkbox(curve.name, !state.hidden.has(curve.name), (on) => { state.hidden[on ? "delete" : "add"](curve.name); draw(); });
      box.prepend(element("span", { class: "key", style: `background: ${COLOURS[at]}` }));
      return box;
    }));
  }
  container.append(
    element("div", { class: "controls" }, choice("Measure", data.measures.map((measure) => measure.title), (at) => { state.measure = at; drawTicks(); draw(); })),
    ticks, plot, note);
  drawTicks();
  draw();
}

function completionPart() {
  const container = part("completion");
  if (!container) return;
  const ways = Object.keys(data.completions[0].ways);
  const state = { prompt: 0, way: 0, step: 0 };
  const written = element("p", { class: "written", role: "status" });
  const note = element("p", { class: "soft" });
  const steps = slider("Step", (step) => { state.step = step; draw(); });
  const way = () => data.completions[state.prompt].ways[ways[state.way]];
  function draw() {
    written.replaceChildren(element("b", {}, data.completions[state.prompt].prompt), ` ${way().texts[state.step]}`);
    note.textContent = `${percent(way().repeated)} of the last step's tokens are copies of an earlier one.`;
  }
  const again = () => { state.step = way().texts.length - 1; steps.set(state.step, state.step); draw(); };
  container.append(
    element("div", { class: "controls" },
      choice("Text", data.completions.map((text) => text.prompt), (at) => { state.prompt = at; again(); }),
      choice("Way", ways, (at) => { state.way = at; again(); }), steps),
    written, note);
  again();
}

sentencePart();
wordPart();
layersPart();
completionPart();
