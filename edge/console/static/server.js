// The server as the console uses it: the TypeScript client, the credential of this tab, and requests that the client has not.

import { Client, ProtocolError, ServerError } from "./lib/index.js";

const key = "agentstream-token";
const ownKey = "agentstream-own-token"; // the tab's own one while it reads by a share link

/** The token that was entered in this tab; "" for none. */
export const token = () => sessionStorage.getItem(key) ?? "";

/** Keeps a token for as long as the tab is open. "" forgets it. */
export function keepToken(value) {
  sessionStorage.removeItem(ownKey);
  if (value === "") sessionStorage.removeItem(key);
  else sessionStorage.setItem(key, value);
}

/** Lends the tab the token of a share; takeBack returns to its own one. */
export function lendToken(value) {
  const own = sessionStorage.getItem(ownKey) ?? token();
  keepToken(value);
  if (own !== "" && !own.startsWith("shr_")) sessionStorage.setItem(ownKey, own);
}

/** Reports whether the tab has a token of its own beside the one that it was lent. */
export const lent = () => sessionStorage.getItem(ownKey) !== null;

/** Returns to the tab's own token, or to none. */
export const takeBack = () => keepToken(sessionStorage.getItem(ownKey) ?? "");

/** Returns a client that has the tab's token, or none. */
export function connect() {
  const t = token();
  return new Client({ url: location.origin, ...(t === "" ? {} : { token: t }) });
}

/** Sends a request that is not the client's, and returns its answer read as JSON. It throws a ServerError. */
export async function ask(path, { method = "GET", body, signal, any = false, as = token() } = {}) {
  const headers = { Accept: "application/json" };
  if (as !== "") headers.Authorization = `Bearer ${as}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const res = await fetch(path, { method, headers, signal: signal ?? null, cache: "no-store", body: body === undefined ? null : JSON.stringify(body) });
  const text = await res.text();
  let value = {};
  try {
    value = text === "" ? {} : JSON.parse(text);
  } catch {
    value = { message: text.slice(0, 300) };
  }
  if (!res.ok && !any) {
    const problem = typeof value.error === "object" && value.error !== null ? value.error : value;
    throw new ServerError(res.status, problem);
  }
  return value;
}

/** Returns who a token is for, by default the tab's: tenant, scopes, and the run that it is limited to. */
export const whoami = (signal, as = token()) => ask("/v1/agent/whoami", { signal, as });

/** Returns why something failed, to end a sentence with: what the server said, without codes. */
export function why(e) {
  if (e instanceof ServerError && e.problem.message) return e.problem.message;
  if (e.constructor === Error) return e.message; // the console's own words
  const { title } = explain(e);
  return title[0].toLowerCase() + title.slice(1);
}

/** Returns why something failed as a sentence of its own. */
export function sentence(e) {
  const text = why(e);
  return `${text[0].toUpperCase()}${text.slice(1)}.`;
}

/** Returns what an error means to a person: a title, and what one can do. */
export function explain(e) {
  if (e.notShare) return { title: "This is no share link", text: "What it holds is not the token of a share. Nobody was signed in or out by it." };
  if (e instanceof SyntaxError || e instanceof ProtocolError) return { title: "The answer cannot be read", text: "It is not what this server sends: something between may have answered in its place.", retry: true };
  if (!(e instanceof ServerError)) return { title: "The server cannot be reached", text: "The page goes on by itself when it is back.", retry: true };
  const code = e.code;
  if (e.shared && e.status === 401) return { title: "This link has ended", text: "It has expired, or whoever made it may no longer share the run. Ask for a new one." };
  if (e.status === 401) return { title: "Not signed in", text: "The token is missing, wrong or has expired.", signIn: true };
  if (e.status === 403) return { title: "Not allowed", text: "The token does not allow this. Sign in with one that has the scope.", signIn: true };
  if (e.status === 404) return { title: "No such run", text: "There is no run with this id, or it belongs to another tenant." };
  if (e.status === 410) return { title: "No longer kept", text: "The beginning of this run, or all of it, has expired or was deleted. What is left can be read as events." };
  if (e.status === 413) return { title: "Too large to be summed up", text: "The newest events are shown instead." };
  if (code === "BAD-ID") return { title: "That is no run id", text: "An id has 1 to 128 letters, digits, _ and -." };
  if (code === "NO-CATALOG" || e.status === 501) return { title: "This server keeps no list of runs", text: "A run can still be opened by its id." };
  if (e.status >= 500) return { title: "The server has a problem", text: e.problem.message ? sentence(e) : `The answer has the status ${e.status}.`, retry: true };
  return { title: "Refused", text: e.problem.message ? sentence(e) : `The answer has the status ${e.status}.` };
}
