// Signing in: by the link that `gyre explorer` prints (its key stands after the #, which no server sees), or by pasting the key.
import { html, useEffect, useState } from "./lib.js";
import { signIn } from "./api.js";

const MARK = "#key=";

export function SignIn({ done }) {
  const [key, setKey] = useState("");
  const [error, fail] = useState("");
  const [busy, setBusy] = useState(location.hash.startsWith(MARK));
  const enter = (given) => {
    setBusy(true);
    signIn(given).then(done, (problem) => { setBusy(false); fail(problem.message); });
  };
  useEffect(() => {
    if (!location.hash.startsWith(MARK)) return;
    const given = decodeURIComponent(location.hash.slice(MARK.length));
    history.replaceState(null, "", location.pathname + location.search);
    enter(given);
  }, []);
  if (busy) return html`<p class="boot" role="status">Signing in…</p>`;
  return html`
    <main class="alone">
      <form class="card signin" onSubmit=${(event) => { event.preventDefault(); enter(key); }}>
        <h1><img src="/static/icon.svg" alt="" width="28" height="28" /> Gyre trace explorer</h1>
        <p>Run <code>gyre explorer</code> on the machine of the run. It prints a link that signs you in, once; its key can be pasted here.</p>
        <label for="key">Sign-in key</label>
        <input id="key" type="password" autocomplete="off" spellcheck="false" value=${key} onInput=${(event) => setKey(event.target.value)}
          aria-describedby=${error ? "signin-error" : undefined} aria-invalid=${error ? "true" : undefined} autofocus />
        ${error && html`<p class="problem" id="signin-error" role="alert">${error}</p>`}
        <button class="main" disabled=${!key.trim()}>Sign in</button>
      </form>
    </main>`;
}
