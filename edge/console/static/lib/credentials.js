// Who we are, to the server.
/** Keeps one token for all requests of a client. */
export class Credentials {
    source;
    token;
    current = "";
    renewing;
    constructor(source) {
        this.source = source;
    }
    /** The Authorization header; none when there is no token. It never stands in a URL. */
    async headers() {
        if (this.source === undefined)
            return {};
        if (this.token === undefined) {
            const source = this.source;
            this.token = Promise.resolve(typeof source === "string" ? source : source());
            this.token.catch(() => (this.token = undefined));
        }
        this.current = await this.token;
        return { Authorization: `Bearer ${this.current}` };
    }
    /** The token of the last request; to be given to refused. */
    get used() {
        return this.current;
    }
    /** Is called when the server did not take a token. It answers whether there is another one. */
    async refused(used) {
        if (this.renewing === undefined && used !== this.current)
            return true; // another request has asked
        this.renewing ??= this.renew().finally(() => (this.renewing = undefined));
        return this.renewing;
    }
    async renew() {
        if (typeof this.source !== "function")
            return false;
        const old = this.current;
        const next = await this.source();
        this.token = Promise.resolve(next);
        this.current = next;
        return next !== old;
    }
}
