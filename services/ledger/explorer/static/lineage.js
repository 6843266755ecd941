import { html } from "./lib.js"; export function LineageScreen() { return html`<p>soon</p>`; }
