export interface SnapshotPayload {}
export type Snapshot = SnapshotPayload;
export function parseSnapshot(text: string): Snapshot { return JSON.parse(text) as Snapshot; }
