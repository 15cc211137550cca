// Pauses between attempts: exponential with full jitter, so that clients that one fault threw out do
// not come back in step.

/** Bounds of the pauses, in milliseconds. */
export interface BackoffOptions {
  /** Bound of the first pause, until the server gives a hint. Default 1000. */
  first?: number;
  /** Bound of every pause. Default 30 000. */
  most?: number;
  /** How many attempts in a row may fail without progress before watching gives up. Default: no limit. */
  attempts?: number;
}

export class Backoff {
  private hint: number;
  private readonly most: number;
  private readonly attempts: number;
  private readonly fixed: boolean;
  private failed = 0;

  constructor(o: BackoffOptions = {}) {
    this.fixed = o.first !== undefined;
    this.hint = o.first ?? 1000;
    this.most = o.most ?? 30_000;
    this.attempts = o.attempts ?? Infinity;
  }

  /** Takes the server's reconnection hint, unless the caller has set its own. */
  suggest(ms: number): void {
    if (!this.fixed) this.hint = Math.min(ms, this.most);
  }

  /** Is called after progress. */
  reset(): void {
    this.failed = 0;
  }

  /** Attempts in a row that brought nothing. */
  get failures(): number {
    return this.failed;
  }

  /** The next pause in milliseconds, never shorter than what the server asked for; undefined: give up. */
  next(atLeast = 0, random: () => number = Math.random): number | undefined {
    if (++this.failed > this.attempts) return undefined;
    const bound = Math.min(this.most, this.hint * 2 ** Math.min(this.failed - 1, 30));
    return atLeast + random() * bound;
  }
}

/** Waits, unless the signal ends it; then it rejects with the signal's reason. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason as Error);
    const done = () => {
      signal?.removeEventListener("abort", stop);
      resolve();
    };
    const timer = setTimeout(done, ms);
    const stop = () => {
      clearTimeout(timer);
      reject(signal!.reason as Error);
    };
    signal?.addEventListener("abort", stop, { once: true });
  });
}
