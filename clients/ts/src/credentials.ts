// Who we are, to the server.

/** A bearer token, or where one comes from: asked for the first, and again when the last was refused or has expired. */
export type TokenSource = string | (() => string | Promise<string>);

/** Keeps one token for all requests of a client. */
export class Credentials {
  private token: Promise<string> | undefined;
  private current = "";
  private renewing: Promise<boolean> | undefined;

  constructor(private readonly source: TokenSource | undefined) {}

  /** The Authorization header; none when there is no token. It never stands in a URL. */
  async headers(): Promise<Record<string, string>> {
    if (this.source === undefined) return {};
    if (this.token === undefined) {
      const source = this.source;
      this.token = Promise.resolve(typeof source === "string" ? source : source());
      this.token.catch(() => (this.token = undefined));
    }
    this.current = await this.token;
    return { Authorization: `Bearer ${this.current}` };
  }

  /** The token of the last request; to be given to refused. */
  get used(): string {
    return this.current;
  }

  /** Is called when the server did not take a token. It answers whether there is another one. */
  async refused(used: string): Promise<boolean> {
    if (this.renewing === undefined && used !== this.current) return true; // another request has asked
    this.renewing ??= this.renew().finally(() => (this.renewing = undefined));
    return this.renewing;
  }

  private async renew(): Promise<boolean> {
    if (typeof this.source !== "function") return false;
    const old = this.current;
    const next = await this.source();
    this.token = Promise.resolve(next);
    this.current = next;
    return next !== old;
  }
}
