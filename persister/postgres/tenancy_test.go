package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"agentstream/persister/persistertest"
	"agentstream/persister/postgres"
	"agentstream/persister/postgres/tables"
	"agentstream/schema"
)

// deployment is a database with two tenants, whose texts say whose they are, and the roles that a deployment has.
type deployment struct {
	admin, owner, reader, analyst string // DSNs
	readerRole, analystRole       string
	ownerRole                     string
	store                         *postgres.Store // the owner's
}

const secret = "GLOBEX-SECRET"

func newDeployment(t *testing.T) *deployment {
	t.Helper()
	h := &deployment{}
	h.admin, h.owner = owned(t)
	p := pool(t, h.admin)
	name := ask[string](t, p, `select current_database()`)
	h.ownerRole, h.readerRole, h.analystRole = "owner_"+name, "reader_"+name, "Analyst \"of\" "+name
	exec(t, p, `create role `+h.readerRole+` login`)
	exec(t, p, `create role `+pgx.Identifier{h.analystRole}.Sanitize()+` login`)
	h.store = open(t, h.owner)
	h.fill(t, "20260301")
	for range 2 { // again is the same
		if err := tables.GrantReader(t.Context(), h.owner, h.readerRole); err != nil {
			t.Fatal(err)
		}
		if err := tables.GrantAnalyst(t.Context(), h.owner, h.analystRole, "acme"); err != nil {
			t.Fatal(err)
		}
	}
	h.fill(t, "20260302") // a partition that is made after the grants
	exec(t, p, `vacuum analyze`)
	exec(t, p, `grant create on schema public to public`) // a careless administrator
	exec(t, p, `grant select on all tables in schema public to `+h.readerRole)
	h.reader, h.analyst = as(h.admin, h.readerRole), as(h.admin,
		strings.ReplaceAll(strings.ReplaceAll(h.analystRole, " ", "%20"), `"`, "%22"))
	return h
}

// fill stores a run of a day for each tenant.
func (h *deployment) fill(t *testing.T, day string) {
	t.Helper()
	for _, tenant := range []string{"acme", "globex"} {
		word := "plain"
		if tenant == "globex" {
			word = secret
		}
		w := persistertest.NewWriter(schema.RunKey{Tenant: tenant, Run: "run_" + tenant + day}, day)
		w.Lanes["kid_"+tenant] = schema.Lane{Owner: word, Epoch: 1}
		appendPacks(t, h.store,
			w.Pack("", persistertest.Event(schema.TypeMessageStart, `{"message_id":"m1","role":"assistant","model":"`+word+`"}`),
				persistertest.Event(schema.TypeTextDelta, `{"text":"`+word+`"}`),
				persistertest.Event(schema.TypeMessageEnd,
					`{"message_id":"m1","content":[{"type":"text","text":"`+word+`"}],"usage":{"output_tokens":3}}`),
				persistertest.Event(schema.TypeToolStart, `{"call_id":"c1","tool":"`+word+`"}`)),
			w.Texts("kid_"+tenant, 2))
	}
}

var securedTables = []string{"agent_runs", "agent_run_lanes", "agent_run_events", "agent_run_usage",
	"agent_v_runs", "agent_v_messages", "agent_v_tool_calls", "agent_v_usage_daily",
	"agent_dead_letters", "agent_v_dead_letters", "agent_retention", "agent_holds", "agent_run_messages",
	"agent_run_tool_calls"}

// looked runs a statement on a connection of its own and returns all that the server sent: rows, notices,
// errors.
func looked(t *testing.T, dsn string, statements ...string) string {
	t.Helper()
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	cfg.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { said.WriteString("NOTICE " + n.Message + n.Detail + "\n") }
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	for _, text := range statements {
		results, err := conn.PgConn().Exec(t.Context(), text).ReadAll()
		for _, r := range results {
			for _, row := range r.Rows {
				said.Write(bytes.Join(row, []byte("|")))
				said.WriteByte('\n')
			}
		}
		if err != nil {
			said.WriteString("ERROR " + err.Error() + "\n")
		}
	}
	return said.String()
}

// TestTenancy: row security is the second wall. Everybody who may read, each with the tricks that SQL has.
func TestTenancy(t *testing.T) {
	h := newDeployment(t)
	dump := `copy (select t::text from %s t) to stdout`
	attacks := map[string][]string{
		"join":         {`select e::text from agent_runs r join agent_run_events e on e.run_id = r.id`},
		"union":        {`select line from agent_run_events where koder_user_id = 'globex' union all select line from agent_run_events`},
		"other tenant": {`select * from agent_run_events where koder_user_id = 'globex'`},
		"or true":      {`select * from agent_run_events where koder_user_id = 'globex' or true`},
		"leaky where": {leak, `select count(*) from agent_run_events where leak(line)`,
			`select count(*) from agent_runs where leak(id)`, `select count(*) from agent_v_messages where leak(text)`,
			`select count(*) from agent_v_usage_daily where leak(model)`},
		"leaky join":  {leak, `select count(*) from agent_runs r join agent_run_events e on leak(e.line) and leak(r.id)`},
		"leaky order": {leak, `select 1 from agent_run_events order by leak(line)`},
		"leaky operator": {`create function leaky_eq(a text, b text) returns boolean language plpgsql cost 0.0000001 as $$ begin raise notice '% %', a, b; return true; end $$`,
			`create operator public.=== (procedure = leaky_eq, leftarg = text, rightarg = text)`,
			`select count(*) from agent_run_events where line === 'x'`},
		"error": {`select count(*) from agent_run_events where line::int > 0`,
			`select 1 / (case when line like '%SECRET%' then 0 else 1 end) from agent_run_events`},
		"temporary view": {`create temporary view v as select * from agent_run_events`, `select * from v`,
			`copy (select * from v) to stdout`},
		"view of mine":    {`create view mine as select * from agent_run_events`, `select * from mine`},
		"create table as": {`create temporary table mine as select * from agent_run_events`, `select * from mine`},
		"functions": {`select agent_event_payload('globex', '2026-03-01', 'run_globex20260301', g) from generate_series(1, 9) g`,
			`select agent_message_text('globex', '2026-03-01', 'run_globex20260301', '', 1, 3, 3)`,
			`select agent_message_text('globex', '2026-03-02', 'run_globex20260302', '', 0, null, null)`},
		"explain": {`explain (analyze, verbose, buffers) select * from agent_run_events where line like '%` +
			"S" + `%'`, `explain (verbose) select * from agent_run_events where koder_user_id > 'b'`},
		"statistics": {`select * from pg_stats where tablename like 'agent%'`, `select * from pg_stats_ext`,
			`select * from pg_statistic`, `select * from pg_stat_activity`},
		"prepared": {`set agentstream.tenant = 'acme'`, `prepare p as select * from agent_run_events`,
			`execute p`, `set agentstream.tenant = '*'`, `execute p`},
		"row security off": {`set row_security = off`, `select * from agent_run_events`},
		"as the owner": {`set role ` + h.ownerRole, `select * from agent_run_events`,
			`set session authorization ` + h.ownerRole, `select * from agent_run_events`},
		"as postgres": {`set role postgres`, `select * from agent_run_events`},
		"policy": {`drop policy agent_one_tenant on agent_run_events`,
			`alter table agent_run_events disable row level security`,
			`create policy x on agent_run_events using (true)`, `select * from agent_run_events`},
		"owner's functions": {`call agent_secure('agent_runs')`,
			`select agent_event_payload('globex', run_day, run_id, seq) from agent_run_events`},
		"partitions": {`select * from agent_run_events_20260301`, `select * from agent_run_events_20260302`,
			`copy agent_run_events_20260302 to stdout`, `select * from only agent_run_events`,
			`table agent_run_events_20260301`},
		"inserts": {`insert into agent_runs select * from agent_runs`,
			`insert into agent_runs (koder_user_id, id) values ('globex', 'run_globex20260301')`,
			`insert into agent_run_events_20260301 select * from agent_run_events`,
			`update agent_runs set reason = 'x'`, `delete from agent_runs`, `truncate agent_runs`},
		"locks": {`select * from agent_runs for update`, `lock table agent_runs`},
		"files": {`copy (select 1) to '/tmp/x'`, `select pg_read_file('base/1')`,
			`select lo_import('/etc/passwd')`},
		"references": {`create table r (t text, i text, foreign key (t, i) references agent_runs)`,
			`insert into r values ('globex', 'run_globex20260301')`},
		"trigger":  {`create trigger x after insert on agent_run_events for each row execute function agent_run_forgotten()`},
		"versions": {`select * from agent_trash`},
	}
	for _, table := range securedTables {
		attacks["dump "+table] = []string{fmt.Sprintf(dump, table), `table ` + table}
	}
	for who, dsn := range map[string]string{"reader": h.reader, "analyst": h.analyst} {
		for _, setting := range []string{"", `set agentstream.tenant = 'acme'`, `set agentstream.tenant = '*'`} {
			for name, statements := range attacks {
				if said := looked(t, dsn, append([]string{setting}, statements...)...); strings.Contains(said,
					secret) || strings.Contains(said, "run_globex2") {
					t.Errorf("%s, %q, %s:\n%.600s", who, setting, name, said)
				}
			}
		}
	}
	h.trustedAlone(t)
	h.cursors(t)
	h.ownerSetsTenant(t)
	h.storeOfOther(t)
	open := 0 // to whom nothing is closed, many of them show it; they also destroy what they can
	for _, statements := range attacks {
		if strings.Contains(looked(t, h.admin, statements...), secret) {
			open++
		}
	}
	if open < 15 {
		t.Errorf("%d of %d attacks show anything to a superuser", open, len(attacks))
	}
}

const leak = `create or replace function pg_temp.leak(x text) returns boolean language plpgsql cost 0.0000001 as $$ begin raise notice 'saw %', x; return true; end $$;
	create or replace function leak(x text) returns boolean language plpgsql cost 0.0000001 as $$ begin raise notice 'saw %', x; return true; end $$`

// trustedAlone: what the settings mean to each role. The edge's reader names the tenant, the analyst
// cannot.
func (h *deployment) trustedAlone(t *testing.T) {
	t.Helper()
	for _, c := range []struct {
		who, dsn, setting string
		want              string
	}{
		{"reader", h.reader, "", "0"}, {"reader", h.reader, "globex", "12"}, {"reader", h.reader, "acme", "12"},
		{"reader", h.reader, "*", "0"},
		{"analyst", h.analyst, "", "12"}, {"analyst", h.analyst, "globex", "12"}, {"analyst", h.analyst, "*", "12"},
		{"owner", h.owner, "", "0"}, {"owner", h.owner, "globex", "12"}, {"owner", h.owner, "*", "24"},
		{"owner", h.owner, "acm", "0"},
	} {
		got := looked(t, c.dsn, `set agentstream.tenant = '`+c.setting+`'`, `select count(*) from agent_run_events`)
		if strings.TrimSpace(got) != c.want {
			t.Errorf("%s with %q sees %s, want %s", c.who, c.setting, got, c.want)
		}
	}
	if got := looked(t, h.analyst, `select distinct koder_user_id from agent_v_messages union select koder_user_id from agent_v_usage_daily`); got != "acme\n" {
		t.Errorf("an analyst's views show %q", got)
	}
	for _, role := range []string{h.readerRole, h.ownerRole, "postgres", "nobody at all"} {
		if err := tables.GrantAnalyst(t.Context(), h.owner, role, "acme"); err == nil {
			t.Errorf("%s is taken for an analyst", role)
		}
	}
	if err := tables.GrantAnalyst(t.Context(), h.owner, h.analystRole, "a' or true --"); err == nil {
		t.Error("a tenant of another form is taken")
	}
	// Bound anew, the role sees the other tenant and no more.
	if err := tables.GrantAnalyst(t.Context(), h.owner, h.analystRole, "globex"); err != nil {
		t.Error(err)
	}
	if got := looked(t, h.analyst, `select distinct koder_user_id from agent_run_events`); got != "globex\n" {
		t.Errorf("bound anew, an analyst sees %q", got)
	}
}

// cursors: one that is held over a change of the setting shows one tenant, to an analyst always his.
func (h *deployment) cursors(t *testing.T) {
	t.Helper()
	for dsn, want := range map[string]string{h.reader: "globex\n", h.analyst: "globex\n"} {
		said := looked(t, dsn, `begin; set local agentstream.tenant = 'globex'; declare c cursor with hold for select distinct koder_user_id from agent_run_events`,
			`commit`, `set agentstream.tenant = 'acme'`, `fetch all c`)
		if said != want {
			t.Errorf("a cursor gives %s, want %s", said, want)
		}
	}
}

// ownerSetsTenant: rows of another tenant than the scope's cannot be written.
func (h *deployment) ownerSetsTenant(t *testing.T) {
	t.Helper()
	said := looked(t, h.owner, `set agentstream.tenant = 'acme'`,
		`insert into agent_holds (koder_user_id, run_id, reason) values ('globex', '', 'x')`,
		`update agent_runs set koder_user_id = 'globex'`, `delete from agent_runs where koder_user_id = 'globex'`)
	if strings.Count(said, "row-level security") != 2 {
		t.Errorf("the owner was told %s", said)
	}
	if n := ask[int](t, pool(t, h.admin), `select count(*) from agent_runs where koder_user_id = 'globex'`); n != 2 {
		t.Errorf("%d runs are left", n)
	}
}

// storeOfOther: the product's own reads, with ids of every kind.
func (h *deployment) storeOfOther(t *testing.T) {
	t.Helper()
	reader, err := postgres.Open(t.Context(), postgres.Config{DSN: h.reader})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if err := reader.Ping(t.Context()); err != nil {
		t.Errorf("an edge's role: %v", err)
	}
	if tenant, err := reader.NextTenant(t.Context(), ""); err != nil || tenant != "" {
		t.Errorf("an edge's role lists tenants: %q, %v", tenant, err)
	}
	w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: "run_new"}, "20260301")
	if _, err := reader.Append(t.Context(), chunks(t, w.Texts("", 1))); err == nil {
		t.Error("an edge's role writes")
	}
	ids := []string{"run_globex20260301", "kid_globex", "", "*", "%", "' or '1'='1",
		"x'; select set_config('agentstream.tenant','*',false); --", `\`, "globex/run_globex20260301",
		strings.Repeat("x", 10_000)}
	for name, s := range map[string]*postgres.Store{"owner": h.store, "reader": reader} {
		if runs, err := s.Runs(t.Context(), "globex", schema.RunsQuery{Limit: 10}); err != nil || len(runs) != 2 {
			t.Fatalf("%s: %v, %v", name, runs, err)
		}
		for _, tenant := range append([]string{"acme", "globe", "GLOBEX"}, ids...) {
			for _, run := range ids {
				key := schema.RunKey{Tenant: tenant, Run: run}
				head, err := s.Head(t.Context(), key, run)
				var body []byte
				for p, werr := range s.Packs(t.Context(), key, 0, schema.MaxSeq) {
					body, err = append(body, p.Body...), errors.Join(err, werr)
				}
				list, lerr := s.Runs(t.Context(), tenant,
					schema.RunsQuery{Limit: 10, States: []schema.RunState{schema.RunState(run), ""},
						After: schema.RunCursor{Started: time.Unix(9e8, 0), ID: run}})
				parent, perr := s.Parent(t.Context(), tenant, run)
				if err := errors.Join(err, lerr, perr); err != nil || head.HasEvents() || len(body) > 0 ||
					strings.Contains(fmt.Sprint(list, parent), "globex2") {
					t.Errorf("%s, %.40q %.40q: %v, %v, %s, %v, %s", name, tenant, run, err, head, body, list, parent)
				}
			}
		}
	}
}

// TestWarnsOfSuperuser: a role that row security does not bind causes one warning.
func TestWarnsOfSuperuser(t *testing.T) {
	admin, owner := ownedMigrated(t)
	open(t, owner)
	for dsn, want := range map[string]int{admin: 1, owner: 0} {
		var log bytes.Buffer
		s, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := s.Ping(t.Context()); err != nil {
				t.Error(err)
			}
		}
		s.Close()
		if n := strings.Count(log.String(), "row security is not in force"); n != want {
			t.Errorf("told %d times, want %d: %s", n, want, log.String())
		}
	}
}

// TestOtherOwner: migrate binds the policies to whom the tables belong now.
func TestOtherOwner(t *testing.T) {
	h := newDeployment(t)
	p := pool(t, h.admin)
	exec(t, p, `create role heir_`+h.ownerRole+` login`)
	exec(t, p, `reassign owned by `+h.ownerRole+` to heir_`+h.ownerRole)
	heir := as(h.admin, "heir_"+h.ownerRole)
	count := func() string {
		return looked(t, heir, `set agentstream.tenant = '*'`, `select count(*) from agent_runs`)
	}
	if got := count(); got != "0\n" {
		t.Fatalf("before: %s", got)
	}
	if _, err := tables.Migrate(t.Context(), heir, false); err != nil {
		t.Fatal(err)
	}
	if got := count(); got != "4\n" {
		t.Fatalf("afterwards: %s", got)
	}
}
