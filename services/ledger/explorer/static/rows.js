// The rows behind every point: executions that fit the filters, newest first, a page at a time.
import { html } from "./lib.js";
import { Link, addressOf, change, questionOf, sampleAddress, toward } from "./address.js";
import { useAnswer } from "./api.js";
import { filtersOf } from "./filters.js";
import { moment, number, seconds, visible } from "./format.js";
import { Answered, Swatch, Table, Title } from "./parts.js";

export function RowsScreen({ query, session }) {
  const filters = filtersOf(query);
  const state = useAnswer(...questionOf("/rows", query));
  const cap = session.age_cap;
  return html`
    <${Title} sub="Newest lease first; while a run goes on, new ones appear on top." side=${html`<span class="buttons">
      <a href=${addressOf("/api/export/rows.jsonl", filters)} download>JSON lines</a> · <a href=${addressOf("/api/export/perfetto.json", filters)} download>Perfetto</a> · <${Link} to=${toward("/lanes", filters)}>Swim-lanes<//></span>`}>
      Executions<//>
    <${Answered} state=${state} empty=${(found) => !found.rows.length && "No execution fits these filters."}>
      ${(found) => html`
        <section class="card" aria-label="Executions">
          <${Table} caption="Executions" rows=${found.rows} id=${(row) => row.sample} columns=${[
            { name: "Sample", of: (row) => html`<${Link} to=${sampleAddress(row.sample)}>${row.sample}<//>` },
            { name: "State", of: (row) => row.state },
            { name: "Reason", of: (row) => visible(row.reason ?? "") },
            { name: "Age", num: true, title: "Steps from dispatch to gradient", of: (row) => number(row.age) },
            { name: "Token age", num: true, title: "Steps from the oldest token's version to the gradient", of: (row) => (row.tokens_age === null ? "–" : html`<${Swatch} age=${row.tokens_age} cap=${cap}>${row.tokens_age}<//>`) },
            { name: "Dispatched", num: true, of: (row) => (row.dispatched === null ? "–" : `v${row.dispatched}`) },
            { name: "Step", num: true, of: (row) => (row.step === null ? "–" : html`<${Link} to=${toward("/lineage", { step: row.step })}>${row.step}<//>`) },
            { name: "Turns", num: true, of: (row) => number(row.turns) },
            { name: "Tokens", num: true, of: (row) => number(row.tokens) },
            { name: "Reward", num: true, of: (row) => number(row.reward) },
            { name: "Advantage", num: true, of: (row) => number(row.advantage) },
            { name: "Waited", num: true, of: (row) => seconds(row.waited_s) },
            { name: "Active", num: true, of: (row) => seconds(row.active_s) },
            { name: "Type of task", of: (row) => visible(row.task_type) },
            ...(session.is_operator ? [{ name: "Tenant", of: (row) => visible(row.tenant) }] : []),
            { name: "Leased", of: (row) => moment(row.leased_at_s) },
          ]} />
          <p class="buttons">${query.after && html`<button onClick=${() => change({ after: null }, false)}>Newest</button>`}
            ${found.next && html`<button onClick=${() => change({ after: found.next }, false)}>Older</button>`}</p>
        </section>`}
    <//>`;
}
