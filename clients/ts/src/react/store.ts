// One run as a component shows it.

import { type AgentEvent, type Client, Fold, type Gap, type Snapshot, emptySnapshot } from "../index.js";
import type { TransportOptions, WatchOptions, WatchState } from "../index.js";
import { onWake } from "../wake.js";
import { Pictures } from "./pictures.js";

/** How a run is followed; see WatchOptions. */
export interface RunOptions extends Omit<WatchOptions, "signal" | "snapshot" | "onGap" | "onState" | "after" | "speed">, TransportOptions {
  /** Begin after this seq instead of with the sum of all that was: for runs whose sum is too large. */
  after?: number;
  /** Is called with every event, in order, before it is drawn. */
  onEvent?: (event: AgentEvent) => void;
}

/** How a run is followed at the moment: "idle" is not at all, "failed" is for good, as far as asking again goes. */
export type RunState = WatchState | { readonly state: "idle" } | { readonly state: "failed"; readonly error: Error };

/** A run as it stands. It never changes: what comes makes another one, which shares with this one what is the same. */
export interface RunView {
  /** The sum of the run. */
  readonly snapshot: Snapshot;
  /** Events that were left out for a slow connection, since the run was last read whole. */
  readonly gaps: readonly Gap[];
  /** Of the connection; the run's own is `snapshot.state`. */
  readonly state: RunState;
}

/** What is shown before anything has come. */
export const blank: RunView = { snapshot: emptySnapshot(), gaps: [], state: { state: "idle" } };

/** Follows a run while somebody looks. */
export class RunStore {
  private shown = blank;
  private fold = new Fold();
  private gaps: readonly Gap[] = [];
  private state = blank.state;
  private pictures = new Pictures();
  private work: AbortController | undefined; // of who looks now
  private following = false;

  /** @param run "" for none. */
  constructor(private readonly client: Client, private readonly run: string, private readonly options: () => RunOptions) {}

  readonly view = (): RunView => this.shown;

  /**
   * Begins to follow, and returns what ends that. What was seen before stays until the run has come anew: a connection that was ended
   * may have left out a part of an event, so it begins with the sum.
   */
  readonly subscribe = (changed: () => void): (() => void) => {
    if (this.run === "") return () => {};
    const work = (this.work = new AbortController());
    const frames = new Frames(() => {
      this.shown = { snapshot: this.pictures.of(this.fold.snapshot), gaps: this.gaps, state: this.state };
      changed();
    });
    this.draw = frames.ask;
    const stop = onWake(this.goOn);
    void this.follow(work.signal, false);
    return () => {
      stop();
      work.abort();
      frames.stop();
      this.work = undefined;
      this.following = false;
    };
  };

  private draw = (): void => {};

  /** Asks again whether there is more, where following has ended: somebody has said something, or looks at the page again. */
  readonly goOn = (): void => {
    if (this.work !== undefined && !this.following) void this.follow(this.work.signal, this.state.state === "over");
  };

  /** Follows until the run is over, from its sum on, or on from what is here. */
  private async follow(signal: AbortSignal, on: boolean): Promise<void> {
    this.following = true;
    const { onEvent: _, after, ...options } = this.options();
    const from = on ? { after: this.fold.snapshot.last_seq ?? 0 } : after === undefined ? { snapshot: true } : { after };
    const onState = (state: WatchState) => signal.aborted || this.say(state);
    let fold = on ? this.fold : undefined;
    try {
      for await (const { event, gap } of this.client.watch(this.run, { ...options, ...from, signal, onState })) {
        if (fold === undefined) {
          fold = this.fold = new Fold();
          this.gaps = [];
        }
        if (gap !== undefined) {
          this.gaps = [...this.gaps, gap];
        } else {
          fold.add(event);
          this.options().onEvent?.(event);
        }
        this.draw();
      }
    } catch (e) {
      if (!signal.aborted) this.say({ state: "failed", error: e instanceof Error ? e : new Error(String(e)) });
    }
    if (!signal.aborted) this.following = false;
  }

  private say(state: RunState): void {
    this.state = state;
    this.draw();
  }
}

/** Calls back once in the next frame, however often it is asked: where there are no frames, after 16 ms. */
class Frames {
  private asked: number | undefined;

  constructor(private readonly draw: () => void) {}

  readonly ask = (): void => {
    const run = () => {
      this.asked = undefined;
      this.draw();
    };
    this.asked ??= typeof requestAnimationFrame === "function" ? requestAnimationFrame(run) : (setTimeout(run, 16) as unknown as number);
  };

  stop(): void {
    if (this.asked === undefined) return;
    if (typeof cancelAnimationFrame === "function") cancelAnimationFrame(this.asked);
    else clearTimeout(this.asked);
    this.asked = undefined;
  }
}
