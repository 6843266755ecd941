// What each screen asks the ledger, and the first of it at once: no module, so that the ledger is at work while the page's modules are on their way.
(() => {
  // Filters that go along from screen to screen; everything else in a query belongs to one screen.
  const FILTERS = ["tenant", "task_type", "purpose", "tier", "cell", "state", "reason", "group", "step", "dispatched", "version", "age", "from", "to"];
  const SCREENS = {
    "/age": ["age", ["tenant", "task_type"]],
    "/lanes": ["lanes", [...FILTERS, "limit"]],
    "/origin": ["origin", ["tenant", "task_type", "step"]],
    "/lineage": ["lineage", FILTERS],
    "/drops": ["drops", ["tenant", "task_type", "tier"]],
    "/pressure": ["pressure", ["tenant", "task_type", "tier"]],
    "/rows": ["rows", [...FILTERS, "after"]],
    "/sample": ["sample", ["sample"]],
  };

  function addressOf(path, query) {
    const words = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== ""));
    const text = words.toString();
    return text ? `${path}?${text}` : path;
  }

  function questionOf(path, query) {
    const [name, wanted] = SCREENS[path];
    return [name, Object.fromEntries(wanted.filter((one) => query[one]).map((one) => [one, query[one]]))];
  }

  const path = location.pathname.replace(/\/+$/, "") || "/age";
  const early = new Map();
  let isSignedIn = false; // as far as this browser knows: whoever is not would only be refused
  try { isSignedIn = localStorage.getItem("gyre-session") !== null; } catch { /* storage may be off */ }
  if (SCREENS[path] && isSignedIn) {
    const [name, query] = questionOf(path, Object.fromEntries(new URLSearchParams(location.search)));
    const address = addressOf(`/api/${name}`, query);
    early.set(address, fetch(address, { credentials: "same-origin" }).catch(() => null));
  }
  // The answer to a question that was asked already; once, as the next one may be another.
  const taken = (address) => {
    const answer = early.get(address);
    early.delete(address);
    return answer;
  };
  globalThis.gyre = { FILTERS, addressOf, questionOf, taken };
})();
