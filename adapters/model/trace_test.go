package model_test

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"agentstream/adapters/model"
)

// The provider is asked in the trace of the message that is answered, if it came with one.
func TestTraceOfAMessage(t *testing.T) {
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	var got atomic.Value
	up := upstream(t, "openai", func(w http.ResponseWriter, r *http.Request) {
		got.Store(fmt.Sprint(r.Header["Traceparent"]))
		w.WriteHeader(http.StatusTeapot)
	})
	set := &model.Set{}
	set.Add(up.Provider(), up.Answer, "m")
	s := newShop(t, set)
	for i, tt := range []struct{ trace, want string }{{"", "[]"}, {parent, "[" + parent + "]"}, {"not one", "[]"}} {
		run := fmt.Sprint("run_", i)
		s.Trace = tt.trace
		s.Ask(run, `,"model":"m"`, `{"content":"hello"}`)
		s.Await(run)
		if got.Load() != tt.want {
			t.Errorf("%q: the provider got %v", tt.trace, got.Load())
		}
	}
}
