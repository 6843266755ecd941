// Small pieces that every screen uses.
import { html, useState } from "./lib.js";
import { AGE_COLOURS, TEXT_MAX, ageColour, shortened } from "./format.js";

export function ThemeSwitch() {
  const dark = () => (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const [isDark, set] = useState(dark());
  const flip = () => {
    const chosen = isDark ? "light" : "dark";
    document.documentElement.dataset.theme = chosen;
    try { localStorage.setItem("gyre-theme", chosen); } catch { /* for this page only, then */ }
    set(!isDark);
    dispatchEvent(new Event("gyre-theme"));
  };
  return html`<button class="quiet" onClick=${flip} aria-label=${`Change to the ${isDark ? "light" : "dark"} theme`} title="Light or dark">${isDark ? "☀" : "☾"}</button>`;
}

export function Problem({ error, retry }) {
  return html`
    <div class="card problem" role="alert">
      <h2>${error.status === 404 ? "Not found" : error.status === 400 ? "This address asks for something that there is not" : "The books cannot be shown"}</h2>
      <p>${shortened(error.message, 600).shown}</p>
      ${retry && html`<button onClick=${retry}>Try again</button>`}
    </div>`;
}

// A screen's answer, or what stands in its place.
export function Answered({ state, empty, children }) {
  const { answer, error, busy } = state;
  if (!answer && error) return html`<${Problem} error=${error} />`;
  if (!answer) return html`<p class="waiting" role="status">${busy ? "Asking the ledger…" : ""}</p>`;
  return html`
    ${error && html`<p class="stale" role="status">Shown as of before: ${error.message}</p>`}
    ${empty && empty(answer) ? html`<div class="card nothing"><p>${empty(answer)}</p></div>` : children(answer)}`;
}

export function Title({ children, sub, side }) {
  return html`<div class="title"><div><h1>${children}</h1>${sub && html`<p class="sub">${sub}</p>`}</div>${side && html`<div class="side">${side}</div>`}</div>`;
}

export function AgeLegend({ cap, name = "Age, steps" }) {
  const last = AGE_COLOURS.length - 1;
  const ages = [...new Set([0, 1, 2, 3, 4, 5, 6].map((at) => Math.round((at * Math.max(cap, 2)) / last)))];
  return html`
    <p class="legend" aria-label="Colours of age"><span>${name}</span>
      ${ages.map((age, index) => html`<span class="swatch" key=${age}><i style=${{ background: ageColour(age, cap) }}></i>${age}${index === ages.length - 1 ? "+" : ""}</span>`)}
    </p>`;
}

// [{name, value}], names above values.
export function Facts({ of }) {
  return html`<dl class="facts">${of.filter(Boolean).map(([name, value, title]) => html`<div key=${name} title=${title}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

// Columns: [{name, of: row => content, num, title}]. `key`: row => string.
export function Table({ caption, columns, rows, id, isFolded, label, most = 500 }) {
  if (isFolded) return html`<${Folded} label=${label ?? caption} ...${{ caption, columns, rows, id, most }} />`;
  return html`
    <div class="scroll" tabindex="0" role="region" aria-label=${caption}><table>
      <caption class="unseen">${caption}</caption>
      <thead><tr>${columns.map((column) => html`<th key=${column.name} scope="col" class=${column.num ? "num" : ""} title=${column.title}>${column.name}</th>`)}</tr></thead>
      <tbody>${rows.slice(0, most).map((row, index) => html`
        <tr key=${id ? id(row) : index}>${columns.map((column) => html`<td key=${column.name} class=${column.num ? "num" : ""}>${column.of(row)}</td>`)}</tr>`)}</tbody>
    </table></div>
    ${rows.length > most && html`<p class="note">The first ${most} of ${rows.length}.</p>`}`;
}

// Made when it is opened: a page's first picture does not wait for a table that nobody looks at.
function Folded({ label, ...table }) {
  const [isOpen, set] = useState(false);
  return html`<details class="behind" onToggle=${(event) => set(event.currentTarget.open)}><summary>${label}</summary>${isOpen && html`<${Table} ...${table} />`}</details>`;
}

// Text of the books: never markup, cut where it is very long, whole on request.
export function Said({ text, most = TEXT_MAX }) {
  const [shown, set] = useState(most);
  const piece = shortened(text, shown);
  return html`<span class="said">${piece.shown}</span>${piece.left > 0 && html`
    <button class="quiet more" onClick=${() => set(shown + 16 * TEXT_MAX)}>…${piece.left.toLocaleString("en-US")} more characters</button>`}`;
}

export const Swatch = ({ age, cap, children }) => html`<span class="swatch"><i style=${{ background: ageColour(age, cap) }}></i>${children}</span>`;
