// The trace of one execution, from dispatch to gradient, as its spans.
import { html } from "./lib.js";
import { number, seconds, visible } from "./format.js";

export function Spans({ found }) {
  const { spans, trace } = found;
  if (!spans.length) return html`<section class="card" aria-label="Trace"><h2>Trace</h2><p class="note">No spans: tracing was off (<code>ledger.traces</code>), or they went to another collector.</p></section>`;
  const begin = Math.min(...spans.map((span) => span.start_ns));
  const end = Math.max(...spans.map((span) => span.end_ns));
  const width = Math.max(end - begin, 1);
  return html`
    <section class="card" aria-label="Trace"><h2>Trace <span class="mono">${trace.trace_id}</span> <small class="note">${number(trace.spans)} spans, ${seconds(trace.total_s)}, ${seconds(trace.unaccounted_s)} of it in none</small></h2>
      <div class="spans" tabindex="0" role="list" aria-label="Spans in order of their start">${spans.map((span) => html`
        <div class="span" role="listitem" key=${span.span_id} title=${visible(JSON.stringify(span.attributes ?? {}), 600)}>
          <span class="name" style=${{ paddingLeft: `${Math.min(span.depth, 12) * 12}px` }}>${visible(span.name, 120)} <small class="note">${visible(span.service).replace(/^gyre\./, "")}</small></span>
          <span class="track"><i class=${span.status === 2 ? "error" : ""} style=${{ left: `${(100 * (span.start_ns - begin)) / width}%`, width: `${(100 * (span.end_ns - span.start_ns)) / width}%` }}></i></span>
          <span>${seconds((span.end_ns - span.start_ns) / 1e9)}</span>
        </div>`)}</div>
      ${found.spans_left_out > 0 && html`<p class="note">The first ${spans.length}; ${number(found.spans_left_out)} more are in the export.</p>`}
    </section>`;
}
