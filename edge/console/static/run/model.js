// One run as a screen shows it: its sum at a place, which is the newest one or one in the past, and how it got there.

import { Fold, ServerError } from "../lib/index.js";
import { Spans, spanTypes } from "./spans.js";

/** Events that are read when a run is too large to be summed up. */
const tail = 2000;

/** Most events of a run that the server is asked to sum up while a person waits. */
const summed = 50_000;

/** Most events that are read for the timeline at once. */
const history = 50_000;

/** Milliseconds between two looks at what the list of runs knows of a long run. */
const relook = 10_000;

/** Milliseconds out of sight after which the tab's stream is given back. */
const outOfSight = 10_000;

/** Events that are read whole for the timeline: a run without turns and calls has its bars from its text. */
const small = 2000;

const final = new Set(["done", "aborted", "error"]);

/**
 * Follows a run, and goes back in it. `changed(what)` is called after every change: "event" when the sum has grown, "place"
 * when it is another sum, "connection", "spans". Everything ends with the signal.
 */
export class RunModel {
  fold = new Fold();
  spans = new Spans();
  mode = "live"; // "live", "past", "playing"
  newest = 0; // the newest seq that is known
  partial = false; // the sum begins behind the run's first event
  start = 0; // then: behind this one
  listed = null; // then: what the list of runs knows, of the whole run
  connection = { state: "connecting", text: "connecting" };
  gaps = [];
  ended = false; // the stream is over
  now = null; // the newest state of the run that is known
  #work = new AbortController();
  #cut; // while a cut connection catches up: { from, target, lost }

  /** lists: whether the credential may read the list of runs. */
  constructor(client, run, signal, changed, lists) {
    Object.assign(this, { client, run, signal, changed, lists });
    signal.addEventListener("abort", () => this.#work.abort());
  }

  /** Reports whether the run is over, wherever the sum stands. */
  get over() {
    return final.has(this.now);
  }

  /** The seq up to which the sum goes. */
  get position() {
    return this.fold.snapshot.last_seq ?? 0;
  }

  /** Follows the run from its sum on, until it is over. It throws what asking again cannot change. */
  async follow() {
    const signal = this.#begin("live");
    this.fold = new Fold();
    this.partial = false;
    this.changed("place");
    let known = {};
    try {
      known = await this.#know(signal);
    } catch (e) {
      if (signal.aborted) return;
      if (e instanceof ServerError) throw e;
      // The server is away: the stream tries again until it is there.
    }
    try {
      if (known.last_seq > summed) return await this.#newest(known.last_seq, signal);
      await this.#watch({ snapshot: true }, signal);
    } catch (e) {
      if (!(e instanceof ServerError) || ![413, 410].includes(e.status)) throw e;
      const { last_seq = 0 } = await this.#know(signal);
      await this.#newest(last_seq, signal, e.problem.first_seq);
    }
  }

  /** Asks how far the run has come, and in which state it is. */
  async #know(signal) {
    const known = await this.client.run(this.run, signal);
    this.newest = Math.max(this.newest, known.last_seq ?? 0);
    this.now = known.state ?? this.now;
    return known;
  }

  /** Follows a run that is not summed up, from its newest events on. */
  #newest(last, signal, first = 1) {
    this.partial = true;
    this.start = Math.max(first - 1, last - tail, 0);
    if (this.lists) this.#look(signal);
    return this.#watch({ after: this.start }, signal);
  }

  /** Reads what the list of runs knows of this one, again and again: its title, and the usage of all of it. */
  async #look(signal) {
    for (; !signal.aborted; await new Promise((r) => setTimeout(r, relook))) {
      if (this.listed !== null && (this.ended || document.visibilityState === "hidden")) continue;
      try {
        const { started_at: since } = await this.client.run(this.run, signal);
        const until = new Date(Date.parse(since) + 1).toISOString();
        const { runs } = await this.client.runsPage({ since, until, limit: 200 }, signal);
        this.listed = runs.find((r) => r.run_id === this.run) ?? null;
        this.changed("event");
      } catch (e) {
        if (e instanceof ServerError) return; // this server keeps no list
      }
    }
  }

  /** Goes to the sum at a seq. */
  async jump(seq) {
    const signal = this.#begin("past");
    let fold, at = seq;
    try {
      await this.#know(signal);
      at = Math.max(1, Math.min(seq, this.newest));
      if (at > summed) fold = await this.#tail(at, signal);
      else fold = new Fold(await this.client.snapshot(this.run, signal, at));
      this.partial = at > summed;
    } catch (e) {
      if (signal.aborted) return;
      if (!(e instanceof ServerError) || ![413, 410].includes(e.status)) throw e;
      fold = await this.#tail(at, signal, e.problem.first_seq);
      this.partial = true;
    }
    if (signal.aborted) return;
    this.fold = fold;
    this.#sayPast();
    this.changed("place");
  }

  /** Says that what is shown is not now. */
  #sayPast() {
    this.#say("past", `past · the run ${this.over ? "has ended" : "goes on"}`);
  }

  /** Returns the sum of the events up to one, from not too many before it on. */
  async #tail(at, signal, first = 1) {
    const fold = new Fold();
    this.start = Math.max(first - 1, at - tail, 0);
    for await (const event of this.client.events(this.run, { after: this.start, limit: 1000 }, signal)) {
      if (event.seq > at) break;
      fold.add(event);
    }
    return fold;
  }

  /** Goes n events on, or back. */
  async step(n) {
    if (n < 0 || this.position + n > this.newest) return this.jump(this.position + n);
    const signal = this.#begin("past");
    for (const event of await this.client.page(this.run, { after: this.position, limit: n }, signal)) this.fold.add(event);
    this.#sayPast();
    this.changed("event");
  }

  /** Plays the run on from here, so many times faster than it was. */
  async play(speed) {
    if (this.mode === "live") await this.jump(1);
    const signal = this.#begin("playing");
    this.changed("connection");
    await this.#watch({ after: this.position, speed, detail: "full" }, signal);
  }

  /** Stays where it is. */
  pause() {
    this.#begin("past");
    this.#sayPast();
  }

  /** Reads what the timeline needs: of a long run its newest steps, unless all are asked for, and 50,000 at most. */
  async readSpans(all = false) {
    if (all) this.spans = new Spans();
    const { spans, run, signal } = this;
    const { last_seq } = await this.client.run(run, signal);
    const query = { limit: 1000, ...(last_seq <= small ? {} : { types: spanTypes }) };
    if (!all && last_seq > summed) {
      for (const e of (await this.client.page(run, { ...query, order: "desc" }, signal)).reverse()) spans.add(e);
      spans.left = "its newest steps";
    } else {
      for await (const e of this.client.events(run, query, signal)) {
        if (spans !== this.spans) return;
        spans.add(e);
        if (spans.size % 1000 === 0) this.changed("spans");
        if (spans.size < history) continue;
        spans.left = `the first ${history.toLocaleString("en-US")} steps`;
        break;
      }
    }
    spans.ready();
    this.changed("spans");
  }

  #begin(mode) {
    this.#work.abort();
    this.#work = new AbortController();
    if (this.signal.aborted) this.#work.abort();
    this.mode = mode;
    this.#cut = undefined;
    return this.#work.signal;
  }

  async #watch(view, signal) {
    const onState = (s) => !signal.aborted && this.#state(s);
    try {
      for await (const item of this.client.watch(this.run, { ...view, signal, onState, hidden: outOfSight })) {
        if (signal.aborted) return;
        if (item.gap !== undefined) this.#gap(item.gap);
        else this.#take(item.event);
      }
    } catch (e) {
      if (signal.aborted) return;
      throw e;
    }
  }

  #take(event) {
    const whole = event.type === "run.snapshot";
    this.fold.add(event);
    if (event.seq >= this.newest) this.now = this.fold.snapshot.state ?? this.now;
    this.newest = Math.max(this.newest, event.seq);
    if (!whole) this.spans.later(event);
    if (this.#cut?.target !== undefined && event.seq >= this.#cut.target) this.#caughtUp();
    this.changed(whole ? "place" : "event");
  }

  #gap(gap) {
    this.gaps.push(gap);
    if (this.#cut !== undefined) this.#cut.lost += gap.to - gap.from + 1;
    this.changed("gap");
  }

  #state(s) {
    this.ended = s.state === "over";
    if (s.state === "waiting") {
      this.#cut ??= { from: this.position, lost: 0 };
      this.#say("offline", `offline, trying again in ${Math.ceil(s.ms / 1000)} s`);
    } else if (s.state === "hidden") this.#say("hidden", "paused while the tab is hidden");
    else if (s.state === "connecting") this.#say(this.#cut ? "offline" : "connecting", this.#cut ? "offline, connecting" : "connecting");
    else if (s.state === "over") this.#say("over", this.mode === "playing" ? "played to its end" : "ended · complete");
    else if (this.#cut === undefined) this.#say("live", this.mode === "playing" ? "playing" : "live");
    else {
      this.#say("catching", "catching up");
      this.#target(this.#cut);
    }
  }

  /** Learns how far the run had come when the connection was back. */
  async #target(cut) {
    try {
      const { last_seq } = await this.client.run(this.run, this.#work.signal);
      cut.target = last_seq ?? this.position;
      if (cut === this.#cut && this.position >= cut.target) this.#caughtUp();
    } catch {
      // The next cut, or the next event, says more.
    }
  }

  #caughtUp() {
    const { from, target, lost } = this.#cut;
    this.#cut = undefined;
    const n = target - from;
    this.#say("live", `live · reconnected, ${n.toLocaleString("en-US")} ${n === 1 ? "event" : "events"} caught up, ${lost === 0 ? "none lost" : `${lost} left out`}`);
  }

  #say(state, text) {
    this.connection = { state, text };
    this.changed("connection");
  }
}
