// One sample: what it is, where its time went, what it said token by token, and its place in group and batch.
import { html } from "./lib.js";
import { Link, addressOf, questionOf, sampleAddress, toward } from "./address.js";
import { useAnswer } from "./api.js";
import { clock, moment, number, percent, seconds, steps, versions, visible } from "./format.js";
import { Answered, Facts, Said, Swatch, Table, Title } from "./parts.js";
import { Tokens } from "./tokens.js";
import { Spans } from "./spans.js";

const STAGE = { queued: 0, dispatched: 1, starting: 1, running: 2, tree: 4, "waiting for batch": 5, "waiting for update": 6, trained: 7 };

export function SampleScreen({ query, session }) {
  const state = useAnswer(...questionOf("/sample", query));
  if (!query.sample) return html`<${Title} sub="An address of this screen names one: ?sample=g000012-e3-a1">No sample chosen<//>`;
  return html`<${Answered} state=${state}>${(found) => html`<${Page} found=${found} query=${query} cap=${session.age_cap} key=${found.sample_id} />`}<//>`;
}

function Page({ found, query, cap }) {
  const { training, rewards, versions: sampled, drop, evidence, queue, task, tree } = found;
  const step = training?.step ?? null;
  const oldest = step !== null && sampled.min !== null ? step - sampled.min : null;
  const metrics = training?.metrics ?? {};
  const files = { sample: found.sample_id, purpose: "all" };
  return html`
    <${Title} side=${html`<span class="buttons"><${Link} to=${toward("/lineage", { sample: found.sample_id, purpose: "all" })}>Lineage<//> · <${Link} to=${toward("/lanes", { group: found.group, purpose: "all" })}>Its group in the lanes<//> · <a href=${addressOf("/api/export/perfetto.json", files)} download>Perfetto</a></span>`}
      sub=${html`Attempt ${found.attempt} of ${found.execution}, ${visible(task.task_type)} (${visible(task.task_id)})`}>
      Sample <span class="mono">${found.sample_id}</span><//>
    <section class="card" aria-label="Figures"><${Facts} of=${[
      ["State", html`<span class=${found.state === "dropped" ? "bad" : ""}>${found.state}${drop ? `: ${visible(drop.reason)}` : ""}</span>`],
      ["Step", step === null ? "–" : html`<${Link} to=${toward("/lineage", { step })}>${step}<//>`],
      ["Age", training ? html`<${Swatch} age=${training.staleness_steps} cap=${cap}>${steps(training.staleness_steps)}<//>` : drop ? number(drop.age_steps) : "–", "Dispatch to gradient"],
      ["Oldest token", oldest === null ? "–" : html`<${Swatch} age=${oldest} cap=${cap}><span class=${oldest > cap ? "bad" : ""}>${steps(oldest)}</span><//>`, "Its sampling version to the gradient"],
      ["Dispatched at", `v${number(sampled.dispatched)}`], ["Sampled by", versions(sampled.min, sampled.max)],
      ["Reward", number(rewards.total)], ["Advantage", number(rewards.advantage)],
      ["Ratio, mean", number(metrics.ratio_mean), "Trainer over sampler probability, mean over its target tokens"], ["Clipped", percent(metrics.clipped_share), "Of its target tokens"],
      ["Loss share", number(metrics.loss_share)], ["Tokens", `${number(tree.tokens_tree)} in its tree, ${number(tree.targets_chosen)} trained`],
      ["Queue", `${visible(queue.tier ?? "")} ${seconds(queue.wait_s)}`], ["Promotions", number(queue.promotions)],
    ]} />
    ${drop && html`<p class="bad">Dropped, ${visible(drop.meaning || drop.reason)}. <${Said} text=${drop.detail} most=${400} /></p>`}</section>
    <${Timeline} found=${found} />
    <${Calls} found=${found} cap=${cap} step=${step} />
    <${Tokens} sample=${found.sample_id} page=${found} query=${query} cap=${cap} />
    <div class="grid2">
      <${Group} found=${found} />
      <${Place} found=${found} />
      <${Rewards} found=${found} />
      <section class="card" aria-label="Evidence"><h2>Evidence</h2><${Facts} of=${[
        ["Seed", evidence.seed === null ? "–" : String(evidence.seed)], ["Configuration", html`<span class="mono">${visible(sampled.fingerprint)}</span>`],
        ["Dependencies", visible(evidence.dependency_snapshot || "–")], ["Image", html`<span class="mono">${visible(evidence.image_digest ?? "–")}</span>`],
        ...Object.entries(evidence.tool_versions ?? {}).map(([name, version]) => [visible(name), visible(version)]),
      ]} /></section>
    </div>
    <${Spans} found=${found} />`;
}

function Timeline({ found }) {
  const known = found.timeline.filter((one) => one.duration_s !== null);
  const total = known.reduce((sum, one) => sum + Math.max(one.duration_s, 0), 0);
  if (!known.length) return null;
  return html`
    <section class="card" aria-label="Where its time went"><h2>Where its time went <small class="note">${seconds(total)} from submission to ${found.timeline.at(-1).stage}</small></h2>
      <div class="strip" aria-hidden="true">${known.map((one) => html`<span key=${one.stage} class=${`stage-${STAGE[one.stage] ?? 0}`} title=${`${one.stage}: ${seconds(one.duration_s)}`}
        style=${{ width: `${(100 * Math.max(one.duration_s, 0)) / (total || 1)}%` }}>${one.duration_s > total * 0.08 ? one.stage : ""}</span>`)}</div>
      <${Table} isFolded caption="Stages" label="Stages as a table" rows=${found.timeline} columns=${[
        { name: "Stage", of: (one) => one.stage }, { name: "From", of: (one) => moment(one.start_at_s) }, { name: "Lasted", num: true, of: (one) => seconds(one.duration_s) },
      ]} />
    </section>`;
}

function Calls({ found, cap, step }) {
  const cells = (call) => (call.cells ?? []).map((cell, index) => html`${index ? ", " : ""}<${Link} to=${toward("/pressure", { cell })}>${visible(cell)}<//>`);
  const published = (at) => found.published.filter((one) => one.at_s <= at).at(-1)?.version ?? 0;
  const behind = (call) => (call.version_min === null ? null : Math.max(0, published(call.started_at_s || call.at_s) - call.version_min));
  return html`
    <section class="card" aria-label="Model calls"><h2>Model calls</h2>
      <${Table} caption="Model calls" rows=${found.call_list} id=${(call) => call.call_id} columns=${[
        { name: "Call", num: true, of: (call) => call.call_index },
        { name: "Role", of: (call) => visible(call.role) },
        { name: "Cell", title: "Opens the cell: which weights it served when", of: cells },
        { name: "Version", of: (call) => versions(call.version_min, call.version_max) },
        { name: "Published then", num: true, of: (call) => `v${published(call.started_at_s || call.at_s)}` },
        { name: "Behind", num: true, title: "Versions that were published when the call began, and its cell did not serve", of: (call) => (behind(call) === null ? "–" : html`<span class=${behind(call) > 0 ? "bad" : ""}>${behind(call)}</span>`) },
        { name: "Age at gradient", num: true, of: (call) => (step === null || call.version_min === null ? "–" : html`<${Swatch} age=${step - call.version_min} cap=${cap}>${step - call.version_min}<//>`) },
        { name: "Prompt", num: true, of: (call) => number(call.prompt_tokens) },
        { name: "New", num: true, of: (call) => number(call.new_tokens) },
        { name: "Sampled", num: true, of: (call) => number(call.output_tokens) },
        { name: "Began", of: (call) => clock(call.started_at_s) },
        { name: "Waited", num: true, of: (call) => seconds(call.wait_s) },
        { name: "Took", num: true, of: (call) => seconds(call.at_s - call.started_at_s) },
        { name: "Finish", of: (call) => `${visible(call.finish_reason)}${call.delivered ? "" : ", never delivered"}${call.set_aside ? `, set aside: ${visible(call.set_aside)}` : ""}` },
      ]} />
    </section>`;
}

function Group({ found }) {
  return html`
    <section class="card" aria-label="Its group"><h2>Its group <span class="mono">${found.group}</span></h2>
      <${Table} caption="Samples of the group" rows=${found.group_samples} id=${(row) => row.sample} columns=${[
        { name: "Sample", of: (row) => (row.sample === found.sample_id ? html`<b>${row.sample}</b>` : html`<${Link} to=${sampleAddress(row.sample)}>${row.sample}<//>`) },
        { name: "State", of: (row) => row.state }, { name: "Reward", num: true, of: (row) => number(row.reward) },
        { name: "Advantage", num: true, of: (row) => number(row.advantage) }, { name: "Step", num: true, of: (row) => number(row.step) },
      ]} />
    </section>`;
}

function Place({ found }) {
  const { batch, training } = found;
  if (!batch) return html`<section class="card" aria-label="Its batch"><h2>Its batch</h2><p class="note">${training ? "The batch's closing is not on record yet." : "In no batch."}</p></section>`;
  const isTold = batch.samples !== null;
  const at = (100 * (batch.position + 0.5)) / Math.max(batch.samples, 1);
  return html`
    <section class="card" aria-label="Its batch"><h2>Its batch${training ? html`, step <${Link} to=${toward("/lineage", { step: training.step })}>${training.step}<//>` : ""}</h2>
      ${isTold ? html`<svg viewBox="0 0 100 5" width="100%" height="14" preserveAspectRatio="none" role="img" aria-label=${`Position ${batch.position + 1} of ${batch.samples}`}>
        <rect width="100" height="5" fill="var(--grid)"></rect><rect x=${at - 0.6} width="1.2" height="5" fill="var(--accent)"></rect></svg>` : html`<p class="note">What else is in it is told to operators only.</p>`}
      <${Facts} of=${[
        ...(isTold ? [["Position", `${batch.position + 1} of ${batch.samples}`], ["Groups", number(batch.groups)], ["Complete by", batch.cause], ["Turns", `${number(batch.turns)} of ${number(batch.turns_target)}`],
        ["Divisor", number(batch.divisor)], ["Truncated share", percent(batch.truncated_share)], ["Mean age", number(batch.staleness_mean)]] : [["Complete by", batch.cause]]),
        ["Gradient by", batch.cell ? html`<${Link} to=${toward("/pressure", { cell: batch.cell })}>${visible(batch.cell)}<//>` : "–"],
      ]} />
    </section>`;
}

function Rewards({ found }) {
  const rows = [...Object.entries(found.rewards.components ?? {}).map(([name, value]) => ({ name, value, said: "" })),
    ...found.scores.map((one) => ({ name: `${one.evaluator} (${one.kind})`, value: one.value, said: one.detail }))];
  return html`
    <section class="card" aria-label="Reward"><h2>Reward ${number(found.rewards.total)}, outcome ${number(found.rewards.outcome)}</h2>
      ${rows.length ? html`<${Table} caption="Components and scores" rows=${rows} columns=${[
        { name: "Component", of: (row) => visible(row.name) }, { name: "Value", num: true, of: (row) => number(row.value) },
        { name: "Said", of: (row) => html`<${Said} text=${row.said} most=${200} />` },
      ]} />` : html`<p class="note">Nothing was scored.</p>`}
    </section>`;
}
