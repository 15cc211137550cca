package edge_test

import (
	"strings"

	"agentstream/edge"
	"agentstream/edge/audit"
	"agentstream/edge/auth"
)

// Paths of the audit feed.
const (
	auditPath = "/v1/agent/audit"
	auditTap  = auditPath + "/stream"
)

// audits asks the routes of the audit feed.
func (k *talk) audits() {
	var log audit.Appender
	h := k.house(func(c *edge.Config) { c.Taps, log = keptTaps{}, c.Appender })
	if a := h.ask("GET", auditPath, "", "", ""); a.Status != 200 || !strings.Contains(a.Body, `"events":[]`) {
		k.t.Errorf("an empty feed: %d %s", a.Status, a.Body)
	}
	trail := audit.New(audit.Config{Log: log})
	trail.Open(auth.Caller{Tenant: "acme", Subject: "ann"}, "run", "native")
	if err := trail.Flush(k.t.Context()); err != nil {
		k.t.Fatal(err)
	}
	h.ask("GET", auditPath, "", "?after=9", "").Expect(k.t, 409, "CURSOR-AHEAD")
	for _, bad := range []string{"?after=x", "?order=up"} {
		if a := h.ask("GET", auditPath, "", bad, ""); a.Status != 400 {
			k.t.Errorf("%s: %d %s", bad, a.Status, a.Body)
		}
	}
	h.ask("GET", auditTap, "", "?cursor=x&tap=bill", "").Expect(k.t, 400, "BAD-CURSOR")
	h.ask("GET", auditTap, "", "?from=yesterday", "").Expect(k.t, 400, "BAD-REQUEST")
	tight := k.house(func(c *edge.Config) { c.Taps, c.MaxStreams = keptTaps{}, 1 })
	k.open(tight, auditTap)
	tight.ask("GET", auditTap, "", "", "").Expect(k.t, 503, "BUSY")
	for range 8 {
		k.open(h, auditTap)
	}
	h.ask("GET", auditTap, "", "", "").Expect(k.t, 429, "RATE-LIMITED")
	k.house(func(c *edge.Config) { c.Taps = nil }).ask("GET", auditTap, "", "", "").Expect(k.t, 501, "NO-CATALOG")
	for _, path := range []string{auditPath, auditTap} {
		h.ask("GET", path, "", "?x="+strings.Repeat("x", 9<<10), "").Expect(k.t, 414, "URI-TOO-LONG")
	}
}
