package proxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"agentstream/schema"
	"agentstream/schema/trace"
)

// Headers of requests, which the upstream does not see. HeaderRun stands on answers as well.
const (
	HeaderRun    = "Agentstream-Run"
	HeaderChild  = "Agentstream-Child"
	HeaderTurn   = "Agentstream-Turn"
	HeaderEnd    = "Agentstream-Run-End"
	HeaderTenant = "Agentstream-Tenant"
)

const headerPrefix = "Agentstream-"

// asked is what a request's headers ask for.
type asked struct {
	key   schema.RunKey
	named bool // by the caller
	child string
	turn  string
	end   schema.RunState    // the run, or the child, ends with this call; "" not
	about schema.Description // of the run, if this call begins it
	trace string             // the traceparent, which is kept with events and passes to the upstream; "": none

	watched string // response that is asked for again
	whole   bool   // and is in the run
}

// refusal is an answer of the proxy itself.
type refusal struct {
	status        int
	code, message string
}

// ask reads the headers. run is the one that the path names, for requests whose headers name none. What ask refuses
// never goes upstream: a call that was meant to be recorded elsewhere must not be made.
func (p *Proxy) ask(h http.Header, run string) (asked, *refusal) {
	var a asked
	values := map[string]string{}
	for name, v := range h {
		if !strings.HasPrefix(name, headerPrefix) {
			continue
		}
		switch name {
		case HeaderRun, HeaderChild, HeaderTurn, HeaderEnd, HeaderTenant, schema.HeaderTitle, schema.HeaderTags, schema.HeaderMetadata:
		default:
			return a, &refusal{http.StatusBadRequest, "bad_header", fmt.Sprintf("there is no header %.60q", name)}
		}
		if len(v) != 1 {
			return a, &refusal{http.StatusBadRequest, "bad_header", name + " must be given once"}
		}
		values[name] = v[0]
	}
	if _, ok := values[HeaderRun]; run != "" && !ok {
		values[HeaderRun] = run
	}
	var err error
	if a.about, err = schema.ParseDescription(h); err != nil {
		return a, &refusal{http.StatusBadRequest, "bad_header", err.Error()}
	}
	a.trace = trace.Of(h)
	a.key.Tenant = p.cfg.Tenants[0]
	if t, ok := values[HeaderTenant]; ok {
		if !slices.Contains(p.cfg.Tenants, t) {
			return a, &refusal{http.StatusForbidden, "tenant", fmt.Sprintf("tenant %.70q is not served here", t)}
		}
		a.key.Tenant = t
	}
	a.key.Run, a.named = values[HeaderRun]
	for _, name := range []string{HeaderRun, HeaderChild, HeaderTurn} {
		if v, ok := values[name]; ok && schema.ValidRunID(v) != nil {
			return a, &refusal{http.StatusBadRequest, "bad_id", name + " must have 1 to 128 of the characters A-Z a-z 0-9 _ -"}
		}
	}
	a.child, a.turn, a.end = values[HeaderChild], values[HeaderTurn], schema.RunState(values[HeaderEnd])
	switch {
	case a.child != "" && !a.named:
		return a, &refusal{http.StatusBadRequest, "bad_header",
			HeaderChild + " needs " + HeaderRun + ", because a child is a part of a run that goes on"}
	case a.child != "" && a.child == a.key.Run:
		return a, &refusal{http.StatusBadRequest, "bad_id", HeaderChild + " is the run itself"}
	case a.end != "" && a.end != schema.StateDone && a.end != schema.StateAborted:
		return a, &refusal{http.StatusBadRequest, "bad_header", HeaderEnd + " must be done or aborted"}
	}
	return a, nil
}

// addTrace adds the call's traceparent to its events.
func (a *asked) addTrace(events []schema.Event) {
	if a.trace == "" {
		return
	}
	for i := range events {
		events[i] = events[i].WithTrace(a.trace)
	}
}

// write answers in a form that the providers' own libraries read as an error.
func (f *refusal) write(w http.ResponseWriter) {
	body, _ := json.Marshal(map[string]any{ // strings always encode
		"type": "error", "error": map[string]string{"type": "agentstream_proxy", "code": f.code, "message": f.message}})
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(f.status)
	_, _ = w.Write(body) // the client is gone
}
