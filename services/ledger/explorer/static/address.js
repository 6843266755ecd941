// Every state of a view is in its address: path and query. Nothing else is remembered but the theme.
import { html, useEffect, useState } from "./lib.js";

export const { FILTERS, addressOf, questionOf } = globalThis.gyre; // questions.js
const KEPT = ["tenant", "task_type", "purpose", "tier", "live"];

const listeners = new Set();

export function here() {
  return { path: location.pathname.replace(/\/+$/, "") || "/age", query: Object.fromEntries(new URLSearchParams(location.search)) };
}

export function go(address, replace = false) {
  if (replace) history.replaceState(null, "", address);
  else {
    history.pushState(null, "", address);
    window.scrollTo(0, 0);
  }
  listeners.forEach((listener) => listener());
}

// A change of this view's address: keys that are null go away.
export function change(words, replace = true) {
  const { path, query } = here();
  go(addressOf(path, { ...query, ...words }), replace);
}

// The address of another screen, with the filters that mean the same there.
export function toward(path, words = {}) {
  const { query } = here();
  const kept = Object.fromEntries(KEPT.filter((name) => query[name]).map((name) => [name, query[name]]));
  return addressOf(path, { ...kept, ...words });
}

export const sampleAddress = (sample, words = {}) => toward("/sample", { sample, ...words });

export function useAddress() {
  const [at, set] = useState(here());
  useEffect(() => {
    const listener = () => set(here());
    listeners.add(listener);
    addEventListener("popstate", listener);
    return () => { listeners.delete(listener); removeEventListener("popstate", listener); };
  }, []);
  return at;
}

// A link that changes the page without loading it; modified clicks stay the browser's.
export function Link({ to, children, ...rest }) {
  const click = (event) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(to);
  };
  return html`<a href=${to} onClick=${click} ...${rest}>${children}</a>`;
}
