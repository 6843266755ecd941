import { html } from "./lib.js"; export function PressureScreen() { return html`<p>soon</p>`; }
