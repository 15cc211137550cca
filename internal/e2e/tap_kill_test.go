package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"agentstream/internal/natskit"
	"agentstream/producers"
	pubjs "agentstream/producers/natsjs"
	"agentstream/schema"
)

// clickHouse is a stand-in of ClickHouse: it drops a block whose token it has seen, and of rows with one key all but
// one, as the table that the sink makes does.
type clickHouse struct {
	*httptest.Server

	mu     sync.Mutex
	tokens map[string]bool
	rows   map[string]string // ids of events by their keys
	blocks int               // that were dropped by their token
	twice  int               // rows that were merged
}

func newClickHouse(t *testing.T) *clickHouse {
	c := &clickHouse{tokens: make(map[string]bool), rows: make(map[string]string)}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

func (c *clickHouse) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	body, err := io.ReadAll(r.Body)
	if err != nil { // the sink has died: nothing of its block is stored
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if !strings.HasPrefix(query.Get("query"), "insert into") {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	token := query.Get("insert_deduplication_token")
	if c.tokens[token] {
		c.blocks++
		return
	}
	c.tokens[token] = true
	lines := bufio.NewScanner(strings.NewReader(string(body)))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var row struct {
			Tenant string
			Run    string `json:"run_id"`
			Seq    int
			ID     string
		}
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		key := fmt.Sprintf("%s/%s/%d", row.Tenant, row.Run, row.Seq)
		if c.rows[key] != "" {
			c.twice++
		}
		c.rows[key] = row.ID
	}
}

// byKey are the rows that a query would see.
func (c *clickHouse) byKey() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.rows)
}

// rowsByKey are the rows of the table that the sink for PostgreSQL has made.
func rowsByKey(ctx context.Context, dsn string) (map[string]string, error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(ctx) }()
	rows, err := conn.Query(ctx, "select tenant || '/' || run_id || '/' || seq, id from agentstream_events")
	if err != nil {
		return nil, err
	}
	all := make(map[string]string)
	var key, id string
	_, err = pgx.ForEachRow(rows, []any{&key, &id}, func() error {
		if all[key] != "" {
			return fmt.Errorf("%s is there twice", key)
		}
		all[key] = id
		return nil
	})
	return all, err
}

// topic reads what the sink for Kafka writes: a record whose key it has seen is dropped.
type topic struct {
	client *kgo.Client
	all    map[string]string
	next   map[string]int // of each run
	twice  int
	fault  string
}

// read reads what has come.
func (k *topic) read(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	k.client.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
		var event struct{ ID string }
		err := json.Unmarshal(r.Value, &event)
		if err != nil || len(r.Headers) == 0 {
			k.fault = fmt.Sprintf("a record of %s: %v", r.Key, err)
			return
		}
		key := string(r.Headers[0].Value)
		if k.all[key] != "" {
			k.twice++
			return
		}
		k.all[key] = event.ID
		run := string(r.Key)
		k.next[run]++
		if want := run + "/" + strconv.Itoa(k.next[run]); key != want && k.fault == "" {
			k.fault = fmt.Sprintf("%s came where %s was to come", key, want)
		}
	})
}

// startTopic starts a broker, and returns it with a reader of what comes.
func startTopic(t *testing.T) (address string, reader *topic) {
	t.Helper()
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "events"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.ListenAddrs()...), kgo.ConsumeTopics("events"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return broker.ListenAddrs()[0], &topic{client: client, all: make(map[string]string), next: make(map[string]int)}
}

// chatter writes packs of texts to runs, and is told what is stored, until the function that it returns is called.
func chatter(t *testing.T, url string, runs []schema.RunKey) (stop func() (packs int)) {
	t.Helper()
	nc, err := natskit.Dial(url, t.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	log, err := pubjs.Open(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	counts := make([]int, len(runs))
	for i, key := range runs {
		pub, err := producers.New(producers.Config{Log: log, Key: key, Timeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for ; ctx.Err() == nil; counts[i]++ {
				events := make([]schema.Event, 8)
				for j := range events {
					events[j] = schema.Event{Type: schema.TypeTextDelta,
						Payload: fmt.Appendf(nil, `{"text":"%d %d"}`, counts[i], j)}
				}
				if _, err := pub.Append(context.WithoutCancel(ctx), events...); err != nil {
					t.Errorf("%s: %v", key, err)
					return
				}
				time.Sleep(30 * time.Millisecond)
			}
			if err := pub.Close(context.WithoutCancel(ctx)); err != nil {
				t.Errorf("%s: close: %v", key, err)
			}
		})
	}
	return func() (packs int) {
		cancel()
		wg.Wait()
		for _, n := range counts {
			packs += n
		}
		return packs
	}
}

// logByKey are the events that the log has.
func logByKey(t *testing.T, url string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	eachStored(t, url, func(p schema.Pack) {
		for r, err := range p.Records(0) {
			if err != nil {
				t.Fatal(err)
			}
			id, _, _ := r.Envelope()
			all[fmt.Sprintf("%s/%s/%d", p.Key.Tenant, p.Key.Run, r.Seq)] = string(id)
		}
	})
	return all
}

// Three taps of two members each, into PostgreSQL, Kafka and ClickHouse's stand-in, and NATS are killed at random
// points, while producers publish. Afterwards each sink has every event of the log once by its own means, and those of
// a run came in order. AGENTSTREAM_SEED repeats a campaign's faults.
func TestKillTaps(t *testing.T) {
	beside(t)
	n, seed := kills(t, 8), seedOf(t)
	t.Logf("AGENTSTREAM_SEED=%d AGENTSTREAM_KILLS=%d", seed, n)
	w := newServers(t)
	ours := w.postgres.Database(t)
	house := newClickHouse(t)
	broker, records := startTopic(t)
	kinds := []string{killNATS}
	for name, to := range map[string]string{"postgres": ours, "kafka": "kafka://" + broker + "/events",
		"clickhouse": "clickhouse+" + house.URL} {
		kind := "kill -9 of the tap to " + name
		w.start(kind, "tap", "--name", name, "--to", to, "--linger", "20ms")
		kinds = append(kinds, kind)
	}
	var runs []schema.RunKey
	for i := range 8 {
		runs = append(runs, schema.RunKey{Tenant: []string{"acme", "umbrella"}[i%2], Run: "run_" + strconv.Itoa(i)})
	}
	stop := chatter(t, w.nats.url(), runs)
	rnd := rand.New(rand.NewPCG(seed, 7))
	for _, f := range faultPlan(kinds, n, seed) {
		f.down /= 2
		<-time.After(time.Duration(rnd.IntN(700)) * time.Millisecond)
		w.strike(f)
		records.read(t.Context())
	}
	w.back("")
	packs := stop()
	want := logByKey(t, w.nats.url())
	if len(want) < packs*8 {
		t.Errorf("the log has %d events, and %d were acknowledged", len(want), packs*8)
	}
	sinks := map[string]func() (map[string]string, error){
		"postgres":   func() (map[string]string, error) { return rowsByKey(t.Context(), ours) },
		"clickhouse": func() (map[string]string, error) { return house.byKey(), nil },
		"kafka": func() (map[string]string, error) {
			records.read(t.Context())
			return records.all, nil
		},
	}
	for name, read := range sinks {
		var have map[string]string
		eventually(t, 60*time.Second, name+" has all", func() bool {
			var err error
			have, err = read()
			if err != nil {
				t.Fatal(err)
			}
			return len(have) >= len(want)
		})
		for key, id := range want {
			if have[key] != id {
				t.Fatalf("%s has %q as %s, which is %s in the log", name, have[key], key, id)
			}
		}
		if len(have) != len(want) {
			t.Errorf("%s has %d events of %d", name, len(have), len(want))
		}
	}
	if records.fault != "" {
		t.Error(records.fault)
	}
	t.Logf("%d events of %d runs, each once in all three; %v; Kafka had %d twice, ClickHouse %d and %d blocks", len(want),
		len(runs), w.fired, records.twice, house.twice, house.blocks)
}
