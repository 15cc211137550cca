package otlp

import (
	logs "go.opentelemetry.io/proto/otlp/logs/v1"

	"agentstream/adapters/otlp"
	"agentstream/edge/protocol"
)

// exportLogs stores the log records of a request that are events of model calls, and answers how many it has refused.
// Some libraries have the contents of their spans there alone.
func (in *Ingest) exportLogs(c *protocol.Call) error {
	return in.keep(c, "rejectedLogRecords", readLogs)
}

// readLogs reads a request, an ExportLogsServiceRequest: LogsData by another name.
func readLogs(raw []byte, isText bool) (*batch, error) {
	request := new(logs.LogsData)
	err := decode(raw, isText, "ExportLogsServiceRequest", request)
	if err != nil {
		return nil, err
	}
	b := newBatch()
	equal := make(map[string]int)
	nth := func(sum string) int {
		equal[sum]++
		return equal[sum] - 1
	}
	for _, r := range request.GetResourceLogs() {
		for _, sc := range r.GetScopeLogs() {
			for _, record := range sc.GetLogRecords() {
				if isText {
					otlp.FixLogIDs(record)
				}
				k, ok := otlp.KeepLog(sc.GetScope().GetName(), record, nth)
				b.add(k, ok, whyOther)
			}
		}
	}
	return b, nil
}
