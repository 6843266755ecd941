import { html } from "./lib.js"; export function OriginScreen() { return html`<p>soon</p>`; }
