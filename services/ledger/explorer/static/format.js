// How values look. Text of the books is never trusted: it is shown as text, with what terminals would obey made visible.

export const DASH = "–";

export function number(value, digits = 2) {
  if (value === null || value === undefined || Number.isNaN(value)) return DASH;
  if (Number.isInteger(value)) return value.toLocaleString("en-US").replaceAll(",", "\u202f");
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2);
  return value.toFixed(size >= 100 ? 1 : size >= 1 ? digits : Math.max(digits, 3));
}

export function seconds(value) {
  if (value === null || value === undefined) return DASH;
  const size = Math.abs(value);
  if (size < 1) return `${Math.round(value * 1000)} ms`;
  if (size < 120) return `${value.toFixed(size < 10 ? 2 : 1)} s`;
  if (size < 7200) return `${(value / 60).toFixed(1)} min`;
  return `${(value / 3600).toFixed(2)} h`;
}

export const percent = (value) => (value === null || value === undefined ? DASH : `${(100 * value).toFixed(value && value < 0.1 ? 1 : 0)} %`);

export const steps = (value) => (value === null || value === undefined ? DASH : `${number(value)} ${value === 1 ? "step" : "steps"}`);

export function clock(atS) {
  if (atS === null || atS === undefined) return DASH;
  return new Date(atS * 1000).toLocaleTimeString("en-GB");
}

export function moment(atS) {
  if (atS === null || atS === undefined) return DASH;
  const date = new Date(atS * 1000);
  return `${date.toLocaleDateString("en-CA")} ${date.toLocaleTimeString("en-GB")}`;
}

export const versions = (low, high) => (low === null || low === undefined ? DASH : low === high ? `v${low}` : `v${low}–${high}`);

// C0 and C1 controls as their pictures, bidirectional overrides as a mark: nothing that a terminal or a reader would obey.
const NAME_MAX = 300; // characters of a value in a line; longer texts are Said's

function plain(text) {
  return text
    .replace(/[\u0000-\u0008\u000b-\u001f]/g, (sign) => String.fromCharCode(0x2400 + sign.charCodeAt(0)))
    .replace(/\u007f/g, "\u2421")
    .replace(/[\u0080-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "\ufffd");
}

export function visible(text, most = NAME_MAX) {
  const whole = String(text ?? "");
  return whole.length > most ? `${plain(whole.slice(0, most))}…` : plain(whole);
}

export const TEXT_MAX = 4000;

export function shortened(text, most = TEXT_MAX) {
  const shown = plain(String(text ?? "").slice(0, most));
  const left = String(text ?? "").length - most;
  return left > 0 ? { shown, left } : { shown, left: 0 };
}

// Age in steps → colour. Blue is fresh, red is old; lightness and hue both tell, so that the common colour blindnesses keep the order
// (after ColorBrewer's RdYlBu, darkened for both themes).
export const AGE_COLOURS = ["#2f6fb5", "#4f9fce", "#8cc3d8", "#e3b53a", "#ee8d31", "#dc5527", "#a81d2e"];

export function ageColour(age, cap) {
  const last = AGE_COLOURS.length - 1;
  if (age === null || age === undefined) return "#8892a0";
  return AGE_COLOURS[Math.min(last, age <= 0 ? 0 : Math.max(1, Math.round((age * last) / Math.max(cap || last, 2))))];
}
