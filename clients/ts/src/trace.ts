// The trace in which requests are sent, so that the server keeps it with what they bring.

/** What of OpenTelemetry's API is read. Its copies, of any version 1, share one object. */
interface OpenTelemetry {
  context?: { active(): { getValue(key: symbol): unknown } };
}

interface SpanContext {
  readonly traceId: string;
  readonly spanId: string;
  readonly traceFlags: number;
}

const api = Symbol.for("opentelemetry.js.api.1");
const spanKey = Symbol.for("OpenTelemetry Context Key SPAN");

/** The traceparent of OpenTelemetry's active span; undefined where there is none, and where nothing has loaded @opentelemetry/api. */
export function activeTraceparent(): string | undefined {
  const otel = (globalThis as { [api]?: OpenTelemetry })[api];
  const span = otel?.context?.active().getValue(spanKey) as { spanContext?(): SpanContext } | undefined;
  const at = span?.spanContext?.();
  if (at === undefined || !/^(?!0+$)[0-9a-f]{32}$/.test(at.traceId) || !/^(?!0+$)[0-9a-f]{16}$/.test(at.spanId)) return undefined;
  return `00-${at.traceId}-${at.spanId}-${(at.traceFlags & 3).toString(16).padStart(2, "0")}`;
}

/** What of Node tells whether something looks at each request of fetch. */
interface Node {
  process?: { getBuiltinModule?(name: string): { channel?(name: string): { hasSubscribers: boolean } } | undefined };
  location?: { origin: string };
}

/**
 * The active traceparent for a request to a server, where nobody else adds one: instrumentations of Node's fetch add theirs beside ours, and
 * two of them are none. In a page, for its own origin alone: elsewhere a header is a question of the browser's to the server.
 */
export function ownTraceparent(origin: string): string | undefined {
  const found = activeTraceparent();
  if (found === undefined) return undefined;
  const here = globalThis as Node;
  if (here.location !== undefined) return here.location.origin === origin ? found : undefined;
  const channel = here.process?.getBuiltinModule?.("node:diagnostics_channel")?.channel?.("undici:request:create");
  return here.process === undefined || channel?.hasSubscribers === false ? found : undefined;
}
