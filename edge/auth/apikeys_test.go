package auth

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// writeKeys replaces the file the way editors do, or in place.
func writeKeys(t testing.TB, path string, text string, inPlace bool) {
	t.Helper()
	if inPlace {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := os.WriteFile(path+"~", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+"~", path); err != nil {
		t.Fatal(err)
	}
}

// newKey makes a key and its line.
func newKey(t testing.TB, id string, scopes Scope, expires time.Time) (text, line string) {
	t.Helper()
	text, key, err := NewAPIKey(id, "acme", scopes, expires)
	if err != nil {
		t.Fatal(err)
	}
	b, err := key.Line()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(b), text) || strings.Contains(string(b), text[len(text)-20:]) {
		t.Fatalf("the line holds the key: %s", b)
	}
	return text, string(b)
}

func TestAPIKeys(t *testing.T) {
	c := newClock()
	path := filepath.Join(t.TempDir(), "keys")
	logs := new(logBuffer)
	ci, ciLine := newKey(t, "ci-7", ScopeRead|ScopeWrite, time.Time{})
	short, shortLine := newKey(t, "", ScopeRead, c.now().Add(time.Minute))
	writeKeys(t, path, "# keys of this deployment\n\n"+ciLine+shortLine, true)
	keys, err := OpenAPIKeys(APIKeysConfig{Path: path, Now: c.now, Logger: logs.logger()})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(token string) (Caller, error) { return Bearer{keys}.Authenticate(request("Bearer " + token)) }
	caller, err := ask(ci)
	if err != nil || caller.Tenant != "acme" || caller.Scopes != ScopeRead|ScopeWrite ||
		caller.Credential != "key:ci-7" || !caller.Expires.IsZero() {
		t.Fatalf("%+v %v", caller, err)
	}
	brief, err := ask(short)
	if err != nil || brief.Expires.Sub(c.now()).Round(time.Second) != time.Minute {
		t.Fatalf("%+v %v", brief, err)
	}
	other, _ := newKey(t, "ci-7", ScopeAll, time.Time{})
	hash := ciLine[strings.Index(ciLine, "sha256:"):][:71]
	for name, token := range map[string]string{
		"another secret":    other,
		"cut":               ci[:len(ci)-1],
		"longer":            ci + "A",
		"in lower case":     strings.ToLower(ci),
		"the hash":          hash,
		"the hash as a key": "ask_ci-7_" + hash,
		"unknown id":        "ask_nobody_" + strings.Repeat("A", 52),
		"no id":             "ask__" + strings.Repeat("A", 52),
		"no secret":         "ask_ci-7_",
		"nothing":           "ask_",
		"an id with a path": "ask_../../etc_" + strings.Repeat("A", 52),
		"an id of 4 KiB":    "ask_" + strings.Repeat("a", 4<<10) + "_A",
	} {
		c, err := ask(token)
		if !errors.Is(err, ErrUnauthorized) || c != (Caller{}) {
			t.Errorf("%s: %+v %v", name, c, err)
		} else if strings.Contains(err.Error(), token) {
			t.Errorf("%s: the error holds the key: %v", name, err)
		}
	}
	c.move(time.Minute)
	if _, err := ask(short); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("an expired key: %v", err)
	}
	if err := keys.Still(brief); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("still, though expired: %v", err)
	}
	if strings.Contains(logs.String(), ci) || strings.Contains(logs.String(), hash) {
		t.Errorf("logged: %s", logs)
	}
}

// TestAPIKeysAreReadAgain: a revoked key is refused, also for what was derived from it, and a file
// that is broken changes nothing but readiness.
func TestAPIKeysAreReadAgain(t *testing.T) {
	for _, inPlace := range []bool{true, false} {
		c := newClock()
		path := filepath.Join(t.TempDir(), "keys")
		logs := new(logBuffer)
		one, oneLine := newKey(t, "one", ScopeAll, time.Time{})
		two, twoLine := newKey(t, "two", ScopeAll, time.Time{})
		writeKeys(t, path, oneLine, inPlace)
		keys, err := OpenAPIKeys(APIKeysConfig{Path: path, Now: c.now, Logger: logs.logger()})
		if err != nil {
			t.Fatal(err)
		}
		may := func(token string, want bool) {
			t.Helper()
			if _, err := keys.Caller(t.Context(), token); (err == nil) != want {
				t.Errorf("in place %v: %v, want %v", inPlace, err, want)
			}
		}
		caller, err := keys.Caller(t.Context(), one)
		if err != nil {
			t.Fatal(err)
		}
		may(two, false)
		writeKeys(t, path, oneLine+twoLine, inPlace)
		may(two, false) // not looked at again so soon
		c.move(2 * time.Second)
		may(two, true)
		if err := keys.Still(caller); err != nil {
			t.Errorf("still: %v", err)
		}
		writeKeys(t, path, oneLine+twoLine[:len(twoLine)/2], inPlace)
		c.move(2 * time.Second)
		may(one, true)
		may(two, true)
		if err := keys.Check(t.Context()); err == nil || strings.Contains(err.Error(), "sha256:") {
			t.Errorf("check of half a file: %v", err)
		}
		c.move(2 * time.Second)
		may(one, true)
		if n := strings.Count(logs.String(), `"level":"ERROR"`); n != 1 {
			t.Errorf("half a file is logged %d times", n)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		c.move(2 * time.Second)
		may(one, true)
		if keys.Check(t.Context()) == nil {
			t.Error("no file, and ready")
		}
		writeKeys(t, path, strings.Replace(oneLine, `"read",`, "", 1)+"\n", inPlace)
		c.move(2 * time.Second)
		may(two, false)
		if err := keys.Check(t.Context()); err != nil {
			t.Errorf("the file is whole again: %v", err)
		}
		if err := keys.Still(caller); !errors.Is(err, ErrUnauthorized) {
			t.Errorf("a caller with more scopes than its key has left: %v", err)
		}
		writeKeys(t, path, twoLine, inPlace)
		c.move(2 * time.Second)
		may(one, false)
		if err := keys.Still(caller); !errors.Is(err, ErrUnauthorized) {
			t.Errorf("a caller whose key was revoked: %v", err)
		}
	}
}

func TestKeysFileIsChecked(t *testing.T) {
	_, line := newKey(t, "one", ScopeRead, time.Time{})
	for name, text := range map[string]string{
		"no JSON":        "one:secret\n",
		"twice":          line + line,
		"two on a line":  strings.TrimSpace(line) + line,
		"unknown field":  strings.Replace(line, `"tenant"`, `"tenants":[],"tenant"`, 1),
		"the key itself": strings.Replace(line, "sha256:", "ask_one_", 1),
		"a short hash": strings.Replace(line, `","tenant"`, "\",\"tenant\"", 1)[:60] +
			`","tenant":"acme","scopes":["read"]}`,
		"bad id":           strings.Replace(line, `"id":"one"`, `"id":"One"`, 1),
		"bad tenant":       strings.Replace(line, `"acme"`, `"a.>"`, 1),
		"no tenant":        strings.Replace(line, `"acme"`, `""`, 1),
		"unknown scope":    strings.Replace(line, `"read"`, `"admin"`, 1),
		"no scopes":        strings.Replace(line, `["read"]`, `[]`, 1),
		"a date that ends": strings.Replace(line, `"id"`, `"expires":"tomorrow","id"`, 1),
	} {
		if text == line {
			t.Fatalf("%s: nothing was changed", name)
		}
		path := filepath.Join(t.TempDir(), "keys")
		writeKeys(t, path, text, true)
		if _, err := OpenAPIKeys(APIKeysConfig{Path: path}); err == nil || !strings.Contains(err.Error(), "line ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := OpenAPIKeys(APIKeysConfig{Path: filepath.Join(t.TempDir(), "none")}); err == nil {
		t.Error("a file that is not there")
	}
	for _, bad := range []struct {
		id, tenant string
		scopes     Scope
	}{{"UP", "acme", ScopeRead}, {"a_b", "acme", ScopeRead}, {"a", "a.b", ScopeRead}, {"a", "acme", 0}} {
		if text, _, err := NewAPIKey(bad.id, bad.tenant, bad.scopes, time.Time{}); err == nil {
			t.Errorf("%+v: %s", bad, text)
		}
	}
}

// TestTicketIsGoodOnce has many goroutines redeem one ticket.
func TestTicketIsGoodOnce(t *testing.T) {
	c := newClock()
	tickets, err := NewTickets(TicketsConfig{Store: NewMemoryTickets(c.now), Now: c.now,
		Still: func(Caller) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	caller := Caller{Tenant: "acme", Subject: "u-1", Scopes: ScopeAll, Credential: "key:one",
		Expires: c.now().Add(time.Hour).Truncate(time.Millisecond)}
	for range 50 {
		ticket, until, err := tickets.Issue(t.Context(), caller, "run")
		if err != nil || until.Sub(c.now()).Round(time.Second) != time.Minute {
			t.Fatal(until, err)
		}
		var mu sync.Mutex
		var got []Caller
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				c, err := tickets.Redeem(t.Context(), ticket, "run")
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					got = append(got, c)
				} else if !errors.Is(err, ErrUnauthorized) || strings.Contains(err.Error(), ticket) {
					t.Errorf("%v", err)
				}
			})
		}
		wg.Wait()
		if len(got) != 1 {
			t.Fatalf("%d redeemed one ticket", len(got))
		}
		want := caller
		want.Scopes, want.Run = ScopeRead, "run"
		if !got[0].Expires.Equal(want.Expires) {
			t.Errorf("%v, want %v", got[0].Expires, want.Expires)
		}
		if got[0].Expires = want.Expires; got[0] != want {
			t.Errorf("%+v, want %+v", got[0], want)
		}
	}
}

func TestTicketsThatAreRefused(t *testing.T) {
	c := newClock()
	store := NewMemoryTickets(c.now)
	revoked := false
	tickets, err := NewTickets(TicketsConfig{Store: store, Now: c.now, Still: func(Caller) error {
		if revoked {
			return refuse("revoked")
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	reader := Caller{Tenant: "acme", Scopes: ScopeRead}
	issue := func(c Caller) string {
		t.Helper()
		ticket, _, err := tickets.Issue(t.Context(), c, "run")
		if err != nil {
			t.Fatal(err)
		}
		return ticket
	}
	refused := func(what, ticket string) {
		t.Helper()
		got, err := tickets.Redeem(t.Context(), ticket, "run")
		if !errors.Is(err, ErrUnauthorized) || got != (Caller{}) {
			t.Errorf("%s: %+v %v", what, got, err)
		}
	}
	good := issue(reader)
	for _, ticket := range []string{"", "tkt_", good[:len(good)-1], good + "A", strings.ToLower(good),
		"tkt_" + strings.Repeat("A", 52),
		"tkt_" + strings.Repeat("*", 52), "tkt_" + strings.Repeat("\x00", 52), strings.Repeat("A", 1<<16), ticketID(good)} {
		refused(fmt.Sprintf("%.20q", ticket), ticket)
	}
	if _, err := tickets.Redeem(t.Context(), good, "run"); err != nil {
		t.Errorf("wrong ones took the good one away: %v", err)
	}
	late := issue(reader)
	c.move(time.Minute)
	refused("late", late)
	expiring := issue(Caller{Tenant: "acme", Scopes: ScopeRead, Expires: c.now().Add(5 * time.Second)})
	c.move(5 * time.Second)
	refused("behind the credential's end", expiring)
	derived := issue(reader)
	revoked = true
	refused("revoked", derived)
	revoked = false
	refused("revoked, used up by the refusal", derived)
	for name, tt := range map[string]struct {
		caller Caller
		want   error
	}{
		"no scope":   {Caller{Tenant: "acme", Scopes: ScopeWrite | ScopeCommand}, ErrForbidden},
		"other run":  {Caller{Tenant: "acme", Scopes: ScopeRead, Run: "another"}, ErrForbidden},
		"has ended":  {Caller{Tenant: "acme", Scopes: ScopeRead, Expires: c.now()}, ErrExpired},
		"no reading": {Caller{Tenant: "acme"}, ErrForbidden},
	} {
		if ticket, _, err := tickets.Issue(t.Context(), tt.caller, "run"); !errors.Is(err, tt.want) || ticket != "" {
			t.Errorf("%s: %q %v", name, ticket, err)
		}
	}
	// A store that is full of live tickets refuses; one that is full of dead ones makes place.
	for n := range maxMemoryTickets {
		store.tickets[fmt.Sprint(n)] = memoryTicket{until: c.now().Add(time.Minute)}
	}
	if _, _, err := tickets.Issue(t.Context(), reader, "run"); !errors.Is(err, ErrUnavailable) {
		t.Errorf("full: %v", err)
	}
	c.move(time.Minute)
	issue(reader)
	if len(store.tickets) != 1 {
		t.Errorf("%d tickets left", len(store.tickets))
	}
	for _, cfg := range []TicketsConfig{{}, {Store: store},
		{Store: store, Still: func(Caller) error { return nil }, TTL: time.Hour},
		{Store: store, Still: func(Caller) error { return nil }, TTL: time.Millisecond}} {
		if _, err := NewTickets(cfg); err == nil {
			t.Errorf("%+v", cfg)
		}
	}
}

func TestStaticTokenAndOpen(t *testing.T) {
	all := Caller{Tenant: "acme", Scopes: ScopeAll}
	s, err := NewStaticToken("correct-horse.battery.staple", all)
	if err != nil {
		t.Fatal(err)
	}
	for header, want := range map[string]bool{
		"Bearer correct-horse.battery.staple": true, "bearer correct-horse.battery.staple": true,
		"Bearer correct-horse.battery.stapl": false, "Bearer x": false, "Basic correct-horse.battery.staple": false,
	} {
		if c, err := (Bearer{s}).Authenticate(request(header)); (err == nil) != want || want && c.Tenant != "acme" {
			t.Errorf("%s: %+v %v", header, c, err)
		}
	}
	for _, bad := range []string{"", "with space", "with\nbreak", "ü"} {
		if _, err := NewStaticToken(bad, all); err == nil {
			t.Errorf("%q is a token", bad)
		}
	}
	o, err := NewOpen(all, []string{"https://app.example"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		host, method, origin, site string
		want                       bool
	}{
		{"localhost:8080", "GET", "", "", true},
		{"127.0.0.1:8080", "POST", "", "", true},
		{"[::1]:8080", "POST", "http://[::1]:8080", "", true},
		{"localhost", "POST", "https://app.example", "", true},
		{"rebound.example:8080", "GET", "", "", false},
		{"rebound.example:8080", "POST", "http://rebound.example:8080", "same-origin", false},
		{"10.0.0.7:8080", "GET", "", "", false},
		{"127.0.0.1:8080", "POST", "https://evil.example", "", false},
		{"127.0.0.1:8080", "POST", "null", "", false},
		{"127.0.0.1:8080", "POST", "", "cross-site", false},
		{"localhost.evil.example:8080", "GET", "", "", false},
		{"", "GET", "", "", false},
	} {
		r := request()
		r.Host, r.Method = tt.host, tt.method
		if tt.origin != "" {
			r.Header.Set("Origin", tt.origin)
		}
		if tt.site != "" {
			r.Header.Set("Sec-Fetch-Site", tt.site)
		}
		if _, err := o.Authenticate(r); (err == nil) != tt.want || err != nil && !errors.Is(err, ErrForbidden) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
	for _, c := range []Caller{{}, {Tenant: "acme", Credential: "key:x"}, {Tenant: "zeta", Credential: "token"},
		{Tenant: "zeta", Credential: "open"}} {
		if s.Still(c) == nil || o.Still(c) == nil || (Bearer{s}).Still(c) == nil {
			t.Errorf("still: %+v", c)
		}
	}
	if _, err := NewOpen(all, []string{"not an origin"}); err == nil {
		t.Error("an origin that is none")
	}
}

// TestKindsOfTickets: tickets of two kinds lie in one store and are not taken for each other; each has its own life and
// scopes, of which it has those that its caller has.
func TestKindsOfTickets(t *testing.T) {
	c := newClock()
	plain, err := NewTickets(TicketsConfig{Store: NewMemoryTickets(c.now), Now: c.now,
		Still: func(Caller) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	kind := plain.Of(Terms{Prefix: "atk_", TTL: 5 * time.Minute, Scopes: ScopeRead | ScopeCommand})
	for scopes, want := range map[Scope]Scope{ScopeAll: ScopeRead | ScopeCommand, ScopeRead | ScopeWrite: ScopeRead,
		ScopeCommand: ScopeCommand} {
		ticket, until, err := kind.Issue(t.Context(), Caller{Tenant: "acme", Scopes: scopes}, "run")
		if err != nil || !strings.HasPrefix(ticket, "atk_") || until.Sub(c.now()).Round(time.Second) != 5*time.Minute {
			t.Fatal(ticket, until, err)
		}
		if _, err := plain.Redeem(t.Context(), ticket, "run"); !errors.Is(err, ErrUnauthorized) {
			t.Errorf("the other kind takes it: %v", err)
		}
		if _, err := plain.Redeem(t.Context(), "tkt_"+strings.TrimPrefix(ticket, "atk_"), "run"); !errors.Is(err,
			ErrUnauthorized) {
			t.Errorf("under another prefix: %v", err)
		}
		c.move(4 * time.Minute)
		if got, err := kind.RedeemAny(t.Context(), ticket); err != nil || got.Scopes != want || got.Run != "run" {
			t.Errorf("%+v %v, want %v", got, err, want)
		}
	}
	if _, _, err := kind.Issue(t.Context(), Caller{Tenant: "acme", Scopes: ScopeWrite}, "run"); !errors.Is(err,
		ErrForbidden) {
		t.Errorf("none of the scopes: %v", err)
	}
	late, _, err := kind.Issue(t.Context(), Caller{Tenant: "acme", Scopes: ScopeRead}, "run")
	if err != nil {
		t.Fatal(err)
	}
	c.move(5 * time.Minute)
	if _, err := kind.Redeem(t.Context(), late, "run"); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("late: %v", err)
	}
}
