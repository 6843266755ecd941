// Drawing of the swim-lanes: all bars of a page, on one canvas, fast enough to be dragged about.
// World: x in seconds, y in rows. What is drawn depends on how large a row is: hairlines first, gaps and end marks where there is room.
import { AGE_COLOURS, ageColour, clock } from "./format.js";

export const TOP = 24;
export const LEFT = 54;
const CELL = 15;
const FONT = "11px system-ui, sans-serif";
const GAP_ROW_PX = 4; // rows of this height have gaps between them
const MARK_ROW_PX = 7; // and of this one end marks

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// The answer of /api/lanes as arrays that a frame can run through.
export function prepare(found, cap) {
  const { bars, segments, roles } = found;
  const count = bars.sample.length;
  const prepared = {
    ...found, count, cap,
    from: Float64Array.from(bars.from_s), active: Float64Array.from(bars.active_s), to: Float64Array.from(bars.to_s),
    row: Int32Array.from(bars.row), rows: found.bands.reduce((sum, band) => sum + band.rows, 0),
    buckets: AGE_COLOURS.map(() => []), waits: AGE_COLOURS.map(() => []), first: new Int32Array(count + 1),
    cells: [...new Set(roles.map((span) => span.cell))],
  };
  const colour = (age) => AGE_COLOURS.indexOf(ageColour(age, cap));
  let at = 0;
  for (let bar = 0; bar < count; bar += 1) {
    prepared.first[bar] = at;
    const own = bars.segments[bar];
    if (!own && prepared.active[bar] > prepared.from[bar]) prepared.buckets[colour(bars.age[bar])].push(prepared.row[bar], prepared.from[bar], prepared.active[bar]);
    for (let index = 0; index < own; index += 1, at += 1) {
      const end = index === own - 1 ? Math.max(segments.to_s[at], prepared.active[bar]) : segments.to_s[at];
      prepared.buckets[colour(segments.age[at])].push(prepared.row[bar], segments.from_s[at], end);
    }
    if (prepared.to[bar] > prepared.active[bar]) prepared.waits[colour(bars.age[bar])].push(prepared.row[bar], prepared.active[bar], prepared.to[bar]);
  }
  prepared.first[count] = at;
  prepared.buckets = prepared.buckets.map((list) => Float64Array.from(list));
  prepared.waits = prepared.waits.map((list) => Float64Array.from(list));
  prepared.starts = new Int32Array(prepared.rows + 1).fill(count);
  for (let bar = count - 1; bar >= 0; bar -= 1) prepared.starts[prepared.row[bar]] = bar;
  for (let row = prepared.rows - 1; row >= 0; row -= 1) prepared.starts[row] = Math.min(prepared.starts[row], prepared.starts[row + 1]);
  const times = count ? [Math.min(...chunked(prepared.from, Math.min)), Math.max(...chunked(prepared.to, Math.max))] : [found.now_s - 60, found.now_s];
  prepared.whole = { x0: times[0], x1: Math.max(times[1], times[0] + 1e-3), y0: 0, y1: Math.max(prepared.rows, 8) };
  return prepared;
}

function chunked(values, of) {
  const found = [];
  for (let at = 0; at < values.length; at += 4096) found.push(of(...values.subarray(at, at + 4096)));
  return found;
}

export const footOf = (data) => data.cells.length * CELL + 10;

// Which bar stands at a point, −1 for none; rows thinner than the pointer are looked around.
export function barAt(data, view, size, x, y) {
  const { perX, perY } = scales(data, view, size);
  if (x < LEFT || y < TOP || y > size.height - footOf(data)) return -1;
  const time = view.x0 + (x - LEFT) / perX;
  const row = Math.floor(view.y0 + (y - TOP) / perY);
  const reach = Math.max(0, Math.ceil(2 / perY) - 1);
  for (let away = 0; away <= reach; away += 1) {
    for (const at of away ? [row - away, row + away] : [row]) {
      if (at < 0 || at >= data.rows) continue;
      for (let bar = data.starts[at]; bar < data.starts[at + 1]; bar += 1) {
        if (data.from[bar] - 3 / perX <= time && time <= Math.max(data.to[bar], data.active[bar]) + 3 / perX) return bar;
      }
    }
  }
  return -1;
}

export function scales(data, view, size) {
  return { perX: (size.width - LEFT) / (view.x1 - view.x0), perY: (size.height - TOP - footOf(data)) / (view.y1 - view.y0) };
}

// size: {width, height, ratio} in CSS pixels. `picture`: a Picture of the bars to move about instead of drawing them anew, while something is dragged.
export function draw(context, data, view, size, lit, picture = null) {
  const { perX, perY } = scales(data, view, size);
  const { width, height } = size;
  const bottom = height - footOf(data);
  const px = (time) => LEFT + (time - view.x0) * perX;
  const py = (row) => TOP + (row - view.y0) * perY;
  context.setTransform(size.ratio, 0, 0, size.ratio, 0, 0);
  context.fillStyle = style("--card");
  context.fillRect(0, 0, width, height);
  drawBands(context, data, px, py, view, size, bottom);
  context.save();
  context.beginPath();
  context.rect(LEFT, TOP, width - LEFT, bottom - TOP);
  context.clip();
  drawPublishes(context, data, px, TOP, bottom, width);
  if (picture) picture.put(context, view);
  else drawBars(context, data, view, px, py, perX, perY);
  if (lit >= 0 && lit < data.count) {
    context.strokeStyle = style("--ink");
    context.lineWidth = 2;
    context.strokeRect(px(data.from[lit]) - 2, py(data.row[lit]) - 1, Math.max((data.to[lit] - data.from[lit]) * perX, 2) + 4, Math.max(perY, 3) + 2);
  }
  context.restore();
  drawRoles(context, data, px, bottom + 6, width);
  drawAxis(context, view, px, width);
}

// The bars of a view and as much again around it, drawn once: dragging only moves the picture, until its edge comes near.
export class Picture {
  constructor(data, size) {
    this.data = data;
    this.size = size;
    this.canvas = document.createElement("canvas");
    this.of = null;
  }

  put(context, view) {
    const { perX, perY } = scales(this.data, view, this.size);
    const width = this.size.width - LEFT;
    const height = this.size.height - TOP - footOf(this.data);
    const at = () => ({ x: (this.of.x0 - view.x0) * perX, y: (this.of.y0 - view.y0) * perY });
    const same = (one, other) => Math.abs(one / other - 1) < 1e-4;
    const isInside = this.of && same(this.of.perX, perX) && same(this.of.perY, perY) && at().x <= 0 && at().y <= 0 && at().x >= -width && at().y >= -height;
    if (!isInside) this.take(view, perX, perY, width, height);
    const { x, y } = at();
    context.drawImage(this.canvas, LEFT + x, TOP + y, 2 * width, 2 * height);
  }

  take(view, perX, perY, width, height) {
    const { ratio } = this.size;
    this.canvas.width = Math.ceil(2 * width * ratio);
    this.canvas.height = Math.ceil(2 * height * ratio);
    const around = { x0: view.x0 - width / 2 / perX, x1: view.x1 + width / 2 / perX, y0: view.y0 - height / 2 / perY, y1: view.y1 + height / 2 / perY };
    this.of = { ...around, perX, perY };
    const context = this.canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    drawBars(context, this.data, around, (time) => (time - around.x0) * perX, (row) => (row - around.y0) * perY, perX, perY);
  }
}

function drawBars(context, data, view, px, py, perX, perY) {
  const gap = perY >= GAP_ROW_PX ? 1 : 0;
  const thick = Math.max(perY - gap, 1);
  context.globalAlpha = 0.45;
  fill(context, data.waits, view, px, py, perX, perY * 0.36, Math.max(thick * 0.28, 1));
  context.globalAlpha = 1;
  fill(context, data.buckets, view, px, py, perX, gap / 2, thick);
  if (perY >= MARK_ROW_PX) drawEnds(context, data, view, px, py, perY);
}

// Older colours over fresher ones, so that where rows are thinner than a pixel the old are what is seen. Rectangles on whole pixels, which are
// several times faster than blended edges.
function fill(context, buckets, view, px, py, perX, below, thick) {
  const height = Math.max(1, Math.round(thick));
  for (let colour = 0; colour < buckets.length; colour += 1) {
    const list = buckets[colour];
    context.fillStyle = AGE_COLOURS[colour];
    for (let at = 0; at < list.length; at += 3) {
      const row = list[at];
      if (row + 1 < view.y0 || row > view.y1 || list[at + 2] < view.x0 || list[at + 1] > view.x1) continue;
      const left = Math.round(px(list[at + 1]));
      context.fillRect(left, Math.round(py(row) + below), Math.max(Math.round(px(list[at + 2])) - left, 1), height);
    }
  }
}

function drawEnds(context, data, view, px, py, perY) {
  const { state } = data.bars;
  const marks = { trained: style("--ink"), dropped: style("--bad") };
  for (let bar = 0; bar < data.count; bar += 1) {
    const row = data.row[bar];
    if (row + 1 < view.y0 || row > view.y1 || data.to[bar] < view.x0 || data.to[bar] > view.x1 || !(state[bar] in marks)) continue;
    context.fillStyle = marks[state[bar]];
    const x = px(data.to[bar]);
    if (state[bar] === "trained") context.fillRect(x - 2, py(row) + 1, 2, perY - 2);
    else { context.fillRect(x - 4, py(row) + perY / 2 - 1, 8, 2); context.fillRect(x - 1, py(row) + perY / 2 - 4, 2, 8); }
  }
}

function drawBands(context, data, px, py, view, size, bottom) {
  context.font = FONT;
  context.textBaseline = "middle";
  const soft = style("--soft");
  const grid = style("--grid");
  let free = TOP;
  for (const band of data.bands) {
    if (band.first_row + band.rows < view.y0 || band.first_row > view.y1) continue;
    const top = Math.max(TOP, py(band.first_row));
    const end = Math.min(bottom, py(band.first_row + band.rows));
    context.fillStyle = grid;
    context.fillRect(0, Math.round(top), size.width, 1);
    const middle = Math.max((top + end) / 2, top + 7);
    if (middle >= free && middle <= bottom - 5) {
      context.fillStyle = soft;
      context.textAlign = "right";
      context.fillText(`v${band.version}`, LEFT - 10, middle);
      free = middle + 14;
    }
  }
}

function drawPublishes(context, data, px, top, bottom, width) {
  context.fillStyle = style("--mark");
  context.font = FONT;
  context.textAlign = "left";
  let free = 0;
  for (const one of data.published) {
    const x = Math.round(px(one.at_s));
    if (x < LEFT || x > width) continue;
    context.fillRect(x, top, 1, bottom - top);
    if (x >= free) { context.fillText(`▾${one.version}`, x + 3, top + 8); free = x + 34; }
  }
}

function drawRoles(context, data, px, top, width) {
  const colours = { rollout: style("--rollout"), training: style("--training"), changing: style("--changing") };
  const soft = style("--soft");
  context.font = FONT;
  context.textBaseline = "middle";
  for (const span of data.roles) {
    const y = top + data.cells.indexOf(span.cell) * CELL;
    const begin = Math.max(px(span.from_s), LEFT);
    const end = Math.min(px(span.to_s), width);
    if (end <= begin) continue;
    context.fillStyle = colours[span.role];
    context.fillRect(begin, y + 2, Math.max(end - begin, 1), CELL - 4);
  }
  data.cells.forEach((cell, index) => {
    context.fillStyle = soft;
    context.textAlign = "right";
    context.fillText(cell.length > 8 ? `…${cell.slice(-7)}` : cell, LEFT - 8, top + index * CELL + CELL / 2);
  });
}

const TICKS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400];

function drawAxis(context, view, px, width) {
  const aim = ((view.x1 - view.x0) * 110) / (width - LEFT);
  const every = TICKS.find((one) => one >= aim) ?? Math.ceil(aim / 86400) * 86400;
  context.fillStyle = style("--soft");
  context.font = FONT;
  context.textAlign = "left";
  context.textBaseline = "middle";
  for (let time = Math.ceil(view.x0 / every) * every; time <= view.x1; time += every) {
    context.fillRect(Math.round(px(time)), TOP - 5, 1, 5);
    context.fillText(every < 1 ? `${clock(time)}${(time % 1).toFixed(1).slice(1)}` : clock(time), px(time) + 4, TOP - 11);
  }
}
