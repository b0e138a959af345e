// Formats values for display. An unknown value is a dash, never an empty cell or a zero.

export const UNKNOWN = "–";

function known(value) {
  return value !== null && value !== undefined;
}

export function duration(seconds) {
  if (!known(seconds)) return UNKNOWN;
  if (seconds < 0) return "-" + duration(-seconds);
  if (seconds < 60) return `${Math.round(seconds * 10) / 10}s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes}m\u00a0${String(Math.floor(seconds % 60)).padStart(2, "0")}s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours}h\u00a0${String(minutes % 60).padStart(2, "0")}m` : `${Math.floor(hours / 24)}d\u00a0${hours % 24}h`;
}

export function count(number) {
  return known(number) ? number.toLocaleString("en-US") : UNKNOWN;
}

/** `3 files`, `1 file`. */
export function counted(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/** The time zone of Airflow's UI, else the browser's. */
function chosenZone() {
  const chosen = (window.localStorage.getItem("timezone") ?? "").replace(/^"|"$/g, "");
  try {
    return new Intl.DateTimeFormat("en", { timeZone: chosen }).resolvedOptions().timeZone;
  } catch {
    return Intl.DateTimeFormat().resolvedOptions().timeZone;
  }
}

export const ZONE = chosenZone();
const PARTS = new Intl.DateTimeFormat("en-CA", {
  timeZone: ZONE, hourCycle: "h23", year: "numeric", month: "2-digit", day: "2-digit",
  hour: "2-digit", minute: "2-digit", second: "2-digit",
});

/** Seconds since the epoch as `2024-01-31 23:59:58` in the user's time zone. */
export function moment(seconds) {
  if (!known(seconds)) return UNKNOWN;
  const part = Object.fromEntries(PARTS.formatToParts(new Date(seconds * 1000)).map(({ type, value }) => [type, value]));
  return `${part.year}-${part.month}-${part.day}\u00a0${part.hour}:${part.minute}:${part.second}`;
}

/** The same for a moment in text, UTC without a zone; other texts are unchanged. */
export function momentOf(text) {
  if (!known(text)) return UNKNOWN;
  if (!/^\d{4}-\d\d-\d\d[T ]\d\d:\d\d/.test(text)) return text;
  const zoned = /(Z|[+-]\d\d:?\d\d)$/.test(text) ? text : `${text}Z`;
  const value = Date.parse(zoned.replace(" ", "T"));
  return Number.isNaN(value) ? text : moment(value / 1000);
}

export function ago(seconds, now) {
  return known(seconds) ? `${duration(Math.max(0, Math.round(now - seconds)))}\u00a0ago` : "never";
}

export function bytes(number) {
  if (!known(number)) return UNKNOWN;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let value = number, unit = 0;
  while (value >= 1000 && unit < units.length - 1) { value /= 1000; unit += 1; }
  return `${unit ? value.toFixed(1) : value} ${units[unit]}`;
}

/** Outcome of a run: a class for its colour, a sign, and a word. */
export function outcome(run) {
  if (run.status === "failed") return { kind: "failed", sign: "✕", word: `failed ${run.error ?? ""}`.trim() };
  if (!run.adds_up) return { kind: "failed", sign: "≠", word: "rows do not add up" };
  if (run.quarantined > 0) return { kind: "warned", sign: "!", word: "succeeded, rows in quarantine" };
  if (run.warnings.length > 0) return { kind: "warned", sign: "~", word: `succeeded, ${run.warnings.join(", ")}` };
  if (run.status === "skipped") return { kind: "good", sign: "✓", word: "nothing to do" };
  return { kind: "good", sign: "✓", word: "succeeded" };
}

export function runText(run) {
  const lines = [`${moment(run.started)}: ${outcome(run).word}`, `${run.mode}, ${duration(run.seconds)}, ${counted(run.files, "file")}`];
  lines.push(`${count(run.rows_read)} rows read, ${count(run.appended)} appended, ${count(run.quarantined)} quarantined`);
  if (run.late_ignored) lines.push(`${count(run.late_ignored)} changes ignored as late`);
  if (run.lag !== null) lines.push(`lag ${duration(run.lag)}`);
  return lines.join("\n");
}

export const STATE_SIGNS = {
  broken_row: "⊘", failed: "✕", unknown: "?", late: "◔", attention: "!", running: "▸", waiting: "…", new: "+", fresh: "✓", disabled: "–",
};

export function stateText(state) {
  return state.replaceAll("_", " ");
}

/** Sign and class of a schema change: `added …`, `widened …`. */
export function changeKind(text) {
  return text.startsWith("added") ? { sign: "+", kind: "added" } : { sign: "~", kind: "changed" };
}
