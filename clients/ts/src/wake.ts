// Pages that were kept: a browser stops a page in the background, or keeps one that was left to go back to, and shows
// it again with connections that are dead and may never say so.

/** What is used of a page: its window and its document. */
interface Target {
  addEventListener(type: string, listener: (e: { persisted?: boolean }) => void): void;
  removeEventListener(type: string, listener: (e: { persisted?: boolean }) => void): void;
}

const page = globalThis as unknown as Partial<Target> & { document?: Target & { visibilityState?: string } };

/**
 * Calls `woken` when the page goes on that was stopped, and when it is connected to a network again. `sure` says that nothing can have
 * come meanwhile; otherwise the page was out of sight for `ms`, and may have been stopped. Outside of pages nothing is ever called.
 * It returns what ends that.
 */
export function onWake(woken: (sure: boolean, ms: number) => void): () => void {
  const { document } = page;
  if (document === undefined || page.addEventListener === undefined) return () => {};
  let hidden = Date.now();
  const shown = (e: { persisted?: boolean }) => e.persisted && woken(true, 0);
  const resumed = () => woken(true, 0);
  const seen = () => {
    if (document.visibilityState === "visible") woken(false, Date.now() - hidden);
    else hidden = Date.now();
  };
  const online = () => woken(false, 0);
  const all: [Partial<Target>, string, (e: { persisted?: boolean }) => void][] = [
    [page, "pageshow", shown], [page, "online", online], [document, "resume", resumed], [document, "visibilitychange", seen],
  ];
  for (const [target, type, listener] of all) target.addEventListener!(type, listener);
  return () => {
    for (const [target, type, listener] of all) target.removeEventListener!(type, listener);
  };
}

/** Whether the page was out of sight for a while. Outside of pages it never is. */
export class Sight {
  /** The page is out of sight, and has been for the time that was given. */
  lost = false;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private seen: (() => void) | undefined;

  /** Calls `lost` when the page has been out of sight for `ms`; Infinity is never. */
  constructor(private readonly ms: number, private readonly gone: () => void) {
    if (page.document === undefined || !Number.isFinite(ms)) return;
    page.document.addEventListener("visibilitychange", this.look);
    this.look();
  }

  private readonly look = (): void => {
    clearTimeout(this.timer);
    if (page.document!.visibilityState === "hidden") {
      this.timer = setTimeout(() => {
        this.lost = true;
        this.gone();
      }, this.ms);
      return;
    }
    this.lost = false;
    this.seen?.();
  };

  /** Resolves when the page is in sight again; rejects with the signal's reason. */
  async back(signal: AbortSignal | undefined): Promise<void> {
    signal?.throwIfAborted();
    if (!this.lost) return;
    await new Promise<void>((resolve) => {
      this.seen = resolve;
      signal?.addEventListener("abort", () => resolve(), { once: true });
    });
    signal?.throwIfAborted();
  }

  /** Ends the watch of the page. */
  stop(): void {
    clearTimeout(this.timer);
    page.document?.removeEventListener("visibilitychange", this.look);
  }
}
