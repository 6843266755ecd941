// Lineage both ways: which weights sampled what, which step trained it, and back.
import { html, useState } from "./lib.js";
import { Link, questionOf, sampleAddress, toward } from "./address.js";
import { useAnswer } from "./api.js";
import { clock, number, visible } from "./format.js";
import { Answered, Swatch, Title } from "./parts.js";

const to = (words) => toward("/lineage", { purpose: "all", ...words });

export function LineageScreen({ query, session }) {
  const state = useAnswer(...questionOf("/lineage", query));
  return html`
    <${Title} sub="From the weights that sampled to the step that trained, and back. Point at anything to see what it is connected with; a name makes it the centre.">
      Lineage<//>
    <${Answered} state=${state} empty=${(found) => !found.samples.length && "Nothing is connected with this. A step has samples once it is trained."}>
      ${(found) => html`<${Columns} found=${found} cap=${session.age_cap} query=${query} />`}
    <//>`;
}

// What each thing touches, as names: "v3", "s7", "g…", "sample".
function connections(found) {
  const touching = new Map();
  const tie = (names) => names.forEach((one) => names.forEach((other) => touching.set(one, (touching.get(one) ?? new Set()).add(other))));
  for (const sample of found.samples) {
    const names = [sample.sample, sample.group, ...sample.versions.map(([version]) => `v${version}`), ...(sample.step === null ? [] : [`s${sample.step}`])];
    tie(names);
  }
  return touching;
}

function Columns({ found, cap, query }) {
  const [lit, light] = useState(null);
  const touching = connections(found);
  const near = lit ? touching.get(lit) : null;
  const look = (name) => ({
    class: near ? (near.has(name) ? "lit" : "dim") : "", onMouseEnter: () => light(name), onMouseLeave: () => light(null), onFocusIn: () => light(name), onFocusOut: () => light(null),
  });
  return html`
    <p class="note" role="status">${found.step === null ? "" : `The newest step that trained anything, ${found.step}. `}${number(found.matched)} samples${found.cut ? ", the newest that fit" : ""}.</p>
    <div class="lineage">
      <section class="card" aria-label="Versions"><h2>Weight versions</h2><ul>${found.versions.map((one) => html`
        <li key=${one.version} ...${look(`v${one.version}`)}><${Link} to=${to({ version: one.version })}>v${one.version}<//> <${Link} to=${toward("/lanes", { version: one.version })} class="note">lanes<//>
          <small>sampled ${number(one.tokens)} tokens of ${number(one.samples)} samples; ${number(one.groups)} groups were dispatched at it; ${one.at_s === null ? (one.version === 0 ? "before the first step" : "not published") : `published ${clock(one.at_s)}`}</small></li>`)}</ul></section>
      <section class="card" aria-label="Groups"><h2>Groups</h2><ul>${found.groups.map((one) => html`
        <li key=${one.group} ...${look(one.group)}><${Link} to=${to({ group: one.group })}>${one.group}<//>
          <small>${visible(one.task_type)}; dispatched at v${one.dispatched}; ${number(one.trained)} trained, ${number(one.dropped)} dropped of ${number(one.executions)}</small></li>`)}</ul></section>
      <section class="card" aria-label="Samples"><h2>Samples</h2><ul>${found.samples.map((one) => {
        const oldest = one.step !== null && one.versions.length ? one.step - one.versions[0][0] : null;
        return html`<li key=${one.sample} ...${look(one.sample)}><${Link} to=${sampleAddress(one.sample)}>${one.sample}<//>
          <small>${oldest === null ? one.state : html`<${Swatch} age=${oldest} cap=${cap}>age ${oldest}<//>`} · ${one.versions.map(([version, tokens]) => `v${version}: ${tokens}`).join(", ") || "no tokens"}</small></li>`;
      })}</ul></section>
      <section class="card" aria-label="Steps"><h2>Steps</h2><ul>${found.steps.map((one) => html`
        <li key=${one.step} ...${look(`s${one.step}`)}><${Link} to=${to({ step: one.step })} aria-current=${String(one.step) === query.step ? "true" : undefined}>step ${one.step}<//> → <${Link} to=${to({ version: one.version })}>v${number(one.version)}<//>
          <small>${number(one.samples)} samples, ${number(one.targets)} target tokens, loss ${number(one.loss)}, ${clock(one.at_s)}</small></li>`)}
        ${!found.steps.length && html`<li><small>None of these samples was trained.</small></li>`}</ul></section>
    </div>`;
}
