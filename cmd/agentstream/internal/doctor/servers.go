package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/cmd/agentstream/internal/archive"
	"agentstream/internal/natskit"
	"agentstream/persister/postgres/tables"
	"agentstream/tap/natsjs"
)

// monitored is what a NATS server says of itself.
type monitored struct {
	Name      string    `json:"server_name"`
	Now       time.Time `json:"now"`
	JetStream struct {
		Config *struct {
			MaxStore int64         `json:"max_storage"`
			Sync     time.Duration `json:"sync_interval"`
			Always   bool          `json:"sync_always"`
		} `json:"config"`
		Stats struct {
			Store int64 `json:"storage"`
		} `json:"stats"`
	} `json:"jetstream"`
	Cluster struct {
		URLs []string `json:"urls"`
	} `json:"cluster"`
}

// servers asks each server's monitoring port.
func (x *examination) servers(ctx context.Context, all []string) {
	for _, at := range all {
		before := time.Now()
		v, err := ask(ctx, at)
		if err != nil {
			x.find("NATS at %s does not answer: %v; mend: --nats-monitor, or http_port of the server", at, err)
			continue
		}
		x.clock("NATS "+v.Name, v.Now, before, time.Now(), 0)
		c := v.JetStream.Config
		switch {
		case c == nil:
			x.find("NATS %s has no JetStream; mend: jetstream { store_dir: … } in its configuration", v.Name)
			continue
		case !c.Always:
			x.find("NATS %s syncs every %v: what it acknowledged can be lost with its power; mend: jetstream { sync_interval: always }, then --nats-sync=always", v.Name, c.Sync)
		}
		if most, has := c.MaxStore, v.JetStream.Stats.Store; most > 0 && has > most/10*8 {
			x.find("NATS %s has filled %d%% of its store; mend: max_file_store, a larger disk, or a shorter --window",
				v.Name, has*100/most)
		}
		if len(v.Cluster.URLs) > 0 && len(all) == 1 {
			x.find("NATS %s is one of a cluster, and the others were not looked at; mend: --nats-monitor with all of them", v.Name)
		}
	}
}

func ask(ctx context.Context, at string) (v monitored, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(at, "/")+"/varz", nil)
	if err != nil {
		return v, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return v, errors.Unwrap(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return v, fmt.Errorf("status %d", resp.StatusCode)
	}
	return v, json.NewDecoder(resp.Body).Decode(&v)
}

// rights tries what an edge does with its user, and compares copies with servers.
func (x *examination) rights(ctx context.Context, nc *nats.Conn) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	js, err := jetstream.New(nc)
	if err != nil {
		return
	}
	if x.ownRights(ctx, nc) {
		return // all else would only say the same
	}
	if _, err := js.AccountInfo(ctx); err != nil {
		x.find("the NATS user may not ask about its account (%v); mend: its permissions, as docs/stores.md has them", err)
		return
	}
	for _, bucket := range []string{natskit.KeysBucket, natskit.TicketsBucket, natskit.TapsBucket} {
		if _, err := natskit.OpenBucket(ctx, nc, bucket); err != nil && !errors.Is(err, natskit.ErrNotDeclared) {
			x.find("the NATS user may not use %s (%v); mend: its permissions, as docs/stores.md has them", bucket, err)
		}
	}
	l, err := natskit.ReadLayout(ctx, js)
	if err != nil {
		return
	}
	if l.Replicas < 3 && len(nc.Servers()) >= 3 {
		x.find("the log has %d copies in a cluster of %d servers; mend: agentstream migrate --replicas=3", l.Replicas,
			len(nc.Servers()))
	}
	x.taps(ctx, nc, js, l.MaxAge)
	x.backup(ctx, nc)
}

// ownRights compares what the user may do with what its role needs, and reports whether something is missing.
func (x *examination) ownRights(ctx context.Context, nc *nats.Conn) bool {
	const mend = "its user as agentstream migrate --nats-permissions prints it"
	once, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	own, err := natskit.OwnRights(once, nc)
	if err != nil {
		if x.role != "" {
			x.find("the NATS user of the role %s may not ask for its rights (%v); mend: %s", x.role, err, mend)
		}
		return false
	}
	name := cmp.Or(x.role, own.User)
	all := natskit.Roles()
	i := slices.IndexFunc(all, func(r natskit.Role) bool { return r.Name == name })
	if i < 0 {
		return false
	}
	publish, subscribe := own.Missing(all[i])
	lacks := func(verb string, subjects []string) {
		if len(subjects) > 0 {
			x.find("the NATS user %s of the role %s may not %s %s; mend: %s", own.User, name, verb,
				strings.Join(subjects, ", "), mend)
		}
	}
	lacks("publish to", publish)
	lacks("subscribe to", subscribe)
	return len(publish)+len(subscribe) > 0
}

// streams looks at the replicas of the streams. Where the log is compared with the archive, that does it.
func (x *examination) streams(ctx context.Context, nc *nats.Conn) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	js, err := jetstream.New(nc)
	if err != nil {
		return
	}
	l, err := natskit.ReadLayout(ctx, js)
	if err != nil {
		return
	}
	texts, _ := archive.StreamFindings(ctx, js, l)
	x.found = append(x.found, texts...)
}

// taps finds taps that will lose events: what they have not delivered has used up half of the window.
func (x *examination) taps(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, window time.Duration) {
	places, err := natsjs.Open(ctx, nc)
	if err != nil {
		return // a log of before has no bucket for them
	}
	all, err := places.List(ctx)
	if err != nil {
		x.find("taps cannot be read: %v; mend: the permissions of the NATS user, as docs/stores.md has them", err)
		return
	}
	for _, spec := range all {
		lag, err := places.Lag(ctx, js, spec)
		if err != nil || lag.Oldest.IsZero() || window <= 0 {
			continue
		}
		if left := window - x.now().Sub(lag.Oldest); left < window/2 {
			x.find("tap %s has not delivered events of %s, and the log drops them in %v; mend: its sink (agentstream tap list), a longer --window, or agentstream tap remove %s",
				spec.Name, lag.Oldest.UTC().Format(time.DateTime), max(0, left).Round(time.Second), spec.Name)
		}
	}
}

// oldBackup is the age of a backup that is a finding.
const oldBackup = 48 * time.Hour

// backup finds that the last backup is old. Where none was ever made by agentstream, others may make them.
func (x *examination) backup(ctx context.Context, nc *nats.Conn) {
	at, err := natskit.LastBackup(ctx, nc)
	if err == nil && !at.IsZero() && x.now().Sub(at) > oldBackup {
		x.find("the last backup is of %s; mend: agentstream backup, or what runs it", at.UTC().Format(time.DateTime))
	}
}

// tables looks at the database as its user sees it.
func (x *examination) tables(ctx context.Context, dsn string) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	db, err := tables.Open(dsn)
	if err == nil {
		defer db.Close()
		err = db.PingContext(ctx)
	}
	if err != nil {
		x.find("PostgreSQL cannot be reached: %v; mend: --postgres", err)
		return
	}
	if pending, err := tables.Migrate(ctx, dsn, true); err == nil && len(pending) > 0 {
		x.find("%d migrations are missing; mend: agentstream migrate", len(pending))
	}
	var now time.Time
	var super, secured bool
	before := time.Now()
	err = db.QueryRowContext(ctx, `select clock_timestamp(), (select rolsuper or rolbypassrls from pg_roles where rolname = current_user),
		coalesce((select bool_and(relrowsecurity and relforcerowsecurity) from pg_class where oid in (to_regclass('agent_runs'), to_regclass('agent_run_events'))), true)`).
		Scan(&now, &super, &secured)
	if err != nil {
		x.find("PostgreSQL does not answer: %v; mend: --postgres", err)
		return
	}
	x.clock("PostgreSQL", now, before, time.Now(), 0)
	if super {
		x.find("the database role is a superuser or has BYPASSRLS: row security does not hold it to one tenant; mend: alter role … nosuperuser nobypassrls, and agentstream migrate --grant-reader")
	}
	if !secured {
		x.find("row security is off for tables of runs; mend: alter table … enable row level security, force row level security")
	}
}
