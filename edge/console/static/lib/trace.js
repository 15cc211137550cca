// The trace in which requests are sent, so that the server keeps it with what they bring.
const api = Symbol.for("opentelemetry.js.api.1");
const spanKey = Symbol.for("OpenTelemetry Context Key SPAN");
/** The traceparent of OpenTelemetry's active span; undefined where there is none, and where nothing has loaded @opentelemetry/api. */
export function activeTraceparent() {
    const otel = globalThis[api];
    const span = otel?.context?.active().getValue(spanKey);
    const at = span?.spanContext?.();
    if (at === undefined || !/^(?!0+$)[0-9a-f]{32}$/.test(at.traceId) || !/^(?!0+$)[0-9a-f]{16}$/.test(at.spanId))
        return undefined;
    return `00-${at.traceId}-${at.spanId}-${(at.traceFlags & 3).toString(16).padStart(2, "0")}`;
}
/**
 * The active traceparent for a request to a server, where nobody else adds one: instrumentations of Node's fetch add theirs beside ours, and
 * two of them are none. In a page, for its own origin alone: elsewhere a header is a question of the browser's to the server.
 */
export function ownTraceparent(origin) {
    const found = activeTraceparent();
    if (found === undefined)
        return undefined;
    const here = globalThis;
    if (here.location !== undefined)
        return here.location.origin === origin ? found : undefined;
    const channel = here.process?.getBuiltinModule?.("node:diagnostics_channel")?.channel?.("undici:request:create");
    return here.process === undefined || channel?.hasSubscribers === false ? found : undefined;
}
