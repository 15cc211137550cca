// The stream over WebSocket: text frames, one event each, subprotocol koder-agent-stream-v1.

import { ConnectionError, lastWord } from "./errors.js";
import { type PushConfig, type Pushed, type PushSink, pushed } from "./push.js";
import type { Attempt, Message, Transport } from "./stream.js";

/** The subprotocol that is offered. */
export const subprotocol = "koder-agent-stream-v1";

/** What is used of a WebSocket: that of browsers, of Node from 22, and of the package ws. */
export interface WebSocketLike {
  addEventListener(type: string, listener: (event: never) => void): void;
  close(code?: number, reason?: string): void;
  /** The package ws can wait for its reader, and tells of pings. */
  pause?(): void;
  resume?(): void;
  on?(event: string, listener: () => void): unknown;
  terminate?(): void;
}

/** A constructor of WebSockets. */
export type WebSocketConstructor = new (url: string, protocols: string) => WebSocketLike;

/** Connects with a WebSocket. A browser cannot set headers on it: credentials travel as one-use tickets. */
export class WebSocketTransport implements Transport {
  constructor(
    private readonly config: PushConfig,
    private readonly socket: WebSocketConstructor,
  ) {}

  refused(): Promise<boolean> {
    return this.config.credentials.refused(this.config.credentials.used);
  }

  connect(a: Attempt): AsyncGenerator<Message, "ended" | "over", void> {
    return pushed(this.config, a, (url, sink) => {
      url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
      return open(new this.socket(url.href, subprotocol), sink);
    });
  }
}

function open(ws: WebSocketLike, sink: PushSink): Pushed {
  ws.addEventListener("open", () => sink.opened());
  ws.addEventListener("message", (e: { data: unknown }) => {
    if (typeof e.data === "string") sink.message(e.data);
    else sink.failed(new ConnectionError("a binary message"));
  });
  ws.addEventListener("error", () => {}); // close follows, and says more
  ws.addEventListener("close", (e: { code: number; reason: string }) => {
    if (e.code === 1000) sink.complete();
    else sink.failed(closeError(e.code, e.reason));
  });
  ws.on?.("ping", () => sink.alive());
  return {
    close: () => (ws.terminate ? ws.terminate() : ws.close()),
    ...(ws.pause && ws.resume ? { pause: () => ws.pause!(), resume: () => ws.resume!() } : {}),
  };
}

/** The server's reasons begin with its code; 1006 is a connection that was cut. */
function closeError(code: number, reason: string): Error {
  const word = /^[A-Z][A-Z0-9]*(-[A-Z0-9]+)*/.exec(reason)?.[0];
  if (word === undefined) return new ConnectionError(`closed with ${code}${reason ? ": " + reason : ""}`);
  return lastWord({ code: word, message: `closed with ${code}` });
}
