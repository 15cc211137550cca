package edge_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/edge"
	"agentstream/edge/auth"
	"agentstream/edge/auth/authtest"
	"agentstream/edge/dialect"
	"agentstream/edge/edgetest"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// guarded is a house with every kind of credential.
type guarded struct {
	*matrix
	issuer  *authtest.Issuer
	keysAt  string // file of the API keys
	logs    *edgetest.SyncBuffer
	secrets []string // that must not be in the logs
}

const staticToken = "static-token-of-the-tests-0123456789"

func newGuarded(t testing.TB, change ...func(*edge.Config)) *guarded {
	t.Helper()
	g := &guarded{issuer: authtest.New(t, "rsa", "ec", "ec384", "ed"), keysAt: filepath.Join(t.TempDir(), "keys"),
		logs: new(edgetest.SyncBuffer)}
	g.secret(staticToken)
	if err := os.WriteFile(g.keysAt, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewJSONHandler(g.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	keys, err := auth.OpenAPIKeys(auth.APIKeysConfig{Path: g.keysAt, Every: time.Nanosecond, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	fetch := &http.Transport{}
	t.Cleanup(fetch.CloseIdleConnections)
	tokens, err := auth.NewJWT(auth.JWTConfig{Issuer: g.issuer.URL, Audiences: []string{"agentstream"}, Discover: true,
		Transport: fetch, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	static, err := auth.NewStaticToken(staticToken, auth.Caller{Tenant: "acme", Scopes: auth.ScopeAll})
	if err != nil {
		t.Fatal(err)
	}
	bearer := auth.Bearer{keys, tokens, static}
	tickets, err := auth.NewTickets(auth.TicketsConfig{Store: auth.NewMemoryTickets(nil), Still: bearer.Still})
	if err != nil {
		t.Fatal(err)
	}
	g.matrix = newMatrix(t, func(c *edge.Config) {
		c.Authenticate, c.Still, c.Tickets, c.Logger = bearer.Authenticate, bearer.Still, tickets, log
		c.Recheck = 5 * time.Millisecond
		for _, f := range change {
			f(c)
		}
	})
	g.has("acme", "run")
	return g
}

func (g *guarded) secret(s string) string {
	g.secrets = append(g.secrets, s)
	return s
}

// key puts a new API key into the file and gives its text.
func (g *guarded) key(id string, scopes auth.Scope) string {
	g.T.Helper()
	text, key, err := auth.NewAPIKey(id, "acme", scopes, time.Time{})
	if err != nil {
		g.T.Fatal(err)
	}
	line, err := key.Line()
	if err != nil {
		g.T.Fatal(err)
	}
	have, err := os.ReadFile(g.keysAt)
	if err != nil {
		g.T.Fatal(err)
	}
	g.writeKeys(string(have) + string(line))
	g.secret(key.Hash)
	return g.secret(text)
}

func (g *guarded) writeKeys(text string) {
	g.T.Helper()
	if err := os.WriteFile(g.keysAt, []byte(text), 0o600); err != nil {
		g.T.Fatal(err)
	}
}

// ticket asks for one.
func (g *guarded) ticket(run, token string) string {
	g.T.Helper()
	a := g.Do("POST", "/v1/agent/runs/"+run+"/tickets", "", "Authorization", "Bearer "+token)
	var out struct {
		Ticket  string    `json:"ticket"`
		Expires time.Time `json:"expires_at"`
	}
	if err := json.Unmarshal([]byte(a.Body), &out); err != nil || a.Status != 201 ||
		!strings.HasPrefix(out.Ticket, "tkt_") {
		g.T.Fatalf("%d %s", a.Status, a.Body)
	}
	if left := time.Until(out.Expires); left <= 0 || left > time.Minute || a.Header.Get("Cache-Control") != "no-store" {
		g.T.Errorf("good for %v, %v", left, a.Header)
	}
	return g.secret(out.Ticket)
}

// silent says that no secret is in the logs, whole or in its telling part.
func (g *guarded) silent() {
	g.T.Helper()
	logs := g.logs.String() + g.matrix.House.Logs.String()
	if strings.Count(logs, "\n") < 5 {
		g.T.Fatalf("hardly anything was logged: %s", logs)
	}
	for _, field := range []string{`"caller":"`, `"remote":"127.0.0.1:`, `"took_ms":`} {
		if !strings.Contains(logs, field) {
			g.T.Errorf("no line has %s", field)
		}
	}
	for _, s := range g.secrets {
		for part := range strings.SplitSeq(s, ".") {
			if len(part) > 24 {
				part = part[len(part)-24:]
			}
			if len(part) >= 16 && strings.Contains(logs, part) {
				g.T.Errorf("a secret is in the logs: %s", part)
			}
		}
	}
}

// TestHostileTokensOverHTTP sends every hostile token to three kinds of routes: 401, one body for all,
// and nothing of the token in the logs.
func TestHostileTokensOverHTTP(t *testing.T) {
	g := newGuarded(t)
	if a := g.Do("GET", "/v1/agent/runs/run", "", "Authorization", "Bearer "+g.secret(g.issuer.Good())); a.Status != 200 {
		t.Fatalf("the good token is answered %d %s", a.Status, a.Body)
	}
	want, sent := "", 0
	for _, tt := range g.issuer.Hostile() {
		if strings.ContainsAny(tt.Text, "\n") {
			continue // no header can hold it
		}
		sent++
		g.secret(tt.Text)
		for _, path := range []string{"GET /v1/agent/runs/run", "GET /v1/agent/runs/run/stream",
			"POST /v1/agent/runs/run/events"} {
			method, path, _ := strings.Cut(path, " ")
			a := g.Do(method, path, "", "Authorization", "Bearer "+tt.Text)
			p := a.Expect(t, 401, "UNAUTHORIZED")
			body := strings.ReplaceAll(a.Body, p.RequestID, "ID")
			if want == "" {
				want = body
			}
			if body != want || a.Header.Get("WWW-Authenticate") != "Bearer" || a.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s: %s %s %v", tt.Name, path, body, a.Header)
			}
		}
	}
	if sent < 75 {
		t.Errorf("only %d tokens", sent)
	}
	if n := strings.Count(g.logs.String(), `"check":"`); n < 3*sent {
		t.Errorf("%d refusals say in the log which check failed, of %d", n, 3*sent)
	}
	if g.issuer.Fetches.Load() != 1 || g.issuer.Strays.Load() != 0 {
		t.Errorf("%d fetches of keys, %d of other things", g.issuer.Fetches.Load(), g.issuer.Strays.Load())
	}
	g.silent()
}

// TestScopes asks every route with every set of scopes: served, or 403 and nothing done.
func TestScopes(t *testing.T) {
	var scopes auth.Scope
	m := newMatrix(t, func(c *edge.Config) {
		c.Authenticate = func(*http.Request) (auth.Caller, error) { return auth.Caller{Tenant: "acme", Scopes: scopes}, nil }
	})
	for i, rt := range m.table {
		client := m.Client
		if rt.Transport == dialect.GRPC {
			client = edgetest.H2C()
		}
		for scopes = 0; scopes <= auth.ScopeAll; scopes++ {
			run := fmt.Sprintf("run_%03d_%d", i, scopes)
			m.has("acme", run)
			m.work.take()
			// streams are refused behind the door
			answer := m.ask(client, rt, rt.Method, run, beyond, edgetest.TenantHeader, "acme")
			work := m.work.take()
			forbidden := statusOf(answer) == "403" || statusOf(answer) == "grpc 7"
			if want := scopes&rt.Needs != rt.Needs; forbidden != want {
				t.Errorf("%s with scopes %q, needs %q: %s", rt.Pattern, scopes, rt.Needs, answer)
			}
			if forbidden && (len(work) != 0 || !strings.Contains(answer, "FORBIDDEN") && rt.Transport != dialect.GRPC) {
				t.Errorf("%s with scopes %q: %v was asked: %s", rt.Pattern, scopes, work, answer)
			}
		}
	}
	// What a route needs is a decision that is made here, and not by default.
	var open []string
	for _, rt := range m.table {
		switch {
		case rt.Needs == 0:
			open = append(open, rt.Pattern)
		case rt.Path == workPath && rt.Needs == auth.ScopeWrite|auth.ScopeCommand: // it writes answers to what people say
		case rt.Method == "GET" && rt.Needs != auth.ScopeRead && rt.Path != edgetest.PublishPath &&
			(rt.Needs != auth.ScopeOperate || strings.Contains(rt.Pattern, "{run}")) &&
			(rt.Needs != auth.ScopeAudit || !strings.HasPrefix(rt.Path, "/v1/agent/audit")):
			t.Errorf("%s needs %s", rt.Pattern, rt.Needs)
		}
	}
	slices.Sort(open)
	if want := []string{"GET /healthz", "GET /readyz", "POST /grpc.health.v1.Health/Check", "POST /grpc.health.v1.Health/Watch",
		"POST /grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "POST /grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"}; !slices.Equal(open, want) {
		t.Errorf("open to everybody: %q", open)
	}
}

// TestTicketOpensOneStreamOnce takes tickets over SSE and WebSocket, from many clients at once.
func TestTicketOpensOneStreamOnce(t *testing.T) {
	g := newGuarded(t)
	g.put(schematest.Packs(schema.RunKey{Tenant: "acme", Run: "ended"}, schematest.ByName("plain"), 100))
	key := g.key("watcher", auth.ScopeRead)
	ticket := g.ticket("ended", key)
	var mu sync.Mutex
	got := map[int]int{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			a := g.Do("GET", "/v1/agent/runs/ended/stream?detail=full&ticket="+ticket, "")
			mu.Lock()
			defer mu.Unlock()
			got[a.Status]++
			if a.Status == 200 && !strings.Contains(a.Body, "run.lifecycle") {
				t.Errorf("no stream: %s", a.Body)
			}
		})
	}
	wg.Wait()
	if got[200] != 1 || got[401] != 7 {
		t.Errorf("eight clients with one ticket: %v", got)
	}
	if a := g.Do("HEAD", "/v1/agent/runs/ended/stream?ticket="+g.ticket("ended", key), ""); a.Status != 200 {
		t.Errorf("HEAD: %d", a.Status)
	}
	ticket = g.ticket("ended", key)
	s, resp, err := g.Dial("/v1/agent/runs/ended/stream?ticket=" + ticket)
	if err != nil {
		t.Fatalf("%v %v", resp, err)
	}
	s.Wait(t)
	if _, resp, err := g.Dial("/v1/agent/runs/ended/stream?ticket=" + ticket); err == nil || resp.StatusCode != 401 {
		t.Errorf("the same ticket again: %v %v", resp, err)
	}
	g.silent()
}

// TestTicketsAreForStreamsAlone: a ticket is nothing anywhere else, nor beside another credential, nor
// for another run; and no other credential is a ticket.
func TestTicketsAreForStreamsAlone(t *testing.T) {
	g := newGuarded(t)
	g.has("acme", "other")
	key := g.key("watcher", auth.ScopeAll)
	client := edgetest.H2C()
	for _, rt := range g.table {
		if rt.Needs == 0 {
			continue
		}
		ticket := g.ticket("run", key)
		c := g.Client
		if rt.Transport == dialect.GRPC {
			c = client
		}
		if rt.Transport == "" || rt.Transport == dialect.GRPC || !strings.Contains(rt.Path, "{run}") &&
			strings.HasPrefix(rt.Path, edgetest.PublishPath) {
			answer := g.ask(c, rt, rt.Method, "run", "?ticket="+ticket)
			if s := statusOf(answer); s != "401" && s != "grpc 16" {
				t.Errorf("%s takes a ticket: %s", rt.Pattern, answer)
			}
			answer = g.ask(c, rt, rt.Method, "run", "", "Authorization", "Bearer "+ticket)
			if s := statusOf(answer); s != "401" && s != "grpc 16" {
				t.Errorf("%s takes a ticket as a token: %s", rt.Pattern, answer)
			}
			continue
		}
		for query, want := range map[string]string{
			"?ticket=" + ticket + "&ticket=" + ticket: "401",
			"?ticket=":                                           "401",
			"?ticket=" + key:                                     "401",
			"?ticket=" + g.secret(g.issuer.Good()):               "401",
			"?access_token=" + g.secret(g.issuer.Good()):         "401",
			"?token=" + key + "&api_key=" + key:                  "401",
			"?Ticket=" + ticket:                                  "401",
			"?ticket=" + g.ticket("other", key):                  "401",
			"?ticket=" + g.ticket("run", key) + "&after=x":       "400",
			"?%74icket=" + g.ticket("run", key) + "&after=99999": "409",
		} {
			if answer := g.ask(c, rt, rt.Method, "run", query); statusOf(answer) != want {
				t.Errorf("%s%.20s: want %s: %s", rt.Pattern, query, want, answer)
			}
		}
		if answer := g.ask(c, rt, rt.Method, "run", "?ticket="+g.ticket("run", key), "Authorization",
			"Bearer "+key); statusOf(answer) != "401" {
			t.Errorf("%s: two credentials: %s", rt.Pattern, answer)
		}
	}
	for run, want := range map[string]int{"never": 404, "a.b": 400} {
		if a := g.Do("POST", "/v1/agent/runs/"+run+"/tickets", "", "Authorization", "Bearer "+key); a.Status != want {
			t.Errorf("a ticket for %s: %d", run, a.Status)
		}
	}
	writer := g.key("writer", auth.ScopeWrite|auth.ScopeCommand)
	if a := g.Do("POST", "/v1/agent/runs/run/tickets", "", "Authorization", "Bearer "+writer); a.Status != 403 {
		t.Errorf("a ticket without reading: %d", a.Status)
	}
	g.silent()
}

// TestRevocation: a key that is taken out of the file is refused, its tickets are, and its open
// streams end, over every transport, while others go on.
func TestRevocation(t *testing.T) {
	g := newGuarded(t)
	key := g.key("leaving", auth.ScopeRead)
	stays := "Bearer " + staticToken
	waiting := g.ticket("run", key)
	byHeader := g.Watch(g.Client, "/v1/agent/runs/run/stream?detail=full", "Authorization", "Bearer "+key)
	byTicket := g.Watch(g.Client, "/v1/agent/runs/run/stream?detail=full&ticket="+g.ticket("run", key))
	other := g.Watch(g.Client, "/v1/agent/runs/run/stream?detail=full", "Authorization", stays)
	socket, _, err := g.Dial("/v1/agent/runs/run/stream?detail=full&ticket=" + g.ticket("run", key))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*edgetest.EventReader{byHeader, byTicket, other} {
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}
	g.writeKeys("# nobody\n")
	for name, r := range map[string]*edgetest.EventReader{"header": byHeader, "ticket": byTicket} {
		last := ""
		for {
			text, err := r.Next()
			if err != nil {
				if errors.Is(err, io.EOF) {
					t.Errorf("%s: the stream ended cleanly", name)
				}
				break
			}
			last = text
		}
		if !strings.Contains(last, "CREDENTIAL-EXPIRED") || strings.Contains(last, "\nid:") {
			t.Errorf("%s: the last frame is %q", name, last)
		}
	}
	if _, ce := socket.Wait(t); ce == nil || ce.Code != 1008 ||
		!strings.Contains(string(ce.Reason), "CREDENTIAL-EXPIRED") {
		t.Errorf("socket closed with %v", ce)
	}
	if a := g.Do("GET", "/v1/agent/runs/run", "", "Authorization", "Bearer "+key); a.Status != 401 {
		t.Errorf("the key: %d", a.Status)
	}
	if a := g.Do("GET", "/v1/agent/runs/run/stream?ticket="+waiting, ""); a.Status != 401 {
		t.Errorf("its ticket: %d", a.Status)
	}
	if a := g.Do("POST", "/v1/agent/runs/run/events", edgetest.GoodLine, "Authorization", stays); a.Status != 200 {
		t.Fatal(a.Body)
	}
	for {
		text, err := other.Next()
		if err != nil {
			t.Fatalf("another's stream ended as well: %v", err)
		}
		if strings.Contains(text, `"text":"x"`) {
			break
		}
	}
	g.silent()
}

// TestStreamEndsWithItsTicketsCredential: the stream of a ticket ends when the credential does that
// the ticket was asked for with, not with the ticket, and a new ticket goes on behind the cursor.
func TestStreamEndsWithItsTicketsCredential(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := edgetest.NewPipes()
		var expires time.Time
		tickets, err := auth.NewTickets(auth.TicketsConfig{Store: auth.NewMemoryTickets(nil),
			Still: func(auth.Caller) error { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		h := edgetest.NewHouseOn(t, ln, ln.Client(), func(c *edge.Config) {
			c.Tickets = tickets
			c.Authenticate = func(r *http.Request) (auth.Caller, error) {
				return auth.Caller{Tenant: "acme", Scopes: auth.ScopeAll, Expires: expires}, nil
			}
		})
		h.Do("POST", "/v1/agent/runs/run/events", edgetest.GoodLine)
		take := func() string {
			var out struct{ Ticket string }
			a := h.Do("POST", "/v1/agent/runs/run/tickets", "")
			if err := json.Unmarshal([]byte(a.Body), &out); err != nil || a.Status != 201 {
				t.Fatalf("%d %s", a.Status, a.Body)
			}
			return out.Ticket
		}
		expires = time.Now().Add(5 * time.Minute)
		r := h.Watch(h.Client, "/v1/agent/runs/run/stream?detail=full&ticket="+take())
		if got, err := r.Next(); err != nil || !strings.HasSuffix(got, "id: 1\n\n") {
			t.Fatalf("%q %v", got, err)
		}
		begun, last := time.Now(), ""
		for {
			text, err := r.Next()
			if err != nil {
				break
			}
			last = text
		}
		if took := time.Since(begun); took < 4*time.Minute+59*time.Second || took > 5*time.Minute+time.Second {
			t.Errorf("ended after %v", took)
		}
		if !strings.Contains(last, "CREDENTIAL-EXPIRED") {
			t.Errorf("the last frame is %q", last)
		}
		expires = time.Now().Add(time.Hour)
		h.Do("POST", "/v1/agent/runs/run/events", `{"type":"run.lifecycle","payload":{"state":"done"}}`)
		if got := h.Do("GET", "/v1/agent/runs/run/stream?detail=full&after=1&ticket="+take(),
			"").Events(t); !strings.HasSuffix(got, "id: 2\n\n") {
			t.Errorf("behind the cursor: %q", got)
		}
		late := take()
		time.Sleep(time.Minute) // the bubble's clock
		if a := h.Do("GET", "/v1/agent/runs/run/stream?ticket="+late, ""); a.Status != 401 {
			t.Errorf("a ticket after its time: %d", a.Status)
		}
	})
}

// TestAuthUnavailable: when credentials cannot be checked, nobody is let in and nobody is told that
// his is bad.
func TestAuthUnavailable(t *testing.T) {
	away := httptest.NewServer(http.NotFoundHandler())
	defer away.Close()
	fetch := &http.Transport{}
	defer fetch.CloseIdleConnections()
	tokens, err := auth.NewJWT(auth.JWTConfig{Issuer: "i", Audiences: []string{"a"}, JWKS: away.URL, Transport: fetch})
	if err != nil {
		t.Fatal(err)
	}
	h := edgetest.NewHouse(t, func(c *edge.Config) { c.Authenticate = auth.Bearer{tokens}.Authenticate })
	a := h.Do("GET", "/v1/agent/runs/run", "", "Authorization", "Bearer "+authtest.New(t, "rsa").Good())
	a.Expect(t, 503, "AUTH-UNAVAILABLE")
	if a.Header.Get("Retry-After") == "" || strings.Contains(a.Body, away.URL) {
		t.Errorf("%v %s", a.Header, a.Body)
	}
	h.Do("POST", "/v1/agent/runs/run/tickets", "").Expect(t, 401, "UNAUTHORIZED")
}

// TestNoTickets: without them the route is not there, and `?ticket=` is nothing.
func TestNoTickets(t *testing.T) {
	h := edgetest.NewHouse(t)
	h.Do("POST", "/v1/agent/runs/run/events", edgetest.GoodLine)
	h.Do("POST", "/v1/agent/runs/run/tickets", "").Expect(t, 404, "NOT-FOUND")
	h.Do("GET", "/v1/agent/runs/run/stream?ticket=tkt_x", "", edgetest.TenantHeader, "nobody").Expect(t, 401,
		"UNAUTHORIZED")
}
