package sink

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/testkit"
	"agentstream/persister"
	"agentstream/tap"
)

// TestPostgres: each event is one row, whatever comes again, also within a batch and together with what is new. A bad
// one is found by dividing.
func TestPostgres(t *testing.T) {
	dsn := testkit.Postgres(t)
	sep := "?"
	if strings.Contains(dsn, "?") {
		sep = "&"
	}
	s := open(t, Options{}, dsn+sep+"table=my+events")
	nul := event("r", 2)
	nul.Line = []byte(`{"text":"a\u0000b"}`)
	write(t, s, event("r", 1), nul, event("r", 1))
	write(t, s, event("r", 1), nul, event("r", 3))
	bad := event("r", 4)
	bad.Line = []byte("{")
	if _, err := s.Write(t.Context(), []tap.Event{bad}); !errors.Is(err, persister.ErrPoison) {
		t.Errorf("%v, want ErrPoison", err)
	}
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	rows, err := conn.Query(t.Context(), `select run_id || seq || type || (event->>'run_id') from "my events" where seq <> 2 order by seq`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if want := "[r1text.deltar r3text.deltar]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("%v, %v", got, err)
	}
}

// TestNATS: events are published below a subject, and what comes twice is stored once.
func TestNATS(t *testing.T) {
	server := testkit.NATS(t)
	_, err := server.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OUT", Subjects: []string{"out.events.>"}})
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, Options{}, server.Server.ClientURL()+"/out.events")
	var batch []tap.Event
	for i := range 600 {
		batch = append(batch, event("r", i+1))
	}
	write(t, s, batch...)
	write(t, s, batch...)
	stream, err := server.JS.Stream(t.Context(), "OUT")
	if err != nil {
		t.Fatal(err)
	}
	last, err := stream.GetMsg(t.Context(), 600)
	if err != nil || last.Subject != "out.events.acme.r" || last.Header.Get("Nats-Msg-Id") != "acme/r/600" ||
		stream.CachedInfo().State.LastSeq != 600 {
		t.Errorf("%+v, %v, %d messages", last, err, stream.CachedInfo().State.LastSeq)
	}
	none := open(t, Options{}, server.Server.ClientURL()+"/nobody")
	if _, err := none.Write(t.Context(), batch[:1]); err == nil {
		t.Error("what no stream stores is delivered")
	}
}

// house is a stand-in of ClickHouse: it makes no table twice and drops blocks by their token.
type house struct {
	mu     sync.Mutex
	tokens map[string]bool
	rows   []string
	table  string
	user   string
}

func (h *house) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	q := r.URL.Query()
	h.user = r.Header.Get("X-Clickhouse-User") + q.Get("database")
	switch {
	case err != nil:
		w.WriteHeader(http.StatusInternalServerError)
	case strings.HasPrefix(q.Get("query"), "create table if not exists events"):
		h.table = q.Get("query")
	case q.Get("query") != "insert into events format JSONEachRow":
		w.WriteHeader(http.StatusNotFound)
	case strings.Contains(string(body), `"seq":7`):
		w.Header().Set("X-ClickHouse-Exception-Code", "27")
		w.WriteHeader(http.StatusBadRequest)
	case !h.tokens[q.Get("insert_deduplication_token")]:
		h.tokens[q.Get("insert_deduplication_token")] = true
		h.rows = append(h.rows, strings.Split(strings.TrimSpace(string(body)), "\n")...)
	}
}

// TestClickHouse: a block that comes again has the same token, another block has another.
func TestClickHouse(t *testing.T) {
	h := &house{tokens: map[string]bool{}}
	server := httptest.NewServer(h)
	defer server.Close()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, Options{}, "clickhouse+http://me:hush@"+u.Host+"/db?table=events")
	write(t, s, event("r", 1), event("r", 2))
	write(t, s, event("r", 1), event("r", 2))
	write(t, s, event("r", 3))
	if len(h.rows) != 3 || h.user != "medb" || !strings.Contains(h.table, "ReplacingMergeTree") ||
		!strings.Contains(h.rows[0], `"event":"{\"id\":\"evt_r_1\"`) {
		t.Errorf("%s\n%s %s", strings.Join(h.rows, "\n"), h.user, h.table)
	}
	if _, err := s.Write(t.Context(), []tap.Event{event("r", 7)}); !errors.Is(err, persister.ErrPoison) {
		t.Errorf("%v, want ErrPoison", err)
	}
}
