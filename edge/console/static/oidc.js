// Signing in at an OpenID Connect issuer: authorization code with PKCE (RFC 7636), by the page itself, without a secret.

import { keepToken } from "./server.js";

const key = "agentstream-sign-in";
const address = () => `${location.origin}/console/`;

/** Returns how people sign in here: { issuer, authorization_endpoint, token_endpoint, client_id, scope }, or null. */
export async function issuer() {
  const res = await fetch("sign-in.json");
  return res.ok ? res.json() : null;
}

/** Leaves for the issuer; the page is opened again with a code. to is where the person was going. */
export async function leave(o, to) {
  const [verifier, state] = [random(), random()];
  sessionStorage.setItem(key, JSON.stringify({ verifier, state, token_endpoint: o.token_endpoint, client_id: o.client_id, to }));
  const challenge = base64url(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier)));
  const url = new URL(o.authorization_endpoint);
  const given = { response_type: "code", client_id: o.client_id, redirect_uri: address(), scope: o.scope, state, code_challenge: challenge, code_challenge_method: "S256", ...(o.audience ? { audience: o.audience } : {}) };
  for (const [name, value] of Object.entries(given)) url.searchParams.set(name, value);
  location.assign(url);
}

/** Takes the code that the issuer has sent along, if it has, and gets a token for it. It throws what went wrong. */
export async function arrive() {
  const q = new URLSearchParams(location.search);
  if (!q.has("state")) return;
  const kept = JSON.parse(sessionStorage.getItem(key) ?? "null");
  sessionStorage.removeItem(key);
  history.replaceState(null, "", `/console/${kept?.to ?? ""}`);
  if (kept === null || kept.state !== q.get("state")) throw new Error("this tab has not asked for it; begin again");
  if (q.has("error")) throw new Error(q.get("error_description") ?? q.get("error"));
  const res = await fetch(kept.token_endpoint, { method: "POST", credentials: "omit", body: new URLSearchParams({ grant_type: "authorization_code", code: q.get("code") ?? "", redirect_uri: address(), client_id: kept.client_id, code_verifier: kept.verifier }) });
  const { access_token, error } = await res.json();
  if (typeof access_token !== "string") throw new Error(String(error ?? `the issuer answered ${res.status}`));
  keepToken(access_token);
}

const random = () => base64url(crypto.getRandomValues(new Uint8Array(32)));

function base64url(bytes) {
  return btoa(String.fromCharCode(...new Uint8Array(bytes))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}
