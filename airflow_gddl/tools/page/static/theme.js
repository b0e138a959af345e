// Light or dark: as Airflow's own UI is set, else as the system is.

export function followTheme() {
  const chosen = window.localStorage.getItem("theme");
  const theme = chosen === "dark" || chosen === "light" ? chosen : matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  document.documentElement.dataset.theme = theme;
}

followTheme();
window.addEventListener("storage", followTheme);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", followTheme);
