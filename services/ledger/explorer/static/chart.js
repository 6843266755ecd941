// A uPlot chart with what a mouse alone would miss: focus, arrow keys, a spoken value, and Enter as the click on a point.
import { html, uPlot, useEffect, useRef, useState } from "./lib.js";

// Hours of a day as everywhere else on these pages; under it the day, where it changes.
const TIMES = [
  [86400, "{YYYY}-{MM}-{DD}", null, null, null, null, null, null, 1], [60, "{HH}:{mm}", "\n{YYYY}-{MM}-{DD}", null, null, null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1], [0.001, "{HH}:{mm}:{ss}.{fff}", null, null, null, null, null, null, 1],
];

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// series: [{label, colour: css variable or colour, width, dash, points, fill, step, bars}], data: [x, ...ys]. `open(index)`: a point was chosen.
export function Chart({ label, data, series, open, say, height = 260, isTime = false, xLabel = "", yLabel = "", xName = (x) => x, yMin = 0, bands, marks = [] }) {
  const box = useRef(null);
  const plot = useRef(null);
  const index = useRef(-1);
  const [spoken, speak] = useState("");
  const [theme, setTheme] = useState(0);
  const now = useRef({});
  now.current = { open, say, data };

  useEffect(() => {
    const changed = () => setTheme((old) => old + 1);
    const system = matchMedia("(prefers-color-scheme: dark)");
    addEventListener("gyre-theme", changed);
    system.addEventListener("change", changed);
    return () => { removeEventListener("gyre-theme", changed); system.removeEventListener("change", changed); };
  }, []);

  useEffect(() => {
    const colour = (name) => (name.startsWith("--") ? style(name) : name);
    const axis = { stroke: style("--soft"), grid: { stroke: style("--grid"), width: 1 }, ticks: { stroke: style("--grid"), size: 4 }, font: "11px system-ui, sans-serif", labelFont: "11px system-ui, sans-serif", labelSize: 18 };
    const made = new uPlot({
      width: box.current.clientWidth, height,
      scales: { x: { time: isTime, ...(series.some((one) => one.bars) ? { range: (_u, low, high) => [(low ?? 0) - 0.6, (high ?? 1) + 0.6] } : {}) }, y: { range: (_u, low, high) => [Math.min(yMin, low ?? 0), (high ?? 1) + Math.max(((high ?? 1) - (low ?? 0)) * 0.08, 1e-9)] } },
      axes: [
        { ...axis, label: xLabel || undefined, ...(isTime ? { values: TIMES } : { incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000] }) },
        { ...axis, label: yLabel || undefined, size: 46 },
      ],
      legend: { live: true, markers: { width: 3 } },
      cursor: { points: { size: 7 }, focus: { prox: 24 }, drag: { x: false, y: false } },
      bands,
      hooks: { drawClear: [(u) => drawMarks(u, marks, colour)] },
      series: [
        { label: xLabel || "time", value: (_u, x) => (x === null || x === undefined ? "–" : xName(x)) },
        ...series.map((one) => ({
          label: one.label, stroke: colour(one.colour), width: one.width ?? 1.5, dash: one.dash, fill: one.fill ? colour(one.fill) : undefined,
          points: { show: one.points ?? false, size: 5, fill: colour(one.colour) }, spanGaps: true,
          paths: one.step ? uPlot.paths.stepped({ align: 1 }) : one.bars ? uPlot.paths.bars({ size: [0.8, 60] }) : undefined,
          value: (_u, y) => (y === null || y === undefined ? "–" : one.say ? one.say(y) : Number(y.toFixed(3)).toString()),
        })),
      ],
    }, data, box.current);
    plot.current = made;
    const click = () => { if (made.cursor.idx !== null && made.cursor.idx !== undefined) now.current.open?.(made.cursor.idx); };
    made.over.addEventListener("click", click);
    const sized = new ResizeObserver(() => made.setSize({ width: box.current.clientWidth, height }));
    sized.observe(box.current);
    return () => { sized.disconnect(); made.destroy(); };
  }, [theme, series.map((one) => one.label).join("|"), height, JSON.stringify(marks)]);

  useEffect(() => { plot.current?.setData(data); }, [data]);

  const press = (event) => {
    const last = data[0].length - 1;
    const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };
    if (event.key === "Enter" && index.current >= 0) { event.preventDefault(); open?.(index.current); return; }
    if (!(event.key in moves) || last < 0) return;
    event.preventDefault();
    const at = index.current >= 0 ? index.current : moves[event.key] > 0 ? -1 : last + 1;
    index.current = Math.max(0, Math.min(last, at + moves[event.key]));
    const u = plot.current;
    u.setCursor({ left: u.valToPos(data[0][index.current], "x"), top: u.over.clientHeight / 3 });
    speak(say ? say(index.current) : `${xName(data[0][index.current])}: ${series.map((one, at) => `${one.label} ${data[at + 1][index.current] ?? "none"}`).join(", ")}`);
  };
  return html`
    <div class=${`chart${open ? " opens" : ""}`} tabindex="0" role="group" aria-roledescription="chart" onKeyDown=${press}
      aria-label=${`${label}. Arrow keys move along it${open ? ", Enter opens the rows behind a point" : ""}. The same values stand in the table below.`}>
      <div ref=${box}></div><p class="unseen" aria-live="polite">${spoken}</p>
    </div>`;
}

function drawMarks(u, marks, colour) {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.strokeStyle = colour("--mark");
  ctx.lineWidth = devicePixelRatio;
  for (const x of marks) {
    const left = Math.round(u.valToPos(x, "x", true));
    if (left < bbox.left || left > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(left, bbox.top);
    ctx.lineTo(left, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}
