// Swim-lanes: time × policy version at dispatch; one bar an execution, from its first token to its gradient.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./lib.js";
import { Link, addressOf, change, go, questionOf, sampleAddress, toward } from "./address.js";
import { useAnswer } from "./api.js";
import { Picture, barAt, draw, footOf, prepare, scales } from "./canvas.js";
import { filtersOf } from "./filters.js";
import { clock, number, seconds } from "./format.js";
import { AgeLegend, Answered, Swatch, Table, Title } from "./parts.js";

const ADDRESS_MS = 250; // after the last movement the view's place goes into the address
const STEP = 0.2; // of the view, an arrow key

export function LanesScreen({ query, session }) {
  const filters = filtersOf(query);
  const [name, wanted] = questionOf("/lanes", query);
  const state = useAnswer(name, wanted);
  return html`
    <${Title} sub="A band holds what was dispatched at one policy version. Thick: first token to ending, split where the serving version changed; thin: waiting for its gradient. Colour is the age of what was sampled, when it was trained (else now)."
      side=${html`<span class="buttons"><a href=${addressOf("/api/export/perfetto.json", wanted)} download>Perfetto</a> · <a href=${addressOf("/api/export/rows.jsonl", wanted)} download>JSON lines</a> · <${Link} to=${toward("/rows", filters)}>Rows<//></span>`}>
      Swim-lanes<//>
    <${Answered} state=${state} empty=${(found) => !found.bars.sample.length && "No execution fits these filters. Executions appear here when they are leased."}>
      ${(found) => html`<${Lanes} found=${found} query=${query} cap=${session.age_cap ?? 6} />`}
    <//>`;
}

function viewOf(text, whole) {
  const numbers = (text ?? "").split(",").map(Number);
  if (numbers.length !== 4 || numbers.some((one) => !Number.isFinite(one)) || numbers[1] <= numbers[0] || numbers[3] <= numbers[2]) return { ...whole };
  return { x0: numbers[0], x1: numbers[1], y0: numbers[2], y1: numbers[3] };
}

function Lanes({ found, query, cap }) {
  const data = useMemo(() => prepare(found, cap), [found, cap]);
  const canvas = useRef(null);
  const view = useRef(null);
  const state = useRef({ lit: -1, timer: null, frame: 0, drag: null });
  const [hovered, hover] = useState(null);
  const [inView, look] = useState([]);
  const height = Math.max(360, Math.min(760, innerHeight - 300));

  const size = () => ({ width: canvas.current.clientWidth, height, ratio: devicePixelRatio || 1 });
  const paint = () => {
    state.current.frame = 0;
    const now = size();
    const node = canvas.current;
    if (node.width !== Math.round(now.width * now.ratio) || node.height !== Math.round(height * now.ratio)) {
      node.width = Math.round(now.width * now.ratio);
      node.height = Math.round(height * now.ratio);
    }
    draw(node.getContext("2d", { alpha: false }), data, view.current, now, state.current.lit, state.current.drag?.picture);
    node.dataset.drawn = String(Number(node.dataset.drawn ?? 0) + 1);
  };
  const repaint = () => { state.current.frame = state.current.frame || requestAnimationFrame(paint); };
  const settle = () => {
    clearTimeout(state.current.timer);
    state.current.timer = setTimeout(() => {
      const { x0, x1, y0, y1 } = view.current;
      const isWhole = ["x0", "x1", "y0", "y1"].every((name) => Math.abs(view.current[name] - data.whole[name]) < 1e-6);
      const said = isWhole ? null : [x0.toFixed(2), x1.toFixed(2), y0.toFixed(1), y1.toFixed(1)].join(",");
      change({ view: said });
      look(barsIn(data, viewOf(said, data.whole))); // as whoever is given the address sees it
    }, ADDRESS_MS);
  };
  const move = (next) => { view.current = next; repaint(); settle(); };
  const shift = (dx, dy) => {
    const { x0, x1, y0, y1 } = view.current;
    move({ x0: x0 + dx, x1: x1 + dx, y0: y0 + dy, y1: y1 + dy });
  };
  const zoom = (byX, byY, fx = 0.5, fy = 0.5) => {
    const { x0, x1, y0, y1 } = view.current;
    const cx = x0 + (x1 - x0) * fx, cy = y0 + (y1 - y0) * fy;
    const next = { x0: cx - (cx - x0) * byX, x1: cx + (x1 - cx) * byX, y0: cy - (cy - y0) * byY, y1: cy + (y1 - cy) * byY };
    if (next.x1 - next.x0 > 1e-3 && next.y1 - next.y0 > 1) move(next);
  };
  const fit = () => move({ ...data.whole });

  useLayoutEffect(() => {
    view.current = viewOf(query.view, data.whole);
    state.current.lit = -1;
    paint();
    look(barsIn(data, view.current));
    performance.mark("lanes-drawn");
  }, [data]);
  useEffect(() => {
    const sized = new ResizeObserver(repaint);
    sized.observe(canvas.current);
    addEventListener("gyre-theme", repaint);
    return () => {
      sized.disconnect();
      removeEventListener("gyre-theme", repaint);
      cancelAnimationFrame(state.current.frame);
      clearTimeout(state.current.timer);
    };
  }, [data]);

  const open = (bar) => bar >= 0 && go(sampleAddress(data.bars.sample[bar]));
  const light = (bar, x, y) => {
    if (bar !== state.current.lit) { state.current.lit = bar; repaint(); }
    hover(bar >= 0 ? { bar, x, y } : null);
  };
  const at = (event) => barAt(data, view.current, size(), event.offsetX, event.offsetY);
  const press = (event) => { state.current.drag = { x: event.clientX, y: event.clientY, from: { ...view.current }, far: false }; canvas.current.setPointerCapture(event.pointerId); };
  const drag = (event) => {
    const { drag: from } = state.current;
    if (!from) {
      const bar = at(event);
      canvas.current.classList.toggle("pointing", bar >= 0);
      light(bar, event.offsetX, event.offsetY);
      return;
    }
    const dx = event.clientX - from.x, dy = event.clientY - from.y;
    from.far = from.far || Math.hypot(dx, dy) > 4;
    from.picture = from.picture ?? new Picture(data, size());
    if (!from.far) return;
    canvas.current.classList.add("dragging");
    hover(null);
    const { perX, perY } = scales(data, from.from, size());
    const { x0, x1, y0, y1 } = from.from;
    move({ x0: x0 - dx / perX, x1: x1 - dx / perX, y0: y0 - dy / perY, y1: y1 - dy / perY });
  };
  const release = (event) => {
    const { drag: from } = state.current;
    state.current.drag = null;
    canvas.current.classList.remove("dragging");
    if (from?.far) repaint();
    else if (from) open(at(event));
  };
  const wheel = (event) => {
    event.preventDefault();
    const by = Math.exp(Math.max(-60, Math.min(60, event.deltaY)) / 240);
    const fx = (event.offsetX - 54) / (size().width - 54), fy = (event.offsetY - 24) / (height - 24 - footOf(data));
    if (event.shiftKey) zoom(1, by, fx, fy);
    else zoom(by, event.ctrlKey ? by : 1, fx, fy);
  };
  useEffect(() => {
    const node = canvas.current; // a listener of its own: the page must not scroll while the view zooms
    node.addEventListener("wheel", wheel, { passive: false });
    return () => node.removeEventListener("wheel", wheel);
  });
  const key = (event) => {
    const { x0, x1, y0, y1 } = view.current;
    const acts = {
      ArrowLeft: () => shift(-(x1 - x0) * STEP, 0), ArrowRight: () => shift((x1 - x0) * STEP, 0), ArrowUp: () => shift(0, -(y1 - y0) * STEP),
      ArrowDown: () => shift(0, (y1 - y0) * STEP), "+": () => zoom(0.7, 1), "=": () => zoom(0.7, 1), "-": () => zoom(1.4, 1), "]": () => zoom(1, 0.7), "[": () => zoom(1, 1.4), Home: fit,
      n: () => next(1), p: () => next(-1), Enter: () => open(state.current.lit),
    };
    if (!(event.key in acts) || event.metaKey || event.ctrlKey || event.altKey) return;
    event.preventDefault();
    acts[event.key]();
  };
  const next = (by) => {
    const bar = (state.current.lit + by + data.count) % data.count;
    const now = size();
    const { perX, perY } = scales(data, view.current, now);
    light(bar, 54 + (data.from[bar] - view.current.x0) * perX, 24 + (data.row[bar] + 1 - view.current.y0) * perY);
  };
  const { bars } = data;
  const cells = [["rollout", "--rollout"], ["training", "--training"], ["changing role", "--changing"]];
  return html`
    <section class="card" aria-label="Swim-lanes">
      <div class="title">
        <${AgeLegend} cap=${cap} />
        <p class="legend">${cells.map(([name, colour]) => html`<span class="swatch" key=${name}><i style=${{ background: `var(${colour})` }}></i>${name}</span>`)}<span>▾ publish</span></p>
        <span class="buttons" role="group" aria-label="View">
          <button onClick=${() => zoom(0.6, 1)} aria-label="Zoom in, time">+ time</button><button onClick=${() => zoom(1.6, 1)} aria-label="Zoom out, time">− time</button>
          <button onClick=${() => zoom(1, 0.6, 0.5, 0)} aria-label="Taller rows">+ rows</button><button onClick=${() => zoom(1, 1.6, 0.5, 0)} aria-label="Thinner rows">− rows</button>
          <button onClick=${fit}>Fit</button>
        </span>
      </div>
      <div class="lanes" style=${{ height: `${height}px` }}>
        <canvas ref=${canvas} style=${{ height: `${height}px` }} tabindex="0" role="application" onKeyDown=${key} onPointerDown=${press} onPointerMove=${drag}
          onPointerUp=${release} onPointerLeave=${() => !state.current.drag && light(-1)} onDblClick=${fit}
          aria-label="Swim-lanes. Arrow keys move, plus and minus zoom in time, brackets zoom rows, Home fits, n and p go from execution to execution, Enter opens one. The executions in view stand in the table below."></canvas>
        ${hovered && hovered.bar < data.count && html`<${Tip} data=${data} at=${hovered} width=${canvas.current?.clientWidth ?? 800} cap=${cap} />`}
      </div>
      <p class="note" role="status">${number(found.shown)} executions${found.cut ? " (the newest; narrow the filters or the time to see older ones)" : ""}, policy version v${found.version}.
        Drag to move, wheel to zoom in time (with Shift: rows), click for the sample.</p>
      <${Table} isFolded label=${`Executions in view, as a table (${inView.length >= 200 ? "the first 200" : inView.length})`} caption="Executions in view" rows=${inView} id=${(bar) => bars.sample[bar]} columns=${[
        { name: "Sample", of: (bar) => html`<${Link} to=${sampleAddress(bars.sample[bar])}>${bars.sample[bar]}<//>` },
        { name: "Age", num: true, of: (bar) => html`<${Swatch} age=${bars.age[bar]} cap=${cap}>${bars.age[bar]}<//>` },
        { name: "Dispatched", num: true, of: (bar) => `v${bars.dispatched[bar]}` },
        { name: "Sampled by", of: (bar) => [...new Set(found.segments.version.slice(data.first[bar], data.first[bar + 1]))].map((one) => `v${one}`).join(", ") },
        { name: "State", of: (bar) => bars.state[bar] },
        { name: "Step", num: true, of: (bar) => number(bars.step[bar]) },
        { name: "First token", of: (bar) => clock(bars.from_s[bar]) },
        { name: "Active", num: true, of: (bar) => seconds(bars.active_s[bar] - bars.from_s[bar]) },
        { name: "Waited after", num: true, of: (bar) => seconds(bars.to_s[bar] - bars.active_s[bar]) },
      ]} />
    </section>`;
}

function barsIn(data, view) {
  const found = [];
  for (let bar = 0; bar < data.count && found.length < 200; bar += 1) {
    if (data.row[bar] + 1 >= view.y0 && data.row[bar] <= view.y1 && data.to[bar] >= view.x0 && data.from[bar] <= view.x1) found.push(bar);
  }
  return found;
}

function Tip({ data, at, width, cap }) {
  const { bars, segments } = data;
  const { bar } = at;
  const sampled = [...new Set(segments.version.slice(data.first[bar], data.first[bar + 1]))].map((one) => `v${one}`).join(" → ");
  return html`
    <div class="tip" role="status" style=${{ left: `${Math.max(0, Math.min(at.x + 14, width - 260))}px`, top: `${at.y + 16}px` }}>
      <b>${bars.sample[bar]}</b> <${Swatch} age=${bars.age[bar]} cap=${cap}>age ${bars.age[bar]}<//><br />
      dispatched at v${bars.dispatched[bar]}${sampled && `, sampled by ${sampled}`}<br />
      ${bars.state[bar]}${bars.step[bar] === null ? "" : ` in step ${bars.step[bar]}`}; ${seconds(bars.active_s[bar] - bars.from_s[bar])} active, ${seconds(bars.to_s[bar] - bars.active_s[bar])} waiting
    </div>`;
}
