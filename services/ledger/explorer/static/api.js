// Asking the ledger. An answer stays on the page while a newer one is on its way.
import { createContext, useContext, useEffect, useRef, useState } from "./lib.js";
import { addressOf } from "./address.js";

const NEWS_EVERY_MS = 2000; // of a run that says something all the time, pages are drawn anew this often at most

export const Session = createContext(null);
export const News = createContext(0);

export class Refused extends Error {
  constructor(status, words) {
    super(words);
    this.status = status;
  }
}

export async function ask(path, query = {}, options = {}) {
  let response;
  const address = addressOf(`/api/${path}`, query);
  try {
    response = await (options.method ? null : globalThis.gyre.taken(address));
    options.signal?.throwIfAborted();
    if (!response?.ok) response = await fetch(address, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "The ledger does not answer. Is the run up? Afterwards `gyre explorer` serves its books again.");
  }
  const text = await response.text();
  let body = {};
  try { body = JSON.parse(text); } catch { /* said below */ }
  if (!response.ok) throw new Refused(response.status, body.error || `The ledger answered ${response.status}.`);
  return body;
}

export const signIn = (key) => ask("session", {}, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ key }) });
export const signOut = () => ask("session", {}, { method: "DELETE" });

// {answer, error, busy}: of one question, asked again when the books have news.
export function useAnswer(name, query, follow = true) {
  const news = useContext(News);
  const session = useContext(Session);
  const [state, set] = useState({ answer: null, error: null, busy: true });
  const address = addressOf(name, query);
  const last = useRef("");
  useEffect(() => {
    const stop = new AbortController();
    const fresh = last.current !== address;
    last.current = address;
    set((old) => ({ answer: fresh ? null : old.answer, error: null, busy: true }));
    ask(name, query, { signal: stop.signal }).then(
      (answer) => set({ answer, error: null, busy: false }),
      (error) => {
        if (error.name === "AbortError") return;
        if (error.status === 401) session.lost();
        set((old) => ({ answer: old.answer, error, busy: false }));
      },
    );
    return () => stop.abort();
  }, [address, follow ? news : 0]);
  return state;
}

// Counts up when the books have news; 0 where nobody listens.
export function useNews(isWanted) {
  const [count, set] = useState(0);
  useEffect(() => {
    if (!isWanted) return undefined;
    const source = new EventSource("/api/live");
    let timer = null;
    let first = true;
    source.onmessage = () => {
      if (first) { first = false; return; }
      timer = timer ?? setTimeout(() => { timer = null; set((old) => old + 1); }, NEWS_EVERY_MS);
    };
    return () => { source.close(); clearTimeout(timer); };
  }, [isWanted]);
  return count;
}
