package otlp

import (
	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"agentstream/adapters/otlp"
	"agentstream/edge/dialect"
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
	var err error
	if isText {
		err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(raw, request)
	} else {
		err = proto.Unmarshal(raw, request)
	}
	if err != nil {
		return nil, dialect.Refuse(dialect.ErrBadRequest, "the body is not an ExportLogsServiceRequest")
	}
	b := &batch{traces: make(map[string][]otlp.Kept), refused: make(map[string]int)}
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
				b.addLog(sc.GetScope().GetName(), record, nth)
			}
		}
	}
	return b, nil
}

// addLog adds a record, or refuses it.
func (b *batch) addLog(scope string, record *logs.LogRecord, nth func(string) int) {
	if !otlp.IsModelLog(record) {
		b.refused[whyOther]++
		return
	}
	k, ok := otlp.KeepLog(scope, record, nth)
	if !ok {
		b.refused[whyOther]++
		return
	}
	b.add(k)
}
