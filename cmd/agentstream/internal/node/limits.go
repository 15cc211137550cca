package node

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/process"
	"agentstream/edge"
	"agentstream/schema"
)

// LimitFlags bound what tenants may write.
type LimitFlags struct {
	IngestEvents   int      `name:"ingest-events-per-second" help:"Events a second that a tenant may write, at all nodes together; 0 is no limit." default:"1000000" env:"AGENTSTREAM_INGEST_EVENTS_PER_SECOND" placeholder:"N"`
	IngestBytes    int64    `name:"ingest-bytes-per-second" help:"Bytes of bodies a second that a tenant may write, at all nodes together, inflated; 0 is no limit." default:"268435456" env:"AGENTSTREAM_INGEST_BYTES_PER_SECOND" placeholder:"N"`
	IngestRequests int      `name:"ingest-requests" help:"Requests that write that a tenant may have under way at this node; 0 is no limit." default:"1024" env:"AGENTSTREAM_INGEST_REQUESTS" placeholder:"N"`
	MaxStreams     int      `help:"Streams that may be open at this node, and requests over HTTP/2; 0: as many as there are descriptors and memory for." default:"0" env:"AGENTSTREAM_MAX_STREAMS" placeholder:"N"`
	TenantStreams  int      `name:"tenant-streams" help:"Of --max-streams, those that a tenant may have open; 0: half, or all where one tenant alone is let in." default:"0" env:"AGENTSTREAM_TENANT_STREAMS" placeholder:"N"`
	TenantKeys     int      `name:"tenant-keys" help:"Idempotency keys that a tenant may use in a day at this node; 0 is no limit." default:"10000000" env:"AGENTSTREAM_TENANT_KEYS" placeholder:"N"`
	TenantMetrics  int      `name:"tenant-metrics" help:"Count in /metrics what tenants use, for so many of them by name and for the others together; 0: not." default:"0" env:"AGENTSTREAM_TENANT_METRICS" placeholder:"N"`
	BodyMemory     string   `help:"Memory that the bodies of requests may take at once, inflated and decoded: 256MiB. Default: a sixth of --memory, or 128MiB. A tenant may hold half of it." env:"AGENTSTREAM_BODY_MEMORY" placeholder:"SIZE"`
	MaxBlob        string   `help:"Largest blob that is taken, and largest output that is moved into one; off: blobs are neither taken nor given." default:"64MiB" env:"AGENTSTREAM_MAX_BLOB" placeholder:"SIZE"`
	RunBlobs       string   `name:"run-blobs" help:"What the blobs of a run may have together." default:"1GiB" env:"AGENTSTREAM_RUN_BLOBS" placeholder:"SIZE"`
	TenantBlobs    string   `name:"tenant-blobs" help:"What the blobs of all runs of a tenant may have together; off: no bound." default:"off" env:"AGENTSTREAM_TENANT_BLOBS" placeholder:"SIZE"`
	IngestLimit    []string `name:"ingest-limit" help:"The limits of one tenant, in place of those for all; may be repeated. STREAMS that are 0 or missing are those of all." sep:";" env:"AGENTSTREAM_INGEST_LIMIT" placeholder:"TENANT=EVENTS,BYTES[,REQUESTS[,STREAMS]]"`
}

// bodyMemory is what the bodies of requests may take, of what the process may; 0: the edge's own default.
func (f *LimitFlags) bodyMemory(b process.Budget) (int64, error) {
	if f.BodyMemory == "" {
		return b.Bodies, nil
	}
	n, err := cli.ParseSize(f.BodyMemory)
	if err == nil && n == 0 {
		err = errors.New("it must have a bound")
	}
	if err != nil {
		return 0, fmt.Errorf("--body-memory %w", err)
	}
	return n, nil
}

// streams is how many streams may be open: by the flag, or as many as there are descriptors and memory for.
func (f *LimitFlags) streams(files process.Files, b process.Budget) int {
	switch {
	case f.MaxStreams > 0:
		return f.MaxStreams
	case files.Streams == 0 || b.Streams == 0:
		return max(files.Streams, b.Streams)
	}
	return min(files.Streams, b.Streams)
}

// blobBounds are what blobs may have: one, those of a run, and those of a tenant. 0 is the edge's own default.
type blobBounds struct{ one, run, tenant int64 }

// blobs returns the bounds of blobs. on: they are taken and given.
func (f *LimitFlags) blobs() (b blobBounds, on bool, err error) {
	for _, flag := range []struct {
		name, text string
		into       *int64
	}{{"max-blob", f.MaxBlob, &b.one}, {"run-blobs", f.RunBlobs, &b.run}, {"tenant-blobs", f.TenantBlobs, &b.tenant}} {
		if flag.text == "" { // a struct that kong has not filled
			continue
		}
		if *flag.into, err = cli.ParseSize(flag.text); err != nil {
			return b, false, fmt.Errorf("--%s %w", flag.name, err)
		}
	}
	if f.RunBlobs == "off" {
		return b, false, errors.New("--run-blobs: it must have a bound")
	}
	return b, b.one > 0 || f.MaxBlob == "", nil
}

// Limits returns those for all tenants, and those of some. The error names the flag.
func (f *LimitFlags) Limits() (all edge.IngestLimit, tenants map[string]edge.IngestLimit, err error) {
	for _, n := range []struct {
		flag  string
		value int64
	}{{"events-per-second", int64(f.IngestEvents)}, {"bytes-per-second", f.IngestBytes},
		{"requests", int64(f.IngestRequests)}} {
		if n.value < 0 {
			return all, nil, fmt.Errorf("--ingest-%s %d: negative", n.flag, n.value)
		}
	}
	if _, _, err := f.blobs(); err != nil {
		return all, nil, err
	}
	if _, err := f.bodyMemory(process.Budget{}); err != nil {
		return all, nil, err
	}
	if f.TenantMetrics < 0 {
		return all, nil, fmt.Errorf("--tenant-metrics %d: negative", f.TenantMetrics)
	}
	if f.MaxStreams < 0 || f.TenantStreams < 0 || f.TenantKeys < 0 {
		return all, nil, fmt.Errorf("--max-streams %d, --tenant-streams %d, --tenant-keys %d: negative", f.MaxStreams,
			f.TenantStreams, f.TenantKeys)
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
	return edge.IngestLimit{Events: f.IngestEvents, Bytes: f.IngestBytes, Requests: f.IngestRequests,
		Streams: f.TenantStreams}, tenants, nil
}

// shareStreams completes limits with how many streams a tenant may have open of most, where nothing else is said: half,
// or all where there is one tenant.
func shareStreams(all *edge.IngestLimit, tenants map[string]edge.IngestLimit, most int, alone bool) {
	if all.Streams == 0 && !alone {
		all.Streams = (most + 1) / 2
	}
	for tenant, l := range tenants {
		if l.Streams == 0 {
			l.Streams = all.Streams
			tenants[tenant] = l
		}
	}
}

// parseLimit reads TENANT=EVENTS,BYTES[,REQUESTS[,STREAMS]].
func parseLimit(text string) (tenant string, l edge.IngestLimit, err error) {
	tenant, rest, ok := strings.Cut(strings.TrimSpace(text), "=")
	parts := strings.Split(rest, ",")
	if !ok || len(parts) < 2 || len(parts) > 4 {
		return "", l, errors.New("not TENANT=EVENTS,BYTES[,REQUESTS[,STREAMS]]")
	}
	if err := schema.ValidTenant(tenant); err != nil {
		return "", l, err
	}
	var n [4]int64
	for i, p := range parts {
		v, err := strconv.ParseUint(strings.TrimSpace(p), 10, 31)
		if err != nil {
			return "", l, fmt.Errorf("%q is not a number from 0 to %d", p, 1<<31-1)
		}
		n[i] = int64(v)
	}
	return tenant, edge.IngestLimit{Events: int(n[0]), Bytes: n[1], Requests: int(n[2]), Streams: int(n[3])}, nil
}
