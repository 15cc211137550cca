// Between what pushes (WebSocket, EventSource) and who pulls.
/** Where a queue is full, in UTF-16 units. */
export const maxQueued = 8 << 20;
/** Text that is held for a reader, in order, and then how it ended. One reader. */
export class Queue {
    items = [];
    size = 0;
    end;
    wake;
    /** Takes an item; false when the queue is full now. After the end nothing is taken. */
    push(item, size) {
        if (this.end !== undefined)
            return true;
        this.items.push(item);
        this.size += size;
        this.wake?.();
        return this.size < maxQueued;
    }
    /** Says how it ends, behind what is queued. The first word counts. */
    finish(end) {
        this.end ??= end;
        this.wake?.();
    }
    /** Whether everything that was pushed has been taken. */
    get drained() {
        return this.items.length === 0;
    }
    /** Everything that is there, or the end; waits when there is neither. An error is thrown once all else was taken. */
    async take() {
        for (;;) {
            if (!this.drained) {
                const items = this.items;
                this.items = [];
                this.size = 0;
                return { items };
            }
            if (this.end !== undefined) {
                if ("error" in this.end)
                    throw this.end.error;
                return this.end;
            }
            await new Promise((resolve) => (this.wake = resolve));
            this.wake = undefined;
        }
    }
}
