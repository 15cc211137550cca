// Pictures of a sum that changes in place. React sees a change where there is another object, and nowhere else.

import { type Message, RawJSON } from "../index.js";

/** Makes pictures of one value, again and again. What has not changed is the same object in all of them. */
export class Pictures {
  private known = new WeakMap<object, object>();

  of<T>(value: T): T {
    if (typeof value !== "object" || value === null || value instanceof RawJSON) return value;
    const last = this.known.get(value);
    if (last !== undefined && isOver(last)) return last as T;
    const picture = Array.isArray(value) ? value.map((v: unknown) => this.of(v)) : this.copy(value);
    if (last !== undefined && isSame(last, picture)) return last as T;
    this.known.set(value, picture);
    return picture as T;
  }

  private copy(value: object): object {
    const picture = Object.create(Object.getPrototypeOf(value) as object | null) as Record<string, unknown>;
    for (const [name, v] of Object.entries(value)) picture[name] = this.of(v);
    return picture;
  }
}

/** Whether a picture is of a message that is over: nothing changes it any more. */
function isOver(picture: object): boolean {
  return "blocks" in picture && (picture as Message).end_seq !== null;
}

/** Whether two pictures hold the same values. */
function isSame(a: object, b: object): boolean {
  if (Array.isArray(a)) return a.length === (b as unknown[]).length && a.every((v, i) => v === (b as unknown[])[i]);
  const one = a as Record<string, unknown>;
  const fields = Object.entries(b);
  return fields.length === Object.keys(a).length && fields.every(([name, v]) => Object.is(one[name], v));
}
