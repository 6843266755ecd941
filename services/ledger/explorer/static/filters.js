// Filters: what a screen offers as choices, and as chips what else the address narrows by.
import { html } from "./lib.js";
import { FILTERS, change, useAddress } from "./address.js";
import { useAnswer } from "./api.js";
import { clock, visible } from "./format.js";

const LABELS = {
  tenant: "Tenant", task_type: "Type of task", purpose: "Purpose", tier: "Tier", cell: "Cell", state: "State", reason: "Reason", group: "Group",
  step: "Step", dispatched: "Dispatched at", version: "Sampled by", age: "Token age at least", from: "From", to: "Until",
};
const FIXED = { state: ["running", "ready", "trained", "dropped", "ended"], purpose: ["train", "evaluation", "all"] };
const SOURCE = { tenant: "tenants", task_type: "task_types", tier: "tiers", cell: "cells" };

const said = (name, value) => (name === "from" || name === "to" ? clock(Number(value)) : name === "version" || name === "dispatched" ? `v${value}` : value);

export function filtersOf(query, names = FILTERS) {
  return Object.fromEntries(names.filter((name) => query[name]).map((name) => [name, query[name]]));
}

export function FilterBar({ session, offered }) {
  const { query, path } = useAddress();
  const { answer } = useAnswer("choices", {}, false);
  const shown = offered.filter((name) => name !== "tenant" || session.is_operator);
  const choices = (name) => FIXED[name] ?? answer?.[SOURCE[name]] ?? [];
  const picked = shown.filter((name) => choices(name).length > 1 || query[name]);
  const chips = FILTERS.filter((name) => query[name] && !picked.includes(name) && path !== "/sample");
  if (!picked.length && !chips.length) return null;
  return html`
    <form class="filters" role="search" aria-label="Filters" onSubmit=${(event) => event.preventDefault()}>
      ${picked.map((name) => html`
        <label key=${name}><span>${LABELS[name]}</span>
          <select name=${name} value=${query[name] ?? (name === "purpose" ? "train" : "")} onChange=${(event) => change({ [name]: event.target.value, after: null }, false)}>
            ${name !== "purpose" && html`<option value="">all</option>`}
            ${[...new Set([...choices(name), ...(query[name] ? [query[name]] : [])])].map((one) => html`<option key=${one} value=${one}>${visible(one)}</option>`)}
          </select></label>`)}
      ${chips.map((name) => html`
        <button key=${name} class="chip" onClick=${() => change({ [name]: null, after: null }, false)} aria-label=${`Remove the filter ${LABELS[name]} ${query[name]}`}>
          ${LABELS[name]} <b>${visible(said(name, query[name]))}</b> <span aria-hidden="true">×</span></button>`)}
    </form>`;
}
