// Bodies that break off, for the clients of other people that resume.

/**
 * A fetch whose next body breaks off after state.left bytes, or when state.cut is called. Later ones are whole. broken makes the error
 * that the reader gets, redirect may send a request to another node, and state.got counts the bytes that have passed.
 */
export function cutting({ broken = () => new TypeError("network error"), redirect = (url) => url } = {}) {
  const state = { left: Infinity, cut: null, asked: [], got: 0 };
  const request = async (url, init) => {
    const to = redirect(url);
    state.asked.push({ method: init?.method ?? "GET", url: String(to), body: init?.body });
    const resp = await fetch(to, init);
    if (state.left === Infinity || !resp.body) return resp;
    let { left } = state;
    state.left = Infinity;
    const reader = resp.body.getReader();
    const body = new ReadableStream({
      async pull(out) {
        const told = new Promise((go) => { state.cut = () => go({ done: true }); });
        const { done, value } = await Promise.race([reader.read(), told]);
        if (!done && value.length < left) {
          left -= value.length;
          state.got += value.length;
          return out.enqueue(value);
        }
        if (!done && left > 0) out.enqueue(value.subarray(0, left));
        left = 0;
        reader.cancel().catch(() => {});
        // What is queued is read before the error, as from a socket.
        setTimeout(() => out.error(broken()), 5);
      },
    }, { highWaterMark: 0 });
    return new Response(body, { status: resp.status, headers: resp.headers });
  };
  return { state, request };
}

/** The places at which a body is cut: after each frame and in the middle of it. keep says which of them. */
export function places(text, keep = () => true) {
  const list = [];
  let at = 0;
  for (const frame of text.split("\n\n").slice(0, -1)) {
    const size = Buffer.byteLength(frame) + 2;
    list.push(at + Math.floor(size / 2), at + size);
    at += size;
  }
  return list.slice(0, -1).filter((_, i) => keep(_, i));
}
