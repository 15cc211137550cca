package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"agentstream/edge"
	"agentstream/schema"
)

// LimitFlags bound what tenants may write.
type LimitFlags struct {
	IngestEvents   int      `name:"ingest-events-per-second" help:"Events a second that a tenant may write at this node; 0 is no limit." default:"0" env:"AGENTSTREAM_INGEST_EVENTS_PER_SECOND" placeholder:"N"`
	IngestBytes    int64    `name:"ingest-bytes-per-second" help:"Bytes of bodies a second that a tenant may write at this node, inflated; 0 is no limit." default:"0" env:"AGENTSTREAM_INGEST_BYTES_PER_SECOND" placeholder:"N"`
	IngestRequests int      `name:"ingest-requests" help:"Requests that write that a tenant may have under way at this node; 0 is no limit." default:"0" env:"AGENTSTREAM_INGEST_REQUESTS" placeholder:"N"`
	IngestLimit    []string `name:"ingest-limit" help:"The three limits of one tenant, in place of those for all; may be repeated." sep:";" env:"AGENTSTREAM_INGEST_LIMIT" placeholder:"TENANT=EVENTS,BYTES[,REQUESTS]"`
}

// limits gives those for all tenants, and those of some. The error names the flag.
func (f *LimitFlags) limits() (all edge.IngestLimit, tenants map[string]edge.IngestLimit, err error) {
	for _, n := range []struct {
		flag  string
		value int64
	}{{"events-per-second", int64(f.IngestEvents)}, {"bytes-per-second", f.IngestBytes}, {"requests", int64(f.IngestRequests)}} {
		if n.value < 0 {
			return all, nil, fmt.Errorf("--ingest-%s %d: negative", n.flag, n.value)
		}
	}
	tenants = make(map[string]edge.IngestLimit, len(f.IngestLimit))
	for _, text := range f.IngestLimit {
		tenant, limit, err := parseLimit(text)
		if err == nil {
			if _, twice := tenants[tenant]; twice {
				err = fmt.Errorf("tenant %s is there twice", tenant)
			}
		}
		if err != nil {
			return all, nil, fmt.Errorf("--ingest-limit %q: %w", text, err)
		}
		tenants[tenant] = limit
	}
	return edge.IngestLimit{Events: f.IngestEvents, Bytes: f.IngestBytes, Requests: f.IngestRequests}, tenants, nil
}

// parseLimit reads TENANT=EVENTS,BYTES[,REQUESTS].
func parseLimit(text string) (tenant string, l edge.IngestLimit, err error) {
	tenant, rest, ok := strings.Cut(strings.TrimSpace(text), "=")
	parts := strings.Split(rest, ",")
	if !ok || len(parts) < 2 || len(parts) > 3 {
		return "", l, errors.New("not TENANT=EVENTS,BYTES or TENANT=EVENTS,BYTES,REQUESTS")
	}
	if err := schema.ValidTenant(tenant); err != nil {
		return "", l, err
	}
	var n [3]int64
	for i, p := range parts {
		v, err := strconv.ParseUint(strings.TrimSpace(p), 10, 31)
		if err != nil {
			return "", l, fmt.Errorf("%q is not a number from 0 to %d", p, 1<<31-1)
		}
		n[i] = int64(v)
	}
	return tenant, edge.IngestLimit{Events: int(n[0]), Bytes: n[1], Requests: int(n[2])}, nil
}
