"use client";
// A run in React: what it holds, as long as a component shows it.

import { useMemo, useRef, useSyncExternalStore } from "react";
import { Client, type ClientOptions } from "../index.js";
import { type Commands, commandsOf } from "./commands.js";
import { RunStore, type RunOptions, type RunView, blank } from "./store.js";

export { type Commands } from "./commands.js";
export { type RunOptions, type RunState, type RunView } from "./store.js";

/** A run, and what can be done to it. */
export interface Run extends RunView {
  readonly commands: Commands;
}

/**
 * Returns a run as it stands, and draws the component anew when it has changed, once a frame at most. The run is followed while the
 * component is mounted; a server renders it without a stream. With null for the run, nothing is followed.
 *
 * The options are compared by what they say, so they may be written in place. Functions among them may change at each render: the
 * newest is called. What decides which run is shown (url, token as a text, run, view) begins anew when it changes.
 */
export function useRun(server: Client | ClientOptions, run: string | null | undefined, options: RunOptions = {}): Run {
  const client = useClient(server);
  const newest = useRef(options);
  newest.current = options;
  const sign = signature(options);
  const { store, commands } = useMemo(() => {
    const store = new RunStore(client, run ?? "", () => newest.current);
    return { store, commands: commandsOf(client, run ?? "", store.goOn) };
  }, [client, run, sign]);
  const view = useSyncExternalStore(store.subscribe, store.view, serverView);
  return useMemo(() => ({ ...view, commands }), [view, commands]);
}

const serverView = () => blank;

/** A client that is given, or the one of options, which is the same as long as they say the same. */
function useClient(server: Client | ClientOptions): Client {
  const newest = useRef(server);
  newest.current = server;
  const sign = server instanceof Client ? server : signature(server);
  return useMemo(() => {
    if (server instanceof Client) return server;
    const options = () => newest.current as ClientOptions;
    const o = { ...server };
    if (typeof server.token === "function") o.token = () => (options().token as () => string | Promise<string>)();
    if (server.fetch !== undefined) o.fetch = (input, init) => options().fetch!(input, init);
    return new Client(o);
  }, [sign]);
}

/** What options say, without their functions. */
function signature(options: object): string {
  return JSON.stringify(options, (_, v: unknown) => (typeof v === "function" ? "function" : v));
}
