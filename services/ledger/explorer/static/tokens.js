// What the model saw and said: the sample's tree as text, every sampled token with its version, probabilities, ratio and advantage.
import { html, useMemo, useState } from "./lib.js";
import { change } from "./address.js";
import { useAnswer } from "./api.js";
import { AGE_COLOURS, ageColour, number, steps, versions, visible } from "./format.js";
import { Facts, Said, Table } from "./parts.js";

// What tokens are coloured by → token => colour or null.
const PAINTS = {
  age: { label: "age", of: (token, page) => (page.step === null ? null : ageColour(page.step - token.version, page.cap)) },
  logprob: { label: "log-probability", of: (token) => scale(token.logprob === null ? null : Math.min(6, Math.round(-token.logprob * 1.5))) },
  ratio: { label: "ratio", of: (token) => scale(token.ratio === null ? null : Math.min(6, Math.round(Math.abs(Math.log(token.ratio)) * 12))) },
  none: { label: "nothing", of: () => null },
};
const scale = (at) => (at === null ? null : AGE_COLOURS[at]);

export function Tokens({ sample, page, query, cap }) {
  const state = useAnswer("tokens", { sample }, false);
  const { answer, error, busy } = state;
  if (!answer) {
    return html`<section class="card" aria-label="Messages and tokens"><h2>Messages and tokens</h2>
      <p class="note" role="status">${error ? html`No tree to show: <${Said} text=${error.message} most=${300} />` : busy ? "Reading its tree…" : ""}</p></section>`;
  }
  return html`<${Tree} tree=${answer} page=${{ ...page, step: page.training?.step ?? null, cap }} query=${query} />`;
}

// The advantage of a call's tokens: its segment's mixed with the execution's, as credit was given.
function advantageOf(call, { credit, rewards }) {
  const starts = credit.segment_starts ?? [];
  let at = -1;
  starts.forEach((start, index) => { if (start <= call) at = index; });
  return at >= 0 ? credit.segment_advantages?.[at] ?? rewards.advantage : rewards.advantage;
}

function tokensOf(node, page) {
  if (node.call < 0) return [];
  return node.texts.map((text, index) => {
    const trained = node.trained_logprobs?.[index] ?? null;
    const logprob = node.logprobs[index];
    return {
      key: `${node.node}.${index}`, text, logprob, trained, version: node.token_versions[index],
      ratio: trained === null || logprob === null ? null : Math.exp(trained - logprob),
      clipped: node.clipped?.[index] ?? null, kept: node.kept?.[index] ?? null,
      advantage: node.chosen ? advantageOf(node.call, page) : null, call: node.call, role: node.role, chosen: node.chosen,
    };
  });
}

function Tree({ tree, page, query }) {
  const nodes = useMemo(() => tree.nodes.map((node) => ({ ...node, own: tokensOf(node, page) })), [tree, page.sample_id]);
  const byNumber = useMemo(() => new Map(nodes.map((node) => [node.node, node])), [nodes]);
  const paint = PAINTS[query.paint] ? query.paint : "age";
  const leaf = Number(query.leaf) || tree.leaves[0] || nodes.at(-1)?.node || 0;
  const path = [];
  for (let at = byNumber.get(leaf); at && !path.includes(at); at = byNumber.get(at.parent)) path.unshift(at);
  const [token, look] = useState(null);
  const isTrained = nodes.some((node) => node.trained_logprobs);
  const all = path.flatMap((node) => node.own);
  return html`
    <section class="card" aria-label="Messages and tokens">
      <div class="title"><h2>Messages and tokens <small class="note">${number(tree.tokens_unique)} unique tokens, ${number(tree.tokens_sampled)} sampled, ${tree.leaves.length} ${tree.leaves.length === 1 ? "path" : "paths"} chosen</small></h2>
        <span class="buttons" role="group" aria-label="Colour of tokens">Colour
          ${Object.entries(PAINTS).map(([name, { label }]) => html`<button key=${name} aria-pressed=${paint === name} disabled=${name === "ratio" && !isTrained} onClick=${() => change({ paint: name })}>${label}</button>`)}</span></div>
      ${!isTrained && html`<p class="note">${page.training ? "The trainer's word on single tokens is not on record for this sample; its means over the sample stand above." : "Not trained: there is no ratio to a trainer."}</p>`}
      <div class="sample-grid">
        <div class="flow" tabindex="0" role="region" aria-label="The chosen path as text">${path.map((node) => html`<${Node} key=${node.node} node=${node} page=${page} paint=${paint} look=${look} lit=${token?.key} />`)}</div>
        <aside class="inspect" aria-label="Token">
          <h3>Token</h3>${token ? html`<${Facts} of=${factsOf(token, page)} />` : html`<p class="note">Point at a sampled token; all of them stand in the table below.</p>`}
          <h3>Tree</h3><${Branches} nodes=${nodes} tree=${tree} leaf=${leaf} path=${path} />
        </aside>
      </div>
      <${Table} isFolded most=${2000} label="Sampled tokens of this path as a table" caption="Sampled tokens" rows=${all} id=${(one) => one.key} columns=${[
        { name: "Call", num: true, of: (one) => one.call }, { name: "Token", of: (one) => html`<span class="mono">${quoted(one.text)}</span>` }, { name: "Version", num: true, of: (one) => `v${one.version}` },
        { name: "Sampler log-p", num: true, of: (one) => number(one.logprob, 4) }, { name: "Trainer log-p", num: true, of: (one) => number(one.trained, 4) },
        { name: "Ratio", num: true, of: (one) => number(one.ratio, 4) }, { name: "Clipped", of: (one) => said(one.clipped) }, { name: "Advantage", num: true, of: (one) => number(one.advantage) },
      ]} />
    </section>`;
}

const quoted = (text) => `“${visible(text.replaceAll("\n", "⏎")).slice(0, 80)}”`;
const said = (flag) => (flag === null ? "–" : flag ? "yes" : "no");

function factsOf(token, page) {
  const targets = page.training?.metrics?.targets;
  return [
    ["Text", html`<span class="mono">${quoted(token.text)}</span>`], ["Call", `${token.call}, ${token.role}`], ["Version", `v${token.version}`],
    ["Age at gradient", page.step === null ? "–" : steps(page.step - token.version)], ["Sampler log-p", number(token.logprob, 4)], ["Trainer log-p", number(token.trained, 4)],
    ["Ratio", number(token.ratio, 4)], ["Clipped", said(token.clipped)], ["In the gradient", token.kept === null ? (token.chosen && targets ? "yes" : "–") : said(token.kept)],
    ["Advantage", number(token.advantage)],
  ];
}

function Node({ node, page, paint, look, lit }) {
  const isSampled = node.call >= 0;
  const { of } = PAINTS[paint];
  return html`
    <div class=${`node${isSampled ? " sampled" : ""}${node.chosen ? "" : " unchosen"}`}>
      <header><span>${isSampled ? `call ${node.call} · ${visible(node.role)} · ${versions(...node.versions)}` : "context"}</span><span>${number(node.tokens)} tokens at ${number(node.start)}</span>
        ${isSampled && html`<span>advantage ${number(node.chosen ? advantageOf(node.call, page) : null)}</span>`}${!node.chosen && html`<span>not on a chosen path</span>`}</header>
      <div class="text">${isSampled
        ? node.own.map((token) => html`<span key=${token.key} class=${`token${token.clipped ? " clipped" : ""}${lit === token.key ? " on" : ""}`} onMouseEnter=${() => look(token)} onClick=${() => look(token)}
            style=${{ borderColor: of(token, page) ?? "transparent" }}>${visible(token.text)}</span>`)
        : html`<${Said} text=${node.texts[0]} />`}
        ${node.left_out > 0 && html`<p class="note">…${number(node.left_out)} more tokens are not shown here; <code>gyre tree</code> names them.</p>`}</div>
    </div>`;
}

function Branches({ nodes, tree, leaf, path }) {
  const on = new Set(path.map((node) => node.node));
  const children = new Map();
  nodes.forEach((node) => children.set(node.parent, (children.get(node.parent) ?? 0) + 1));
  const depth = new Map([[0, -1]]);
  nodes.forEach((node) => depth.set(node.node, (depth.get(node.parent) ?? -1) + (children.get(node.parent) > 1 || node.parent === 0 ? 1 : 0)));
  return html`
    <ul class="tree">${nodes.slice(0, 600).map((node) => html`
      <li key=${node.node} class=${on.has(node.node) ? "" : "off"}>
        <button onClick=${() => change({ leaf: deepest(node, nodes) })} aria-current=${node.node === leaf ? "true" : undefined} style=${{ marginLeft: `${Math.min(depth.get(node.node), 20) * 10}px` }}
          title=${node.chosen ? "On a chosen path" : "On no chosen path"}>${node.chosen ? "●" : "○"} ${node.call >= 0 ? `call ${node.call} ${visible(node.role)}` : "context"} · ${node.tokens}</button></li>`)}
    </ul>${tree.nodes.length > 600 && html`<p class="note">The first 600 of ${tree.nodes.length} nodes.</p>`}`;
}

// The end of the first path through a node; numbers are depth-first, so one pass forward finds it.
function deepest(node, nodes) {
  let end = node.node;
  for (const one of nodes) if (one.parent === end) end = one.node;
  return end;
}
