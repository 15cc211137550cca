// What a person does to a run.

import type { Client, InputRequest, Receipt, Wait } from "../index.js";

/** The commands of a run. Each resolves when it is stored, under a key of its own, and rejects as the client's methods do. */
export interface Commands {
  /** Sends a message of the user, also to a run that is over: a follow-up. */
  message(content: string | readonly unknown[]): Promise<Receipt>;
  /** Answers a question of the snapshot's `inputs`, what is in its `waits` (a call: "allow" or "deny"), or a question of the run itself by its id. */
  answer(question: InputRequest | Wait | string, answer: unknown): Promise<Receipt>;
  approve(planID?: string): Promise<Receipt>;
  reject(reason?: string): Promise<Receipt>;
  pause(): Promise<Receipt>;
  resume(): Promise<Receipt>;
  redirect(instruction: string): Promise<Receipt>;
  /** Asks the agent to stop. A component that goes away never does. */
  cancel(reason?: string): Promise<Receipt>;
}

/** Returns the commands of a run; `sent` is called after each that was stored. */
export function commandsOf(client: Client, run: string, sent: () => void): Commands {
  const after = async (receipt: Promise<Receipt>) => {
    const r = await receipt;
    sent();
    return r;
  };
  return {
    message: (content) => after(client.send(run, content)),
    answer(question, answer) {
      if (typeof question === "string") return after(client.answer(run, question, answer));
      const { child_id } = question;
      const request_id = question.request_id ?? ("call_id" in question ? question.call_id : null);
      return after(client.command(run, "answer", { ...(child_id === null ? {} : { child_id }), request_id, answer }));
    },
    approve: (planID) => after(client.approvePlan(run, planID)),
    reject: (reason) => after(client.rejectPlan(run, reason)),
    pause: () => after(client.pause(run)),
    resume: () => after(client.resume(run)),
    redirect: (instruction) => after(client.redirect(run, instruction)),
    cancel: (reason) => after(client.cancel(run, reason)),
  };
}
