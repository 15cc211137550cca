package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	retentioncmd "agentstream/cmd/agentstream/internal/retention"
	"agentstream/edge/audit"
	fanjs "agentstream/fanout/natsjs"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// TestAdministratorsAreInTheFeed: who gives which command is a line before anything is done, with its name or that of
// the operating system; no line holds a key. Where there is no log a command that needs none says that there is no
// line.
func TestAdministratorsAreInTheFeed(t *testing.T) {
	h := sqliteHouse(t)
	h.stored(persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: "doomed"}, "20260228").Pack("",
		persistertest.Lifecycle(schema.StateDone)))
	url := h.server.Server.ClientURL()
	var out bytes.Buffer
	run := func(c interface {
		Run(context.Context, *slog.Logger) error
	}) {
		t.Helper()
		if err := c.Run(t.Context(), slog.New(slog.DiscardHandler)); err != nil {
			t.Fatalf("%T: %v", c, err)
		}
	}
	hold := &retentioncmd.HoldAddCmd{Tenant: "acme", RunID: "doomed", Reason: "case 7"}
	hold.StoreFlags, hold.NATS, hold.By, hold.Err = h.where, url, "eve", &out
	run(hold)
	lift := &retentioncmd.HoldRemoveCmd{Tenant: "acme", RunID: "doomed"}
	lift.StoreFlags, lift.NATS, lift.Err = h.where, url, &out
	run(lift)
	set := &retentioncmd.SetCmd{Tenant: "acme", Ended: "10d"}
	set.StoreFlags, set.NATS, set.By, set.Err = h.where, url, "eve", &out
	run(set)
	clear := &retentioncmd.ClearCmd{Tenant: "acme"}
	clear.StoreFlags, clear.NATS, clear.By, clear.Err = h.where, url, "eve", &out
	run(clear)
	if _, err := h.deleteRun("doomed"); err != nil {
		t.Fatal(err)
	}
	key := &NewKeyCmd{Tenant: "acme", Scopes: []string{"audit"}, ID: "auditor", Append: filepath.Join(t.TempDir(), "keys")}
	key.NATS, key.By, key.Out, key.Err = url, "eve", &bytes.Buffer{}, &out
	run(key)
	if out.Len() > 0 {
		t.Errorf("said: %s", &out)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"hold add eve held placed case 7", "hold remove " + me.Username + " held lifted ",
		"retention set eve retained completed , ended 10d ",
		"retention clear eve retained as all tenants ", "delete run " + me.Username + " deleted  ",
		"auth new-key eve keyed key:auditor for audit "}
	if got := feedOf(t, h, "acme"); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s\nwant %s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	hold.NATS = "nats://127.0.0.1:1"
	run(hold)
	if !strings.Contains(out.String(), "not in the audit feed") {
		t.Errorf("without a log: %q", &out)
	}
	gone := &retentioncmd.DeleteTenantCmd{Tenant: "acme"}
	gone.StoreFlags, gone.NATS, gone.Blobs, gone.Yes = h.where, hold.NATS, h.folder, true
	if err := gone.Run(t.Context(), slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a tenant is deleted without a line")
	}
}

// feedOf returns the lines of a tenant's audit feed.
func feedOf(t *testing.T, h *keptHouse, tenant string) (lines []string) {
	t.Helper()
	log, err := fanjs.OpenBeside(t.Context(), h.server.Dial(t), h.server.Dial(t))
	if err != nil {
		t.Fatal(err)
	}
	for p, err := range log.Packs(t.Context(), audit.FeedOf(tenant), 0, schema.MaxSeq) {
		if err != nil {
			t.Fatal(err)
		}
		for r, err := range p.Records(0) {
			var l audit.Line
			if err == nil && string(r.Type) != schema.TypeSessionCreated {
				err = json.Unmarshal(r.Payload(), &l)
				if l.Credential != "administrator" {
					t.Errorf("%+v", l)
				}
				lines = append(lines, strings.Join([]string{l.Via, l.Caller, string(l.Action), l.Detail, l.Reason}, " "))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return lines
}
