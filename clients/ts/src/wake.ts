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
