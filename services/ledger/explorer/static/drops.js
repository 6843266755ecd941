import { html } from "./lib.js"; export function DropsScreen() { return html`<p>soon</p>`; }
