package dialect_test

import (
	"fmt"

	"agentstream/edge/dialect"
	"agentstream/schema"
)

// shout shows the type of each event. Its stream is declared where an edge gets it: protocol.Stream.
type shout struct{}

func (shout) Info() dialect.Info { return dialect.Info{Name: "shout"} }

func (shout) Open(in dialect.Input) (dialect.Request, error) {
	after, err := schema.ParseCursor(in.Header.Get("Last-Event-ID"))
	return dialect.Request{Run: in.Path["run"], Stream: in.Stream, Cursor: dialect.Cursor{Seq: after}}, err
}

func (shout) Projector(dialect.Request) dialect.Projector {
	return dialect.ProjectorFunc(func(out *dialect.Frames, r schema.Record) error {
		out.Add(dialect.Frame{Data: out.Text(r.Type), Token: out.Number(int64(r.Seq))})
		return nil
	})
}

func (shout) AppendError(dst []byte, p dialect.Problem) []byte { return append(dst, p.Message...) }

// The smallest protocol. An edge serves it with resuming, keep-alive, limits and credentials: see examples/protocol.
func ExampleDialect() {
	var protocol dialect.Dialect = shout{}
	request, err := protocol.Open(dialect.Input{Stream: "types", Path: map[string]string{"run": "run_1"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	projector := protocol.Projector(request)
	for i, typ := range []string{schema.TypeTextDelta, schema.TypeRunLifecycle} {
		event := schema.Event{ID: "evt_01M7YH4N7Y0M9Z80E2W8RN2Q79", TS: "2026-01-02T03:04:05.000Z", Type: typ,
			RunID: "run_1", Seq: schema.Seq(i + 1)}
		record, err := schema.ScanLine(event.AppendLine(nil))
		if err != nil {
			fmt.Println(err)
			return
		}
		var frames dialect.Frames
		if err := projector.Project(&frames, record); err != nil {
			fmt.Println(err)
			return
		}
		for _, frame := range frames.List {
			fmt.Printf("id: %s data: %s\n", frame.Token, frame.Data)
		}
	}
	// Output:
	// id: 1 data: text.delta
	// id: 2 data: run.lifecycle
}
