// The one door to the vendored libraries, so that their names stand in one place.
export { html, render, useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback, createContext, useContext } from "./vendor/htm-preact-standalone.module.js";
import uPlot from "./vendor/uPlot.esm.js";
export { uPlot };
