package main

import (
	"reflect"
	"strings"
	"testing"

	"agentstream/cmd/agentstream/internal/node"
	"agentstream/edge"
)

func TestLimitFlags(t *testing.T) {
	want := map[string]edge.IngestLimit{"acme": {Events: 100, Bytes: 2000}, "free": {},
		"t3": {Events: 1, Bytes: 2, Requests: 3, Streams: 4}}
	cfg := file(t, `{"ingest-limit":["acme=100,2000","free=0,0","t3=1,2,3,4"],"ingest-events-per-second":5}`)
	for name, c := range map[string]struct {
		env  map[string]string
		args []string
	}{
		"flags": {nil, []string{"--ingest-limit", "acme=100,2000", "--ingest-limit=free=0,0",
			"--ingest-limit=t3=1, 2,3, 4", "--ingest-events-per-second=5"}},
		"environment": {map[string]string{"AGENTSTREAM_INGEST_LIMIT": "acme=100,2000; free=0,0;t3=1,2,3,4",
			"AGENTSTREAM_INGEST_EVENTS_PER_SECOND": "5"}, nil},
		"file": {nil, []string{"--config", cfg}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, role := range []string{"dev", "edge"} {
				cli, err := parse(t, c.env, append([]string{role}, c.args...)...)
				if err != nil {
					t.Fatal(err)
				}
				flags := cli.Dev.LimitFlags
				if role == "edge" {
					flags = cli.Edge.LimitFlags
				}
				all, tenants, err := flags.Limits()
				if err != nil || all != (edge.IngestLimit{Events: 5, Bytes: 256 << 20, Requests: 1024}) ||
					!reflect.DeepEqual(tenants, want) {
					t.Errorf("%s: %+v %+v %v", role, all, tenants, err)
				}
			}
		})
	}
	for _, bad := range []node.LimitFlags{
		{IngestLimit: []string{"acme"}}, {IngestLimit: []string{"acme=1"}}, {IngestLimit: []string{"acme=1,2,3,4,5"}},
		{IngestLimit: []string{"acme=-1,2"}},
		{IngestLimit: []string{"a.b=1,2"}}, {IngestLimit: []string{"=1,2"}}, {IngestLimit: []string{"acme=x,2"}},
		{IngestLimit: []string{"acme=1,99999999999"}},
		{IngestLimit: []string{"acme=1,2", "acme=1,2"}}, {IngestEvents: -1}, {IngestBytes: -1}, {IngestRequests: -1},
	} {
		if _, _, err := bad.Limits(); err == nil || !strings.HasPrefix(err.Error(), "--ingest-") {
			t.Errorf("%+v: %v", bad, err)
		}
		if err := (&node.ListenFlags{Listen: "127.0.0.1:1", AdminListen: "off", Tenant: "t",
			LimitFlags: bad}).Check(true); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}
