// Where the age came from: the versions that went by in each stage of an execution's life, adding up to its age.
import { html, useMemo } from "./lib.js";
import { Link, go, questionOf, sampleAddress, toward } from "./address.js";
import { useAnswer } from "./api.js";
import { Chart } from "./chart.js";
import { number } from "./format.js";
import { Answered, Swatch, Table, Title } from "./parts.js";

const NAMES = {
  queued: "queued", starting: "environment starting", generating: "generating", tools: "in tools", evaluation: "evaluation and tree", group: "waiting for its group", batch: "waiting for its batch",
  trainer: "waiting for the trainer",
};
const COLOURS = { queued: "#7d8896", starting: "#a3afbd", generating: "#2f6fb5", tools: "#4f9fce", evaluation: "#7a4fa3", group: "#c2b280", batch: "#e3a13a", trainer: "#dc5527" };

export function OriginScreen({ query, session }) {
  const state = useAnswer(...questionOf("/origin", query));
  return html`
    <${Title} sub="An execution ages by one with every optimizer step that is done before its own. Here each of these steps is put to the stage that the execution was in when it was done; the stages add up to the age.">
      Where the age came from<//>
    <${Answered} state=${state} empty=${(found) => !found.steps.length && "Nothing was trained yet in these steps."}>
      ${(found) => html`<${Stages} found=${found} cap=${session.age_cap} />`}
    <//>`;
}

function Stages({ found, cap }) {
  const { steps, stages, slowest } = found;
  const data = useMemo(() => {
    // stacked: each curve is the sum of its own stage and those below it; the topmost is drawn first
    const sums = stages.map((_, at) => steps.map((step) => stages.slice(0, at + 1).reduce((sum, stage) => sum + step[stage], 0)));
    return [steps.map((step) => step.step), ...sums.reverse()];
  }, [found]);
  const series = [...stages].reverse().map((stage) => ({ label: NAMES[stage], colour: COLOURS[stage], fill: COLOURS[stage], bars: true, width: 0 }));
  const whole = stages.map((stage) => {
    const count = steps.reduce((sum, step) => sum + step.executions, 0);
    return { stage, mean: steps.reduce((sum, step) => sum + step[stage] * step.executions, 0) / Math.max(count, 1) };
  });
  const total = whole.reduce((sum, one) => sum + one.mean, 0);
  const open = (index) => go(toward("/lanes", { step: steps[index].step }));
  return html`
    <section class="card" aria-label="All of these steps">
      <h2>Of ${number(total)} steps of mean age</h2>
      ${total > 0 && html`<div class="strip" aria-hidden="true">${whole.filter((one) => one.mean > 0).map((one) => html`<span key=${one.stage} style=${{ width: `${(100 * one.mean) / total}%`, background: COLOURS[one.stage] }} title=${NAMES[one.stage]}>${one.mean / total > 0.1 ? NAMES[one.stage] : ""}</span>`)}</div>`}
      ${whole.map((one) => html`<div class="row" key=${one.stage}><span class="swatch"><i style=${{ background: COLOURS[one.stage] }}></i>${NAMES[one.stage]}</span>
        <span class="strip thin"><span style=${{ width: `${total ? (100 * one.mean) / total : 0}%`, background: COLOURS[one.stage] }}></span></span><span>${number(one.mean)}</span></div>`)}
    </section>
    <section class="card" aria-label="By step">
      <h2>By step</h2>
      <${Chart} label="Age by stage and optimizer step" data=${data} series=${series} open=${open} height=${300} xLabel="optimizer step" yLabel="mean age, steps"
        say=${(index) => `Step ${steps[index].step}, mean age ${number(steps[index].age)}: ${stages.filter((stage) => steps[index][stage] > 0).map((stage) => `${NAMES[stage]} ${number(steps[index][stage])}`).join(", ") || "nothing"}`} />
      <p class="note">In the legend a stage's value stands with those below it added, as the bars do; the table has each alone.</p>
      <${Table} isFolded caption="Age by stage and step" label="The same as a table, each step a link to its executions" rows=${[...steps].reverse()} id=${(row) => row.step} columns=${[
        { name: "Step", of: (row) => html`<${Link} to=${toward("/lanes", { step: row.step })}>${row.step}<//>` },
        { name: "Executions", num: true, of: (row) => html`<${Link} to=${toward("/rows", { step: row.step })}>${number(row.executions)}<//>` },
        { name: "Age", num: true, of: (row) => number(row.age) },
        ...stages.map((stage) => ({ name: NAMES[stage], num: true, of: (row) => number(row[stage]) })),
      ]} />
    </section>
    <section class="card" aria-label="The oldest">
      <h2>The oldest of them</h2>
      <${Table} caption="The oldest executions" rows=${slowest} id=${(row) => row.sample} columns=${[
        { name: "Sample", of: (row) => html`<${Link} to=${sampleAddress(row.sample)}>${row.sample}<//>` },
        { name: "Step", num: true, of: (row) => html`<${Link} to=${toward("/lineage", { step: row.step })}>${row.step}<//>` },
        { name: "Age", num: true, of: (row) => html`<${Swatch} age=${row.age} cap=${cap}>${row.age}<//>` },
        ...stages.map((stage) => ({ name: NAMES[stage], num: true, of: (row) => number(row[stage]) })),
      ]} />
    </section>`;
}
