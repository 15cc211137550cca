package serve_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentstream/edge"
	"agentstream/edge/edgetest"
	"agentstream/protocols/langgraph/langgraphtest"
	"agentstream/protocols/langgraph/serve"
)

// TestResume: behind every event of a thread with all channels, under eight filters, over both transports, on the other
// of two nodes, since, since_event_id and Last-Event-ID give the rest, byte for byte.
func TestResume(t *testing.T) {
	all := edgetest.Share()
	n, other := join(t, all, serve.Config{}), join(t, all, serve.Config{})
	for _, e := range log(langgraphtest.AllChannels) {
		n.Say("t", e)
	}
	whole := n.watch(eventsOf("t"), everything).replayed()
	var wg sync.WaitGroup
	for f, filter := range langgraphtest.Filters {
		shown := n.watch(eventsOf("t"), filter).replayed()
		if len(shown) == 0 {
			t.Errorf("%s shows nothing", filter)
		}
		k := other.dial(eventsOf("t"))
		wg.Go(func() {
			for i, at := range whole {
				rest := shown[slices.IndexFunc(append(slices.Clone(shown), item{data: fmt.Sprintf(`"seq":%d,`, 1<<53)}),
					func(s item) bool { return seqOf(s) > seqOf(at) }):]
				body := strings.TrimSuffix(filter, "}") + fmt.Sprintf(`,"since":%d}`, seqOf(at))
				byID := strings.TrimSuffix(filter, "}") + fmt.Sprintf(`,"since_event_id":%q}`, at.id)
				same(t, "since", f, i, other.watch(eventsOf("t"), body).replayed(), rest)
				same(t, "Last-Event-ID", f, i, other.watch(eventsOf("t"), filter, "Last-Event-ID", at.id).replayed(), rest)
				if i%3 == f%3 {
					body = byID
				}
				o := k.ask("subscription.subscribe", body)
				from := k.at
				for range rest {
					k.next()
				}
				frames := k.read(from)
				k.ask("subscription.unsubscribe", fmt.Sprintf(`{"subscription_id":%q}`, o.Str("result", "subscription_id")))
				var got []item
				for _, data := range frames {
					got = append(got, item{data: data})
				}
				same(t, "a socket", f, i, got, rest)
			}
		})
	}
	wg.Wait()
}

// seqOf returns the number of an event.
func seqOf(i item) (n int64) {
	_, rest, _ := strings.Cut(i.data, `"seq":`)
	_, _ = fmt.Sscan(rest[:strings.IndexByte(rest, ',')], &n)
	return n
}

func same(t *testing.T, how string, filter, at int, got, want []item) {
	t.Helper()
	data := func(list []item) (all []string) {
		for _, i := range list {
			all = append(all, i.data)
		}
		return all
	}
	if !slices.Equal(data(got), data(want)) {
		t.Errorf("%s behind event %d under filter %d: %d events, want %d", how, at, filter, len(got), len(want))
	}
}

// TestBehind: a client that had everything and then reads nothing is cut when too much waits for it, and goes on with
// its cursor; a socket is closed with 1013. Others get everything.
func TestBehind(t *testing.T) {
	n := start(t, serve.Config{Backlog: 50}, func(c *edge.Config) { c.WriteTimeout = time.Minute })
	n.Say("t", text("a"))
	awake := n.watch(eventsOf("t"), everything)
	awake.replayed()
	w, k := n.watch(eventsOf("t"), everything), n.dial(eventsOf("t"))
	w.replayed()
	k.ask("subscription.subscribe", everything)
	n.Say("t", event("custom.ready", `{"x":1}`))
	awake.next()
	w.next()
	for k.next().Str("params", "data", "name") != "ready" {
	}
	wake, stir := w.stops(), k.stops()
	defer stir()
	defer wake()
	big := strings.Repeat("x", 200<<10)
	for i := range 200 {
		n.Say("t", text(big))
		for e := awake.next(); !strings.Contains(e.data, fmt.Sprintf(`"seq":%d,`, int64(i+3)<<15|16384)); e = awake.next() {
		}
	}
	wake()
	stir()
	<-w.done
	k.ends(1013, "")
	had, whole := w.all(), awake.all()
	last := had[len(had)-1]
	if seqOf(last) >= 200<<15 {
		t.Error("the client was not behind")
	}
	got := n.watch(eventsOf("t"), everything, "Last-Event-ID", last.id).replayed()
	if !slices.Equal(got, whole[len(had):]) || !slices.Equal(had, whole[:len(had)]) {
		t.Errorf("%d events and %d behind them, %d without the cut", len(had), len(got), len(whole))
	}
}

// TestNeed17Tickets: a client that can set no header opens a socket with a ticket, and no other thread's.
func TestNeed17Tickets(t *testing.T) {
	n := start(t, serve.Config{})
	n.Say("t", text("a"))
	ticket := func() string {
		return n.do("POST", "/v1/agent/runs/t/tickets", `{}`, "Content-Type", "application/json").OK(201).Str("ticket")
	}
	n.dial(eventsOf("t")+"?ticket="+ticket()).ask("subscription.subscribe", everything)
	if _, resp, err := n.tryDial(eventsOf("other") + "?ticket=" + ticket()); err == nil || resp.StatusCode != 401 &&
		resp.StatusCode != 404 {
		t.Errorf("%v %v", resp, err)
	}
}

// TestKey: x-api-key is the credential, in the place of Authorization.
func TestKey(t *testing.T) {
	n := start(t, serve.Config{}, func(c *edge.Config) { c.Authenticate = byKey })
	n.Say("t", text("a"))
	n.watch(eventsOf("t"), everything, "x-api-key", "secret").replayed()
	n.dial(eventsOf("t"), "x-api-key", "secret").ask("subscription.subscribe", everything)
	n.do("POST", eventsOf("t"), everything, "Content-Type", "application/json", "x-api-key", "other").refused(401,
		"permission_denied")
	n.do("POST", "/threads/t/commands", `{"id":1,"method":"no.such"}`, "Content-Type", "application/json", "x-api-key",
		"secret").refusedIn("unknown_command")
}
