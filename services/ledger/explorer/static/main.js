// The shell: who is signed in, which screen the address names, what is common to all screens.
import { html, render, useCallback, useEffect, useMemo, useRef, useState } from "./lib.js";
import { Link, change, here, toward, useAddress } from "./address.js";
import { News, Session, ask, signOut, useNews } from "./api.js";
import { FilterBar } from "./filters.js";
import { SignIn } from "./signin.js";
import { Problem, ThemeSwitch } from "./parts.js";
import { AgeScreen } from "./age.js";
import { DropsScreen } from "./drops.js";
import { LanesScreen } from "./lanes.js";
import { LineageScreen } from "./lineage.js";
import { OriginScreen } from "./origin.js";
import { PressureScreen } from "./pressure.js";
import { RowsScreen } from "./rows.js";
import { SampleScreen } from "./sample.js";

const SCREENS = [
  { path: "/age", name: "Age", screen: AgeScreen, filters: ["tenant", "task_type"] },
  { path: "/lanes", name: "Swim-lanes", screen: LanesScreen, filters: ["tenant", "task_type", "purpose", "tier", "cell", "state"] },
  { path: "/origin", name: "Origin of age", screen: OriginScreen, filters: ["tenant", "task_type"] },
  { path: "/lineage", name: "Lineage", screen: LineageScreen, filters: ["tenant", "task_type", "state"] },
  { path: "/drops", name: "Drops", screen: DropsScreen, filters: ["tenant", "task_type", "tier"] },
  { path: "/pressure", name: "Pressure", screen: PressureScreen, filters: ["tenant", "task_type", "tier"] },
  { path: "/rows", name: "Rows", screen: RowsScreen, filters: ["tenant", "task_type", "purpose", "tier", "cell", "state"] },
  { path: "/sample", name: "Sample", screen: SampleScreen, filters: [], hidden: true },
];

function Shell({ session }) {
  const { path, query } = useAddress();
  const isFollowing = session.is_live && query.live !== "0";
  const news = useNews(isFollowing);
  const screen = SCREENS.find((one) => one.path === path) ?? SCREENS[0];
  const main = useRef(null);
  const shown = useRef(path);
  useEffect(() => {
    document.title = `${screen.name} · ${session.run} · Gyre`;
    if (shown.current !== path) main.current?.focus(); // a screen that changed is read from its beginning
    shown.current = path;
  }, [path]);
  return html`
    <${News.Provider} value=${news}>
      <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); main.current.focus(); }}>Skip to the content</a>
      <header class="top">
        <${Link} to=${toward("/age")} class="brand"><img src="/static/icon.svg" alt="" width="22" height="22" /><b>Gyre</b> <span class="run">${session.run}</span><//>
        <nav aria-label="Screens"><ul>
          ${SCREENS.filter((one) => !one.hidden || one === screen).map((one) => html`
            <li key=${one.path}><${Link} to=${one.hidden ? location.pathname + location.search : toward(one.path)} aria-current=${one === screen ? "page" : undefined}>${one.name}<//></li>`)}
        </ul></nav>
        <div class="status">
          ${session.is_live
            ? html`<button class="quiet" aria-pressed=${isFollowing} onClick=${() => change({ live: isFollowing ? "0" : null })}
                title="Draw anew when the books have news"><span class=${isFollowing ? "dot on" : "dot"}></span>${isFollowing ? "Live" : "Held"}</button>`
            : html`<span class="tag" title="The run is over; these are its books">Recorded</span>`}
          <span class="tag" title="Whose rows you see">${session.is_operator ? "Operator" : `Tenant ${session.tenant}`}</span>
          <${ThemeSwitch} />
          <button class="quiet" onClick=${session.leave}>Sign out</button>
        </div>
      </header>
      <${FilterBar} session=${session} offered=${screen.filters} />
      <main id="main" tabindex="-1" ref=${main}><${screen.screen} session=${session} query=${query} key=${path} /></main>
    <//>`;
}

function App() {
  const [session, know] = useState(undefined);
  const [error, fail] = useState(null);
  const set = useCallback((found) => {
    try {
      if (found) localStorage.setItem("gyre-session", "");
      else localStorage.removeItem("gyre-session");
    } catch { /* storage may be off: the next page asks a little later */ }
    know(found);
  }, []);
  const look = useCallback(() => {
    fail(null);
    ask("session").then(set, fail);
  }, []);
  useEffect(look, []);
  const whole = useMemo(() => session && {
    ...session, lost: () => set(null), leave: () => signOut().finally(() => set(null)),
  }, [session]);
  if (error) return html`<main class="alone"><${Problem} error=${error} retry=${look} /></main>`;
  if (session === undefined) return html`<p class="boot" role="status">Opening the books…</p>`;
  if (session === null) return html`<${SignIn} done=${set} />`;
  return html`<${Session.Provider} value=${whole}><${Shell} session=${whole} /><//>`;
}

if (location.pathname === "/") history.replaceState(null, "", `/age${location.search}${location.hash}`);
here();
const root = document.getElementById("app");
root.textContent = "";
render(html`<${App} />`, root);
