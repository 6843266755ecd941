// Age by step: how old what was trained had become, beside what the law predicts and the cap allows.
import { html, useMemo } from "./lib.js";
import { Link, go, questionOf, toward } from "./address.js";
import { useAnswer } from "./api.js";
import { Chart } from "./chart.js";
import { clock, number } from "./format.js";
import { Answered, Facts, Swatch, Table, Title } from "./parts.js";

const behind = (step) => toward("/lanes", { step });

export function AgeScreen({ query }) {
  const state = useAnswer(...questionOf("/age", query));
  return html`
    <${Title} sub="Age is counted in optimizer steps: the step that trained a sample, less the policy version when its execution was dispatched (executions), or the version that sampled a token (tokens). A step opens its executions.">
      Age by step<//>
    <${Answered} state=${state} empty=${(found) => !found.steps.length && "No batch is complete yet. Steps appear here as they are trained."}>
      ${(found) => html`<${Curves} found=${found} />`}
    <//>`;
}

function Curves({ found }) {
  const { steps, law, cap } = found;
  const data = useMemo(() => [
    steps.map((one) => one.step), steps.map((one) => one.mean), steps.map((one) => one.oldest), steps.map((one) => one.tokens_mean),
    steps.map((one) => one.tokens_oldest), steps.map(() => law), steps.map(() => cap),
  ], [found]);
  const series = [
    { label: "executions, mean", colour: "--mean", points: true, width: 2 },
    { label: "executions, oldest", colour: "--oldest", points: true },
    { label: "tokens, mean", colour: "--tokens", points: true, width: 2 },
    { label: "tokens, oldest", colour: "--tokens-oldest", points: true },
    { label: "law", colour: "--law", dash: [6, 4] },
    { label: "cap", colour: "--cap", dash: [2, 3] },
  ];
  const known = steps.filter((one) => one.mean !== null);
  const count = known.reduce((sum, one) => sum + one.executions, 0);
  const mean = count ? known.reduce((sum, one) => sum + one.mean * one.executions, 0) / count : null;
  const oldestTokens = Math.max(0, ...steps.map((one) => one.tokens_oldest ?? 0));
  const oldest = Math.max(0, ...steps.map((one) => one.oldest ?? 0));
  const open = (index) => go(behind(steps[index].step));
  return html`
    <section class="card" aria-label="Figures"><${Facts} of=${[
      ["Mean age, executions", number(mean), "Over all executions of these steps"], ["Law predicts", number(law), "φ + (μ − 1)/2, in steady state"],
      ["Oldest execution", number(oldest)], ["Oldest token", html`<span class=${oldestTokens > cap ? "bad" : ""}>${number(oldestTokens)}</span>`],
      ["Hard cap", number(cap)], ["Dropped by age", number(steps.reduce((sum, one) => sum + one.dropped, 0))],
      ["Steps", number(steps.length)], ["Policy version", `v${found.version}`],
    ]} /></section>
    <section class="card" aria-label="Curves">
      <${Chart} label="Age by optimizer step" data=${data} series=${series} open=${open} height=${340} xLabel="optimizer step" yLabel="age, steps"
        say=${(index) => `Step ${steps[index].step}: executions mean ${number(steps[index].mean)}, oldest ${number(steps[index].oldest)}; tokens mean ${number(steps[index].tokens_mean)}, oldest ${number(steps[index].tokens_oldest)}`} />
      <${Table} isFolded caption="Age by step" label="The same as a table, each step a link to its executions" rows=${[...steps].reverse()} id=${(row) => row.step} columns=${[
        { name: "Step", of: (row) => html`<${Link} to=${behind(row.step)}>${row.step}<//>` },
        { name: "Executions", num: true, of: (row) => html`<${Link} to=${toward("/rows", { step: row.step })}>${number(row.executions)}<//>` },
        { name: "Mean", num: true, of: (row) => number(row.mean) },
        { name: "Oldest", num: true, of: (row) => number(row.oldest) },
        { name: "Tokens, mean", num: true, of: (row) => number(row.tokens_mean) },
        { name: "Tokens, oldest", num: true, of: (row) => html`<${Swatch} age=${row.tokens_oldest} cap=${cap}>${number(row.tokens_oldest)}<//>` },
        { name: "Dropped by age", num: true, of: (row) => (row.dropped ? html`<${Link} to=${toward("/rows", { reason: "age" })}>${row.dropped}<//>` : "0") },
        { name: "Batch complete", of: (row) => clock(row.at_s) },
        { name: "", of: (row) => html`<${Link} to=${toward("/origin", { step: row.step })}>where from<//> · <${Link} to=${toward("/lineage", { step: row.step })}>lineage<//>` },
      ]} />
    </section>`;
}
