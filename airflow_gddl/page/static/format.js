// Values as people read them.

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 0) return "-" + duration(-seconds);
  if (seconds < 60) return `${Math.round(seconds * 10) / 10}s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes}m\u00a0${String(Math.floor(seconds % 60)).padStart(2, "0")}s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours}h\u00a0${String(minutes % 60).padStart(2, "0")}m` : `${Math.floor(hours / 24)}d\u00a0${hours % 24}h`;
}

export function count(number) {
  return number === null || number === undefined ? "" : number.toLocaleString("en-US");
}

/** Seconds since the epoch as UTC, to the second. */
export function moment(seconds) {
  return seconds === null || seconds === undefined ? "" : new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", "\u00a0") + "\u00a0UTC";
}

export function ago(seconds, now) {
  return seconds === null || seconds === undefined ? "never" : `${duration(Math.max(0, now - seconds))} ago`;
}

export function bytes(number) {
  if (number === null || number === undefined) return "";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let value = number, unit = 0;
  while (value >= 1000 && unit < units.length - 1) { value /= 1000; unit += 1; }
  return `${unit ? value.toFixed(1) : value} ${units[unit]}`;
}

/** How a run ended: a class for its colour, a sign for those who don't see it, a word. */
export function outcome(run) {
  if (run.status === "failed") return { kind: "failed", sign: "✕", word: `failed ${run.error ?? ""}`.trim() };
  if (!run.adds_up) return { kind: "failed", sign: "≠", word: "rows do not add up" };
  if (run.quarantined > 0) return { kind: "warned", sign: "!", word: "succeeded, rows in quarantine" };
  if (run.warnings.length > 0) return { kind: "warned", sign: "~", word: `succeeded, ${run.warnings.join(", ")}` };
  return { kind: "good", sign: "✓", word: "succeeded" };
}

export function runText(run) {
  const lines = [`${moment(run.started)}: ${outcome(run).word}`, `${run.mode}, ${duration(run.seconds)}, ${count(run.files)} files`];
  lines.push(`${count(run.rows_read)} rows read, ${count(run.appended)} appended, ${count(run.quarantined)} quarantined`);
  if (run.late_ignored) lines.push(`${count(run.late_ignored)} changes ignored as late`);
  if (run.lag !== null) lines.push(`lag ${duration(run.lag)}`);
  return lines.join("\n");
}

export const STATE_SIGNS = { failed: "✕", late: "◔", attention: "!", waiting: "…", new: "+", fresh: "✓", disabled: "–" };
