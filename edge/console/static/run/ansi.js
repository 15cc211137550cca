// What a terminal would do with a text, as classes: its colours and weights. What is no colour is left in the text.

const sgr = /\x1b\[([\d;:]*)m/g;
const weights = { 1: "bold", 2: "dim", 3: "italic", 4: "line", 7: "turned", 9: "struck" };
const ends = { 22: ["bold", "dim"], 23: ["italic"], 24: ["line"], 27: ["turned"], 29: ["struck"] };

/** Reads a text piece by piece; a style that one piece has set holds in the next. */
export class Ansi {
  #on = new Set();
  #fore = undefined; // 0 to 7
  #back = undefined;

  /** Returns the next text as [{ text, style }]: style is a list of classes, "" for none. */
  spans(text) {
    const out = [];
    let at = 0;
    for (const m of text.matchAll(sgr)) {
      if (m.index > at) out.push({ text: text.slice(at, m.index), style: this.#style() });
      this.#set(m[1]);
      at = m.index + m[0].length;
    }
    if (at < text.length) out.push({ text: text.slice(at), style: this.#style() });
    return out;
  }

  #style() {
    const all = [...this.#on].map((w) => `a-${w}`);
    if (this.#fore !== undefined) all.push(`a-f${this.#fore}`);
    if (this.#back !== undefined) all.push(`a-g${this.#back}`);
    return all.join(" ");
  }

  #set(parameters) {
    const list = parameters.split(/[;:]/).map(Number);
    for (let i = 0; i < list.length; i++) {
      const n = list[i];
      if (n === 0) {
        this.#on.clear();
        this.#fore = this.#back = undefined;
      } else if (weights[n]) this.#on.add(weights[n]);
      else if (ends[n]) ends[n].forEach((w) => this.#on.delete(w));
      else if (n === 38 || n === 48) {
        const [colour, length] = extended(list.slice(i + 1));
        if (n === 38) this.#fore = colour;
        else this.#back = colour;
        i += length;
      } else if (n === 39) this.#fore = undefined;
      else if (n === 49) this.#back = undefined;
      else if ((n >= 30 && n < 38) || (n >= 90 && n < 98)) this.#fore = n % 10;
      else if ((n >= 40 && n < 48) || (n >= 100 && n < 108)) this.#back = n % 10;
    }
  }
}

/** Reads 5;N and 2;R;G;B: it returns the nearest of eight colours, which are readable in both themes, and how long it was. */
function extended([kind, ...rest]) {
  if (kind === 2) return [nearest(...rest), 4];
  if (kind !== 5) return [undefined, 1];
  const [n = 0] = rest;
  if (n < 16) return [n % 8, 2];
  if (n >= 232) return [n < 244 ? 0 : 7, 2];
  const level = (x) => (x === 0 ? 0 : 55 + 40 * x);
  return [nearest(level(Math.floor((n - 16) / 36)), level(Math.floor((n - 16) / 6) % 6), level((n - 16) % 6)), 2];
}

function nearest(r = 0, g = 0, b = 0) {
  const low = Math.min(r, g, b), high = Math.max(r, g, b);
  if (high - low < 40) return high < 128 ? 0 : 7;
  const middle = (low + high) / 2;
  return (r > middle ? 1 : 0) + (g > middle ? 2 : 0) + (b > middle ? 4 : 0);
}

const unified = /^@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@/m;
const head = /^(?:diff |index |--- |\+\+\+ |new file|deleted file|similarity |rename |Index: |=====)/;

/** Returns the lines of a unified diff as [{ text, style }]; undefined for a text that is none. */
export function diff(text) {
  if (!unified.test(text.slice(0, 64 << 10))) return undefined;
  let within = 0, left = 0; // lines that the hunk still removes or keeps, and adds or keeps
  return text.split("\n").map((line, i, all) => {
    const hunk = /^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@/.exec(line);
    const style = hunk ? "d-hunk" : within > 0 || left > 0 ? { "+": "d-add", "-": "d-del" }[line[0]] ?? "" : head.test(line) ? "d-head" : "";
    if (hunk) [within, left] = [Number(hunk[1] ?? 1), Number(hunk[2] ?? 1)];
    else if (style === "d-add") left--;
    else if (style === "d-del") within--;
    else if (line[0] !== "\\") (within--, left--);
    return { text: i < all.length - 1 ? line + "\n" : line, style };
  });
}
