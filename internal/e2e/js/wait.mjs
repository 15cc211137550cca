// What the scripts that look at a page wait with.

/** Returns a condition as one that is not met while an element that it reads is not there, as on a page that is still drawn. */
export const patient = (f) => new Function("...args", `
  try {
    return (${f})(...args);
  } catch (e) {
    if (e instanceof TypeError) return false;
    throw e;
  }`);
