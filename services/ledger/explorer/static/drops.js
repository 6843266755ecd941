// Drops and fairness: what was lost and why, whether the long ones lose, who waits.
import { html, useMemo } from "./lib.js";
import { Link, go, questionOf, toward } from "./address.js";
import { useAnswer } from "./api.js";
import { Chart } from "./chart.js";
import { clock, number, percent, seconds, visible } from "./format.js";
import { Answered, Facts, Table, Title } from "./parts.js";

const TIER_COLOURS = ["--mean", "--oldest", "--tokens", "--law", "--tokens-oldest", "--training"];

export function DropsScreen({ query }) {
  const state = useAnswer(...questionOf("/drops", query));
  return html`
    <${Title} sub="What left training, what that cost, and whether it hits long executions, one kind of task or one tenant more than others.">Drops and fairness<//>
    <${Answered} state=${state}>${(found) => html`
      <${Reasons} found=${found} />
      <div class="grid2"><${Lengths} of=${found.lengths} /><${Truncated} found=${found} /></div>
      <${Waits} tiers=${found.tiers} />
      <${Shares} shares=${found.shares} />`}
    <//>`;
}

const sum = (rows, name) => rows.reduce((total, row) => total + (row[name] ?? 0), 0);

function Reasons({ found }) {
  const { reasons } = found;
  return html`
    <section class="card" aria-label="Reasons"><h2>Reasons</h2>
      <${Facts} of=${[["Dropped samples", number(sum(reasons, "samples"))], ["Turns lost", number(sum(reasons, "turns"))], ["Tokens lost", number(sum(reasons, "tokens"))], ["Occupancy lost", seconds(sum(reasons, "occupancy_s"))]]} />
      ${reasons.length ? html`<${Table} caption="Drops by reason" rows=${reasons} id=${(row) => row.reason} columns=${[
        { name: "Reason", of: (row) => html`<${Link} to=${toward("/rows", { reason: row.reason, purpose: "all" })}>${visible(row.reason)}<//>` },
        { name: "Means", of: (row) => visible(row.meaning) },
        { name: "Samples", num: true, of: (row) => number(row.samples) }, { name: "Turns", num: true, of: (row) => number(row.turns) },
        { name: "Tokens", num: true, of: (row) => number(row.tokens) }, { name: "Occupancy", num: true, of: (row) => seconds(row.occupancy_s) },
        { name: "Age, mean", num: true, of: (row) => number(row.age_steps_mean) }, { name: "Age, most", num: true, of: (row) => number(row.age_steps_max) },
        { name: "Waited, mean", num: true, of: (row) => seconds(row.waited_s_mean) },
      ]} />` : html`<p class="note">Nothing was dropped.</p>`}
    </section>`;
}

function Lengths({ of }) {
  const { edges, trained, dropped } = of;
  const data = useMemo(() => {
    const share = (counts) => { const all = counts.reduce((a, b) => a + b, 0) || 1; return counts.map((count) => count / all); };
    return [edges.slice(0, -1), share(trained), share(dropped)];
  }, [of]);
  const mean = (counts) => {
    const all = counts.reduce((a, b) => a + b, 0);
    return all ? counts.reduce((total, count, at) => total + count * edges[at], 0) / all : null;
  };
  return html`
    <section class="card" aria-label="Length"><h2>Are the long ones dropped more? <small class="note">turns: trained ${number(mean(trained))}, dropped ${number(mean(dropped))}</small></h2>
      ${edges.length ? html`
        <${Chart} label="Length of trained and dropped samples" data=${data} height=${220} xLabel="turns" yLabel="share" series=${[
          { label: "trained", colour: "--mean", step: true, width: 2, say: percent }, { label: "dropped", colour: "--tokens-oldest", step: true, width: 2, say: percent }]} />
        <${Table} isFolded caption="Length" label="The same as a table" rows=${trained.map((count, at) => ({ at, from: edges[at], to: edges[at + 1] - 1, count }))} columns=${[
          { name: "Turns", of: (row) => (row.to > row.from ? `${row.from}–${row.to}` : row.from) }, { name: "Trained", num: true, of: (row) => number(row.count) },
          { name: "Dropped", num: true, of: (row) => number(dropped[row.at]) },
        ]} />` : html`<p class="note">Nothing was trained or dropped yet.</p>`}
    </section>`;
}

function Truncated({ found }) {
  const { truncated, line } = found;
  const data = useMemo(() => [truncated.map((one) => one.step), truncated.map((one) => one.share), truncated.map(() => line)], [found]);
  return html`
    <section class="card" aria-label="Truncated share"><h2>Truncated share against its line</h2>
      ${truncated.length ? html`
        <${Chart} label="Truncated share by step" data=${data} height=${220} xLabel="optimizer step" yLabel="share" open=${(index) => go(toward("/rows", { step: truncated[index].step }))} series=${[
          { label: "truncated", colour: "--oldest", points: true, say: percent }, { label: "line", colour: "--cap", dash: [2, 3], say: percent }]} />
        <${Table} isFolded caption="Truncated share by step" label="The same as a table, each step a link to its executions" rows=${[...truncated].reverse()} id=${(row) => row.step} columns=${[
          { name: "Step", of: (row) => html`<${Link} to=${toward("/rows", { step: row.step })}>${row.step}<//>` }, { name: "Samples", num: true, of: (row) => number(row.samples) },
          { name: "Truncated", num: true, of: (row) => html`<span class=${row.share > line ? "bad" : ""}>${percent(row.share)}</span>` },
        ]} />` : html`<p class="note">Nothing was trained yet.</p>`}
    </section>`;
}

function Waits({ tiers }) {
  const names = Object.keys(tiers);
  const data = useMemo(() => {
    const times = [...new Set(names.flatMap((name) => tiers[name].map((one) => one.at_s)))].sort((a, b) => a - b);
    return [times, ...names.map((name) => { const at = new Map(tiers[name].map((one) => [one.at_s, one.wait_s_mean])); return times.map((time) => at.get(time) ?? null); })];
  }, [tiers]);
  if (!names.length) return html`<section class="card" aria-label="Queue wait"><h2>Queue wait by tier</h2><p class="note">Nothing was dispatched yet.</p></section>`;
  const rows = names.flatMap((name) => tiers[name].map((one) => ({ tier: name, ...one })));
  const open = (index) => go(toward("/rows", { to: (data[0][index + 1] ?? data[0][index] + 1).toFixed(2), from: (data[0][index] - 1).toFixed(2) }));
  return html`
    <section class="card" aria-label="Queue wait"><h2>Queue wait by tier <small class="note">${number(sum(rows, "promotions"))} promotions by aging</small></h2>
      <${Chart} label="Mean queue wait by tier over time" data=${data} isTime=${true} height=${220} yLabel="seconds" xName=${clock} open=${open}
        series=${names.map((name, at) => ({ label: visible(name), colour: TIER_COLOURS[at % TIER_COLOURS.length], points: true, say: seconds }))} />
      <${Table} isFolded caption="Queue wait by tier" label="The same as a table" rows=${rows} columns=${[
        { name: "Tier", of: (row) => html`<${Link} to=${toward("/rows", { tier: row.tier })}>${visible(row.tier)}<//>` }, { name: "From", of: (row) => clock(row.at_s) }, { name: "Groups", num: true, of: (row) => number(row.groups) },
        { name: "Wait, mean", num: true, of: (row) => seconds(row.wait_s_mean) }, { name: "Wait, longest", num: true, of: (row) => seconds(row.wait_s_max) }, { name: "Promotions", num: true, of: (row) => number(row.promotions) },
      ]} />
    </section>`;
}

function Shares({ shares }) {
  return html`
    <section class="card" aria-label="Who gets what"><h2>Who gets what</h2>
      ${shares.length ? html`<${Table} caption="By tenant and type of task" rows=${shares} columns=${[
        { name: "Tenant", of: (row) => visible(row.tenant) },
        { name: "Type of task", of: (row) => html`<${Link} to=${toward("/rows", { tenant: row.tenant, task_type: row.task_type })}>${visible(row.task_type)}<//>` },
        { name: "Groups", num: true, of: (row) => number(row.groups) }, { name: "Wait, mean", num: true, of: (row) => seconds(row.wait_s_mean) }, { name: "Wait, longest", num: true, of: (row) => seconds(row.wait_s_max) },
        { name: "Promotions", num: true, of: (row) => number(row.promotions) }, { name: "Trained", num: true, of: (row) => number(row.trained) }, { name: "Dropped", num: true, of: (row) => number(row.dropped) },
        { name: "Dropped share", num: true, of: (row) => percent(row.trained + row.dropped ? row.dropped / (row.trained + row.dropped) : null) },
      ]} />` : html`<p class="note">Nothing was dispatched yet.</p>`}
    </section>`;
}
