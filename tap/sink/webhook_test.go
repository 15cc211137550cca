package sink

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"agentstream/tap"
)

const secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3"

// hook is a receiver of webhooks.
type hook struct {
	*httptest.Server
	answer func(id string) int

	mu    sync.Mutex
	order map[string][]string // ids that were accepted for the first time, by run
	count map[string]int
	last  *http.Request
	body  []byte
}

func newHook(t *testing.T, answer func(id string) int) *hook {
	h := &hook{answer: answer, order: map[string][]string{}, count: map[string]int{}}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		id := r.Header.Get("Webhook-Id")
		status := answer(id)
		h.mu.Lock()
		h.last, h.body = r, body
		if status/100 == 2 {
			if h.count[id]++; h.count[id] == 1 {
				run := id[:strings.LastIndexByte(id, '/')]
				h.order[run] = append(h.order[run], id)
			}
		}
		h.mu.Unlock()
		w.WriteHeader(status)
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hook) address(query string) string { return "webhook+" + h.URL + "/hook" + query }

// TestWebhookOrder: a receiver that fails a third of all requests gets each event, those of a run in order.
func TestWebhookOrder(t *testing.T) {
	h := newHook(t, func(string) int {
		if rand.N(3) == 0 {
			return http.StatusInternalServerError
		}
		return http.StatusNoContent
	})
	s := open(t, Options{Private: true}, h.address(""))
	var batch []tap.Event
	for seq := 1; seq <= 20; seq++ {
		for _, run := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
			batch = append(batch, event(run, seq))
		}
	}
	write(t, s, batch...)
	h.mu.Lock()
	defer h.mu.Unlock()
	for run, ids := range h.order {
		for i, id := range ids {
			if e := event(run[5:], i+1); id != e.Key() {
				t.Fatalf("%s: %v", run, ids)
			}
		}
		if len(ids) != 20 {
			t.Errorf("%s: %d events", run, len(ids))
		}
	}
	if len(h.order) != 10 {
		t.Errorf("%d runs", len(h.order))
	}
}

// TestWebhookForms: what is posted in each form.
func TestWebhookForms(t *testing.T) {
	for query, want := range map[string]string{
		"": `{"data":{"event_id":"evt_r_1","run_id":"r","seq":1,"tenant":"acme"},"timestamp":"2026-01-02T03:04:05Z","type":"text.delta"}`,
		"?form=full": `{"data":{"event":{"id":"evt_r_1","ts":"2026-01-02T03:04:05Z","type":"text.delta","run_id":"r","child_id":null,"seq":1,"payload":{"text":"<é> 1"}},` +
			`"event_id":"evt_r_1","run_id":"r","seq":1,"tenant":"acme"},"timestamp":"2026-01-02T03:04:05Z","type":"text.delta"}`,
		"?form=cloudevent": `{"data":{"id":"evt_r_1","ts":"2026-01-02T03:04:05Z","type":"text.delta","run_id":"r","child_id":null,"seq":1,"payload":{"text":"<é> 1"}},` +
			`"datacontenttype":"application/json","id":"acme/r/1","source":"/agentstream/acme/r","specversion":"1.0","time":"2026-01-02T03:04:05Z","type":"agentstream.text.delta"}`,
	} {
		h := newHook(t, func(string) int { return http.StatusOK })
		s := open(t, Options{Private: true}, h.address(query))
		write(t, s, event("r", 1))
		var got, wanted any
		if err := errors.Join(json.Unmarshal(h.body, &got), json.Unmarshal([]byte(want), &wanted)); err != nil {
			t.Fatal(err)
		}
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(wanted)
		if string(a) != string(b) {
			t.Errorf("%s: %s\nwant %s", query, a, b)
		}
		if strings.Contains(h.last.URL.String(), "form") {
			t.Errorf("the receiver is shown the option: %s", h.last.URL)
		}
	}
}

// TestWebhookSignature: with two secrets there are two signatures, and each is of id, time and body.
func TestWebhookSignature(t *testing.T) {
	h := newHook(t, func(string) int { return http.StatusOK })
	other := "whsec_" + strings.Repeat("QUJD", 8)
	s := open(t, Options{Private: true, Secrets: func() []string { return []string{secret, other} }}, h.address(""))
	write(t, s, event("r", 1))
	got := strings.Fields(h.last.Header.Get("Webhook-Signature"))
	at := h.last.Header.Get("Webhook-Timestamp")
	for i, key := range []string{secret, other} {
		want, err := sign([]string{key}, "acme/r/1", at, h.body)
		if err != nil || len(got) != 2 || got[i] != want {
			t.Errorf("%v, want %s (%v)", got, want, err)
		}
	}
	// As the reference of Standard Webhooks signs it.
	fixed, err := sign([]string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330",
		[]byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; err != nil || fixed != want {
		t.Errorf("%s, want %s (%v)", fixed, want, err)
	}
	for _, bad := range []string{"", "whsec_", "whsec_%%", "c2hvcnQ="} {
		if _, err := Open(t.Context(), []string{h.address("")},
			Options{Private: true, Secrets: func() []string { return []string{bad} }}); err == nil {
			t.Errorf("secret %q is taken", bad)
		}
	}
}

// TestWebhookRefuses: an event that the receiver refuses as such is given up, also when it answers 5xx to that event
// alone.
func TestWebhookRefuses(t *testing.T) {
	for name, status := range map[string]int{"unprocessable": http.StatusUnprocessableEntity,
		"fails": http.StatusInternalServerError} {
		t.Run(name, func(t *testing.T) {
			h := newHook(t, func(id string) int {
				if id == "acme/a/2" {
					return status
				}
				return http.StatusOK
			})
			s := open(t, Options{Private: true, Give: 4}, h.address(""))
			batch := []tap.Event{event("a", 1), event("a", 2), event("a", 3)}
			for i := range 200 { // others succeed meanwhile
				batch = append(batch, event("b", i+1))
			}
			refused, err := s.Write(t.Context(), batch)
			if err != nil || len(refused) != 1 || refused[0].Event != 1 {
				t.Fatalf("%+v, %v", refused, err)
			}
			if h.count["acme/a/3"] != 1 || h.count["acme/b/200"] != 1 {
				t.Errorf("%d, %d", h.count["acme/a/3"], h.count["acme/b/200"])
			}
		})
	}
}

// TestWebhookAway: a receiver that fails altogether is waited for, and what it has is not sent again.
func TestWebhookAway(t *testing.T) {
	var away sync.Map
	h := newHook(t, func(id string) int {
		if _, ok := away.Load("away"); ok && id == "acme/a/3" {
			return http.StatusServiceUnavailable
		}
		return http.StatusOK
	})
	away.Store("away", true)
	s := open(t, Options{Private: true, Give: 3}, h.address(""))
	batch := []tap.Event{event("a", 1), event("a", 2), event("a", 3), event("a", 4)}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if refused, err := s.Write(ctx, batch); err == nil || len(refused) > 0 {
		t.Fatalf("%+v, %v", refused, err)
	}
	away.Delete("away")
	write(t, s, batch[:2]...)
	write(t, s, batch[2:]...)
	for _, id := range []string{"acme/a/1", "acme/a/2", "acme/a/3", "acme/a/4"} {
		if h.count[id] != 1 {
			t.Errorf("%s: %d times", id, h.count[id])
		}
	}
}

// TestWebhookEnds: 410 ends the tap.
func TestWebhookEnds(t *testing.T) {
	h := newHook(t, func(string) int { return http.StatusGone })
	s := open(t, Options{Private: true}, h.address(""))
	_, err := s.Write(t.Context(), []tap.Event{event("a", 1)})
	if err == nil || !strings.Contains(err.Error(), "410") || !errors.As(err, new(interface{ Unwrap() error })) {
		t.Error(err)
	}
}

// TestWebhookSlow: an answer that takes too long is a failure, and holds nobody up for longer.
func TestWebhookSlow(t *testing.T) {
	over := make(chan struct{})
	h := newHook(t, func(string) int {
		<-over
		return http.StatusOK
	})
	t.Cleanup(func() { close(over) })
	s := open(t, Options{Private: true, Timeout: 50 * time.Millisecond}, h.address(""))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := s.Write(ctx, []tap.Event{event("a", 1)}); err == nil {
		t.Error("an answer that never came is taken")
	}
}

// TestWebhookPrivate: no address of this machine or of a private network is asked, whatever its name, and no redirect
// is followed.
func TestWebhookPrivate(t *testing.T) {
	inside := newHook(t, func(string) int { return http.StatusOK })
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"} {
		port := inside.URL[strings.LastIndexByte(inside.URL, ':'):]
		s := open(t, Options{Timeout: time.Second}, "webhook+https://"+host+port+"/")
		if _, err := s.Write(t.Context(), []tap.Event{event("a", 1)}); !errors.Is(err, errPrivate) {
			t.Errorf("%s: %v", host, err)
		}
	}
	outside := httptest.NewServer(http.RedirectHandler(inside.URL, http.StatusTemporaryRedirect))
	defer outside.Close()
	s := open(t, Options{Private: true}, "webhook+"+outside.URL)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := s.Write(ctx, []tap.Event{event("a", 1)}); err == nil {
		t.Error("a redirect is a success")
	}
	if len(inside.count) > 0 {
		t.Errorf("a private address was asked: %v", inside.count)
	}
	for text, want := range map[string]bool{"8.8.8.8": true, "2606:4700::1": true, "10.1.2.3": false,
		"172.16.0.1": false, "192.168.1.1": false,
		"169.254.169.254": false, "100.100.0.1": false, "fd00::1": false, "fe80::1": false, "224.0.0.1": false,
		"64:ff9b::7f00:1": false,
		"2002:7f00:1::":   false, "::": false, "::7f00:1": false, "255.255.255.255": false} {
		if isPublic(netip.MustParseAddr(text)) != want {
			t.Errorf("%s: public %t", text, !want)
		}
	}
}
