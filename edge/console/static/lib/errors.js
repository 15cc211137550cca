// What can go wrong, sorted by what a caller can do about it.
/** What the server said against a request, or about the end of a stream. */
export class ServerError extends Error {
    name = "ServerError";
    /** HTTP status; for the last word of a stream the one that it would have been. */
    status;
    /** `KAI-STREAM-…` or the server's own word; "" when something between us and it answered. */
    code;
    /** Everything else that it said, such as first_seq with 410. */
    problem;
    /** How long it wants to be left alone, in milliseconds. */
    retryAfter;
    constructor(status, problem, retryAfter) {
        super(`${problem.code ? problem.code + ": " : ""}${problem.message || "refused"} (HTTP ${status})`);
        this.status = status;
        this.code = problem.code ?? "";
        this.problem = problem;
        this.retryAfter = retryAfter;
    }
    /** Whether the same request may be answered otherwise later. */
    get passing() {
        return [408, 425, 429, 502, 503, 504].includes(this.status);
    }
    /** Whether another credential is wanted. */
    get unauthorized() {
        return this.status === 401;
    }
}
/** The server broke the protocol: asking again will not help. */
export class ProtocolError extends Error {
    name = "ProtocolError";
}
/** A connection that ended without a word, or was silent for too long. Watching goes on behind it. */
export class ConnectionError extends Error {
    name = "ConnectionError";
    /** What is known to come: how long the server asked to be left alone, in milliseconds. */
    retryAfter;
    constructor(message, options = {}) {
        super(message, options.cause === undefined ? undefined : { cause: options.cause });
        this.retryAfter = options.retryAfter;
    }
}
const statusOfCode = {
    "CREDENTIAL-EXPIRED": 401,
    UNAUTHORIZED: 401,
    FORBIDDEN: 403,
    "NOT-FOUND": 404,
    "BAD-CURSOR": 400,
    "BAD-ID": 400,
    "BAD-REQUEST": 400,
    "CURSOR-AHEAD": 409,
    "KAI-STREAM-CONN-0002": 410,
    "KAI-STREAM-PROTO-0001": 400,
};
/** Makes an error of the last word of a stream, which has a code and maybe no status. */
export function lastWord(problem) {
    // A code that is not listed is one to come back from: the cursor is safe.
    return new ServerError(problem.status ?? statusOfCode[problem.code ?? ""] ?? 503, problem);
}
/** Reads a Problem out of a JSON text; undefined when it holds none. */
export function readProblem(text) {
    try {
        const answer = JSON.parse(text);
        const e = answer?.error;
        return e && (typeof e.code === "string" || typeof e.message === "string") ? e : undefined;
    }
    catch {
        return undefined;
    }
}
/** Reads a refusal. What is not the server's form, as from a proxy, leaves the status. */
export async function refusal(res) {
    let text = "";
    try {
        text = await res.text();
    }
    catch {
        // A refusal that was cut is still its status.
    }
    const problem = readProblem(text) ?? {};
    const id = res.headers.get("X-Request-Id");
    if (problem.request_id === undefined && id !== null)
        problem.request_id = id;
    return new ServerError(res.status, problem, retryAfter(res.headers.get("Retry-After"), Date.now()));
}
/** Both forms of RFC 9110 §10.2.3, in milliseconds. */
export function retryAfter(value, now) {
    if (value === null)
        return undefined;
    if (/^[0-9]{1,9}$/.test(value))
        return Number(value) * 1000;
    const at = Date.parse(value);
    return Number.isNaN(at) ? undefined : Math.max(0, at - now);
}
