// Runs before the first paint, so that a chosen theme or a collapsed navigation does not flash.
(() => {
  const root = document.documentElement;
  try {
    for (const name of ["theme", "nav"]) {
      const value = localStorage.getItem(name);
      if (value) root.dataset[name] = value;
    }
  } catch { /* storage is closed in private windows: the system's theme stays */ }
})();
