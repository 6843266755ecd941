// Pressure: waterlevel and capacity, backlogs by stage, and what each cell served when.
import { html, useEffect, useMemo, useRef } from "./lib.js";
import { Link, addressOf, go, questionOf, sampleAddress, toward } from "./address.js";
import { useAnswer } from "./api.js";
import { Chart } from "./chart.js";
import { ageColour, clock, number, percent, seconds, visible } from "./format.js";
import { AgeLegend, Answered, Facts, Table, Title } from "./parts.js";

const STAGES = { queued: ["queued", "#7d8896"], running: ["running", "#2f6fb5"], evaluating: ["evaluation and tree", "#7a4fa3"], ready: ["waiting for a batch", "#e3a13a"], closed: ["waiting for the trainer", "#dc5527"] };

export function PressureScreen({ query, session }) {
  const state = useAnswer(...questionOf("/pressure", query));
  return html`
    <${Title} sub="What presses on the cells, what piles up between stages, and which weights each cell served. Over the newest executions in the books.">Pressure<//>
    <${Answered} state=${state}>${(found) => html`
      ${session.is_operator && html`<${Cells} found=${found} lit=${query.cell} cap=${session.age_cap} /><${Water} found=${found} />`}
      <${Backlogs} found=${found} />
      ${session.is_live && session.is_operator && html`<${Streams} />`}
      ${!session.is_operator && html`<p class="note">Waterlevel, capacity and cells are the whole run's; operators see them.</p>`}`}
    <//>`;
}

function Cells({ found, lit, cap }) {
  const { cells, published, from_s: begin, to_s: end } = found;
  const chosen = useRef(null);
  useEffect(() => { chosen.current?.scrollIntoView({ block: "nearest" }); chosen.current?.focus({ preventScroll: true }); }, [lit]);
  if (!cells.length) return html`<section class="card" aria-label="Cells"><h2>Cells</h2><p class="note">No cell has said anything yet.</p></section>`;
  return html`
    <section class="card" aria-label="Cells">
      <div class="title"><h2>Cells: which weights they served, coloured by how many versions behind what was published</h2><${AgeLegend} cap=${cap} name="Versions behind" /></div>
      <div class="cells">${cells.map((cell) => html`
        <div class=${`cellrow${cell.cell === lit ? " lit" : ""}`} key=${cell.cell} ref=${cell.cell === lit ? chosen : undefined} tabindex=${cell.cell === lit ? "-1" : undefined}>
          <div><b>${visible(cell.cell)}</b> ${cell.behind > 0 ? html`<span class="bad">${cell.behind} behind</span>` : ""}
            <small>${cell.role || "no role"}${cell.version === null ? "" : `, last served v${cell.version}`}</small><small>${percent(cell.idle_share)} idle in rollout · ${number(cell.calls)} calls</small></div>
          <${Serving} cell=${cell} roles=${found.roles} published=${published} begin=${begin} end=${end} cap=${cap} />
        </div>`)}</div>
      <p class="note">▾ a publish. Bars: stretches in which the cell sampled with one version; each opens a sample of it. Thin line: its role.</p>
      <${Diagnosis} cells=${cells} newest=${published.at(-1)} lit=${lit} />
      <${Table} isFolded caption="Cells" label="The same as a table" rows=${cells.flatMap((cell) => cell.serving.map((one) => ({ cell, ...one })))} columns=${[
        { name: "Cell", of: (row) => html`<${Link} to=${toward("/lanes", { cell: row.cell.cell })}>${visible(row.cell.cell)}<//>` }, { name: "Version", num: true, of: (row) => `v${row.version}` },
        { name: "Behind", num: true, of: (row) => html`<span class=${row.behind > 0 ? "bad" : ""}>${row.behind}</span>` }, { name: "From", of: (row) => clock(row.from_s) }, { name: "Until", of: (row) => clock(row.to_s) },
        { name: "Calls", num: true, of: (row) => number(row.calls) }, { name: "A sample", of: (row) => html`<${Link} to=${sampleAddress(row.sample)}>${row.sample}<//>` },
      ]} />
      <${Table} isFolded caption="Idleness" label="Seconds by role" rows=${cells} id=${(cell) => cell.cell} columns=${[
        { name: "Cell", of: (cell) => visible(cell.cell) }, { name: "Rollout", num: true, of: (cell) => seconds(cell.rollout_s) }, { name: "of it with a call", num: true, of: (cell) => seconds(cell.busy_s) },
        { name: "Idle share", num: true, of: (cell) => percent(cell.idle_share) }, { name: "Training", num: true, of: (cell) => seconds(cell.training_s) }, { name: "Calls", num: true, of: (cell) => number(cell.calls) }, { name: "Tokens", num: true, of: (cell) => number(cell.tokens) },
      ]} />
    </section>`;
}

// In words what the strips show: a cell whose weights stood still while versions were published, and what it said about that.
function Diagnosis({ cells, newest, lit }) {
  const stuck = cells.filter((cell) => cell.behind > 0);
  const shown = lit ? cells.filter((cell) => cell.cell === lit || cell.behind > 0) : stuck;
  return html`${shown.map((cell) => html`
    <div key=${cell.cell} role=${cell.behind > 0 ? "alert" : undefined}>
      ${cell.behind > 0
        ? html`<p class="bad">${visible(cell.cell)} serves v${cell.version} since ${clock(cell.serving.at(-1).from_s)}${newest ? `, while v${newest.version} was published` : ""}: it stopped taking new weights.</p>`
        : html`<p class="good">${visible(cell.cell)} served what was newest.</p>`}
      ${cell.alarms.slice(0, 3).map((alarm) => html`<p class="note" key=${alarm.at_s}>${clock(alarm.at_s)} alarm ${visible(alarm.kind)}: ${visible(alarm.message, 400)}</p>`)}
    </div>`)}`;
}

const W = 1000;

function Serving({ cell, roles, published, begin, end, cap }) {
  const x = (at) => Math.max(0, Math.min(W, (W * (at - begin)) / Math.max(end - begin, 1e-3)));
  const colour = { rollout: "var(--rollout)", training: "var(--training)", changing: "var(--changing)" };
  return html`
    <svg viewBox=${`0 0 ${W} 44`} preserveAspectRatio="none" role="group" aria-label=${`${cell.cell}: versions served over time`}>
      ${roles.filter((span) => span.cell === cell.cell).map((span) => html`<rect key=${span.from_s} x=${x(span.from_s)} width=${Math.max(x(span.to_s) - x(span.from_s), 0.5)} y="36" height="6" fill=${colour[span.role]}><title>${span.role}</title></rect>`)}
      ${cell.serving.map((one) => { const to = sampleAddress(one.sample); return html`
        <a key=${one.from_s} href=${to} onClick=${(event) => { if (!event.metaKey && !event.ctrlKey) { event.preventDefault(); go(to); } }} aria-label=${`v${one.version} from ${clock(one.from_s)}, ${one.behind} behind, ${one.calls} calls`}>
          <rect x=${x(one.from_s)} width=${Math.max(x(one.to_s) - x(one.from_s), 2)} y="8" height="24" fill=${ageColour(one.behind, cap)} stroke="var(--card)" vector-effect="non-scaling-stroke"><title>v${one.version}, ${one.behind} behind, ${one.calls} calls</title></rect></a>`; })}
      ${published.map((one) => html`<path key=${one.version} d=${`M${x(one.at_s)} 0v44`} stroke="var(--soft)" stroke-width="1" vector-effect="non-scaling-stroke" opacity="0.6"><title>v${one.version} published</title></path>`)}
    </svg>`;
}

function Water({ found }) {
  const { waterlevel, capacity } = found;
  const data = useMemo(() => {
    const times = [...new Set([...waterlevel.map((one) => one.at_s), ...capacity.map((one) => one.at_s)])].sort((a, b) => a - b);
    const held = (rows, name) => { let at = 0, value = null; return times.map((time) => { while (at < rows.length && rows[at].at_s <= time) { value = rows[at][name]; at += 1; } return value; }); };
    return [times, held(waterlevel, "waterlevel"), held(waterlevel, "capacity"), held(capacity, "training"), held(waterlevel, "outstanding_groups")];
  }, [found]);
  if (!waterlevel.length) return null;
  const open = (index) => { const at = data[0][index]; go(toward("/lanes", { to: at.toFixed(2), from: (at - Math.max(5, (found.to_s - found.from_s) / 20)).toFixed(2) })); };
  const every = Math.max(1, Math.floor(waterlevel.length / 200));
  return html`
    <section class="card" aria-label="Waterlevel"><h2>Waterlevel and capacity</h2>
      <${Chart} label="Waterlevel and capacity over time" data=${data} isTime=${true} height=${260} yLabel="executions" xName=${clock} open=${open} series=${[
        { label: "waterlevel (unfinished executions)", colour: "--oldest", step: true, width: 2 }, { label: "rollout capacity", colour: "--rollout", step: true, width: 2 },
        { label: "capacity in training", colour: "--training", step: true }, { label: "outstanding groups", colour: "--soft", step: true, dash: [3, 3] }]} />
      <${Table} isFolded caption="Waterlevel" label="The same as a table" rows=${waterlevel.filter((_, at) => at % every === 0)} columns=${[
        { name: "At", of: (row) => html`<${Link} to=${toward("/lanes", { to: row.at_s.toFixed(2) })}>${clock(row.at_s)}<//>` }, { name: "Waterlevel", num: true, of: (row) => number(row.waterlevel) },
        { name: "Rollout capacity", num: true, of: (row) => number(row.capacity) }, { name: "Outstanding groups", num: true, of: (row) => number(row.outstanding_groups) },
      ]} />
    </section>`;
}

function Backlogs({ found }) {
  const { backlogs } = found;
  const names = Object.keys(STAGES);
  const data = useMemo(() => [backlogs.at_s, ...names.map((name) => backlogs[name])], [found]);
  const newest = names.map((name) => [STAGES[name][0], number(backlogs[name].at(-1) ?? 0)]);
  const every = Math.max(1, Math.floor(backlogs.at_s.length / 60));
  const open = (index) => go(toward("/lanes", { to: data[0][index].toFixed(2) }));
  return html`
    <section class="card" aria-label="Backlogs"><h2>Executions by the stage they are in</h2>
      <${Facts} of=${newest} />
      <${Chart} label="Executions by stage over time" data=${data} isTime=${true} height=${240} yLabel="executions" xName=${clock} open=${open}
        series=${names.map((name) => ({ label: STAGES[name][0], colour: STAGES[name][1], width: 2 }))} />
      <${Table} isFolded caption="Executions by stage" label="The same as a table" rows=${backlogs.at_s.map((at, index) => ({ at, index })).filter((row) => row.index % every === 0)} columns=${[
        { name: "At", of: (row) => html`<a href=${addressOf("/lanes", { to: row.at.toFixed(2) })}>${clock(row.at)}</a>` },
        ...names.map((name) => ({ name: STAGES[name][0], num: true, of: (row) => number(backlogs[name][row.index]) })),
      ]} />
    </section>`;
}

function Streams() {
  const { answer } = useAnswer("backlogs", {});
  if (!answer?.streams) return null;
  return html`
    <section class="card" aria-label="Streams"><h2>What waits on the bus now</h2>
      <${Table} caption="Streams" rows=${answer.streams} id=${(row) => row.stream} columns=${[
        { name: "Stream", of: (row) => visible(row.stream) }, { name: "Messages", num: true, of: (row) => number(row.messages) }, { name: "Bytes", num: true, of: (row) => number(row.bytes) },
      ]} />
    </section>`;
}
