// What the scripts of the providers' client libraries have in common. Each plays the cases that CASES
// lists, all at the same time, with a library that knows nothing but the proxy's address and a key. It
// prints one line of JSON for each case: {"name","calls":[{"run","messages"|"error"}]}.

export const key = process.env.KEY;

/** Address of one case behind the proxy: the test's upstream knows by it what to answer. */
export const address = (provider, c) => `${process.env.PROXY}/${provider}/${c.name}`;

/** Headers of a case for the library's default headers. */
export const naming = (c) => ({
  ...(c.run ? { "Agentstream-Run": c.run } : {}),
  ...(c.end ? { "Agentstream-Run-End": "done" } : {}),
});

/** How long the library waits for an answer, where the case says so. */
export const patience = (c) => (c.timeout ? { timeout: c.timeout } : {});

/** The run that an answer names. */
export const runOf = (headers) => headers?.get("agentstream-run") ?? null;

/** An input as the library has it; what is no JSON stays a text. */
export function input(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** Calls; what the library throws becomes the call's error. */
export async function attempt(call, describe) {
  try {
    return await call();
  } catch (e) {
    return { error: { type: e.constructor.name, message: String(e.message), ...describe(e) } };
  }
}

/** Plays all cases with the functions of their kinds. */
export async function play(kinds) {
  const cases = JSON.parse(process.env.CASES);
  await Promise.all(cases.map(async (c) => {
    const calls = await kinds[c.kind](c);
    process.stdout.write(JSON.stringify({ name: c.name, calls }) + "\n");
  }));
}
