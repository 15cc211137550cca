// The stream over a native EventSource, for pages that want nothing else.
import { knownTypes } from "./catalogue.js";
import { ConnectionError } from "./errors.js";
import { lastWordOf } from "./fetch.js";
import { pushed } from "./push.js";
/**
 * Connects with an EventSource. An EventSource would come back by itself, with a ticket that is used
 * up: so each is closed at its first error, and the next has a ticket and a cursor of its own.
 *
 * Events come without names, as messages. Where a server names them (older ones did), an EventSource has no listener
 * for every type: `types` are those beside the catalogue's that the run may hold (`custom.*`); an event of another type
 * shows up as a gap then.
 */
export class EventSourceTransport {
    config;
    source;
    types;
    constructor(config, source, types = []) {
        this.config = config;
        this.source = source;
        this.types = types;
    }
    refused() {
        return this.config.credentials.refused(this.config.credentials.used);
    }
    connect(a) {
        return pushed(this.config, a, (url, sink) => open(new this.source(url.href), sink, this.types));
    }
}
function open(es, sink, types) {
    es.addEventListener("open", () => sink.opened());
    for (const type of new Set(["message", ...knownTypes, ...types])) {
        es.addEventListener(type, (e) => sink.message(e.data));
    }
    es.addEventListener("stream.error", (e) => sink.failed(lastWordOf(e)));
    // A clean end and a cut look alike here: the next connection, or what HTTP says in its place, tells.
    es.addEventListener("error", () => sink.failed(new ConnectionError("the event stream ended")));
    return { close: () => es.close() };
}
