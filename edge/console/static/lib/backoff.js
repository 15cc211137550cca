// Pauses between attempts: exponential with full jitter, so that clients that one fault threw out do
// not come back in step.
export class Backoff {
    hint;
    most;
    attempts;
    fixed;
    failed = 0;
    constructor(o = {}) {
        this.fixed = o.first !== undefined;
        this.hint = o.first ?? 1000;
        this.most = o.most ?? 30_000;
        this.attempts = o.attempts ?? Infinity;
    }
    /** Takes the server's reconnection hint, unless the caller has set its own. */
    suggest(ms) {
        if (!this.fixed)
            this.hint = Math.min(ms, this.most);
    }
    /** Is called after progress. */
    reset() {
        this.failed = 0;
    }
    /** Attempts in a row that brought nothing. */
    get failures() {
        return this.failed;
    }
    /** The next pause in milliseconds, never shorter than what the server asked for; undefined: give up. */
    next(atLeast = 0, random = Math.random) {
        if (++this.failed > this.attempts)
            return undefined;
        const bound = Math.min(this.most, this.hint * 2 ** Math.min(this.failed - 1, 30));
        return atLeast + random() * bound;
    }
}
/** Waits, unless the signal ends it; then it rejects with the signal's reason. */
export function sleep(ms, signal) {
    return new Promise((resolve, reject) => {
        if (signal?.aborted)
            return reject(signal.reason);
        const done = () => {
            signal?.removeEventListener("abort", stop);
            resolve();
        };
        const timer = setTimeout(done, ms);
        const stop = () => {
            clearTimeout(timer);
            reject(signal.reason);
        };
        signal?.addEventListener("abort", stop, { once: true });
    });
}
