// The address of a page names its chat, so that a reload, a second tab or another device shows the same.
const parameters = new URLSearchParams(location.search);
if (!parameters.has("chat")) {
  parameters.set("chat", `chat_${crypto.randomUUID()}`);
  history.replaceState(null, "", `?${parameters}`);
}

export const chat = parameters.get("chat");

/** Where agentstream is: behind this page's own server, unless the address says otherwise. */
export const server = parameters.get("server") ?? location.origin;
