// Before the first paint: the theme that was chosen here, else the system's. Not a module, so that it runs at once.
(() => {
  let chosen = null;
  try { chosen = localStorage.getItem("gyre-theme"); } catch { /* storage may be off */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
