package agentstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/schema"
)

func TestURLsKeepIDsInTheirPlace(t *testing.T) {
	for _, c := range []struct{ server, want string }{
		{"http://h:1", "http://h:1/v1/agent/runs/r%2F..%2Fx/stream"},
		{"https://h/base/", "https://h/base/v1/agent/runs/r%2F..%2Fx/stream"},
	} {
		cl, err := New(Config{BaseURL: c.server})
		if err != nil {
			t.Fatal(err)
		}
		if got := cl.Run("r/../x").url("stream"); got != c.want {
			t.Errorf("%s: %s, want %s", c.server, got, c.want)
		}
	}
}

func TestNewRefusesBadConfigs(t *testing.T) {
	for _, base := range []string{"", "localhost:8080", "ftp://x", "http://", "http://u:sesame@x", "http://x?a=b",
		"http://x#f", "http://u:sesame@[x"} {
		if _, err := New(Config{BaseURL: base}); !errors.Is(err, ErrBaseURL) || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%q: %v", base, err)
		}
	}
	if _, err := New(Config{BaseURL: "http://x", Token: "ses\name"}); !errors.Is(err, ErrToken) ||
		strings.Contains(err.Error(), "ses") {
		t.Errorf("token: %v", err)
	}
	if _, err := New(Config{BaseURL: "http://x", GiveUp: -1}); err == nil {
		t.Error("a negative time is taken")
	}
}

func TestErrorForms(t *testing.T) {
	for _, c := range []struct {
		name, body, want string
		status           int
	}{
		{"ours", `{"error":{"code":"NOT-FOUND","message":"there is nothing here","line":3}}`,
			"NOT-FOUND: there is nothing here (HTTP 404)", 404},
		{"a proxy's page", "<html><body>Bad Gateway</body></html>", "bad gateway (HTTP 502)", 502},
		{"text", "upstream said no\nmore", "upstream said no (HTTP 502)", 502},
		{"empty", "", "service unavailable (HTTP 503)", 503},
		{"other JSON", `{"detail":1}`, `{"detail":1} (HTTP 400)`, 400},
		{"hostile", `{"error":{"code":"X\u001b[2J","message":"a\nb\u202e"}}`, `X\x1b[2J: a\nb\u202e (HTTP 400)`, 400},
		{"good text", `{"error":{"code":"X","message":"naïve 日本 'q' \"d\""}}`, `X: naïve 日本 'q' "d" (HTTP 400)`, 400},
		{"long", strings.Repeat("x", 5000), strings.Repeat("x", 200) + "… (HTTP 400)", 400},
	} {
		if got := readError(answer(c.status, c.body, nil)).Error(); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	e := readError(answer(410, `{"error":{"code":"KAI-STREAM-CONN-0002","message":"m","field":"/a","first_seq":7,"last_seq":9,"stored":4,"request_id":"req_1"}}`,
		http.Header{"Retry-After": {"3"}, "X-Request-Id": {"req_2"}}))
	want := Error{Status: 410, Code: "KAI-STREAM-CONN-0002", Message: "m", Field: "/a", FirstSeq: 7, LastSeq: 9,
		Stored: 4, RequestID: "req_1", RetryAfter: 3 * time.Second}
	if *e != want {
		t.Errorf("%+v, want %+v", *e, want)
	}
}

// Each refusal is what it is and nothing else.
func TestErrorSentinels(t *testing.T) {
	all := []error{ErrNotFound, ErrExpired, ErrCursorAhead, ErrEnded, ErrExists, ErrConflict, ErrUnauthorized,
		ErrForbidden, ErrUnavailable}
	for _, c := range []struct {
		err  error
		want []error
	}{
		{&Error{Status: 404}, []error{ErrNotFound}}, {&Error{Status: 410}, []error{ErrExpired}},
		{&Error{Status: 409, Code: codeCursorAhead}, []error{ErrCursorAhead, ErrConflict}},
		{&Error{Status: 409, Code: codeRunEnded}, []error{ErrEnded, ErrConflict}},
		{&Error{Status: 409, Code: codeRunExists}, []error{ErrExists, ErrConflict}},
		{&Error{Status: 409}, []error{ErrConflict}}, {&Error{Status: 401}, []error{ErrUnauthorized}},
		{&Error{Status: 403}, []error{ErrForbidden}}, {&Error{Status: 400}, nil}, {&Error{Status: 500}, nil},
		{&Error{Status: 408}, []error{ErrUnavailable}}, {&Error{Status: 429}, []error{ErrUnavailable}},
		{&Error{Status: 502}, []error{ErrUnavailable}}, {&Error{Status: 503}, []error{ErrUnavailable}},
		{&Error{Status: 504}, []error{ErrUnavailable}}, {&connError{errors.New("reset")}, []error{ErrUnavailable}},
	} {
		var got []error
		for _, sentinel := range all {
			if errors.Is(fmt.Errorf("wrapped: %w", c.err), sentinel) {
				got = append(got, sentinel)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%v is %v, want %v", c.err, got, c.want)
		}
		if _, again := retryable(c.err); again != errors.Is(c.err, ErrUnavailable) {
			t.Errorf("%v: again %v", c.err, again)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		in   string
		want time.Duration
	}{
		{"", 0}, {"5", 5 * time.Second}, {"0", 0}, {"-1", 0}, {"x", 0},
		{"Fri, 02 Jan 2026 03:04:35 GMT", 30 * time.Second}, {"Fri, 02 Jan 2026 03:04:00 GMT", 0},
	} {
		if got := retryAfter(c.in, now); got != c.want {
			t.Errorf("%q: %v, want %v", c.in, got, c.want)
		}
	}
}

func TestAppendHonoursRetryAfterAndGivesUp(t *testing.T) {
	for _, c := range []struct {
		name, header string
		least, most  time.Duration
	}{{"seconds", "7", 7 * time.Second, 7*time.Second + backoffFirst}, {"none", "", 0, backoffFirst}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				cl := client(t, Config{}, func(*http.Request) (*http.Response, error) {
					if calls++; calls > 1 {
						return answer(200, `{"first_seq":1,"last_seq":1}`, nil), nil
					}
					return answer(429, "slow down", http.Header{"Retry-After": {c.header}}), nil
				})
				start := time.Now()
				if _, err := cl.Run("r1").AppendLines(t.Context(), "k", []byte("{}\n")); err != nil {
					t.Fatal(err)
				}
				if d := time.Since(start); d < c.least || d > c.most {
					t.Errorf("waited %v, want %v to %v", d, c.least, c.most)
				}
			})
		})
	}
	t.Run("gives up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			cl := client(t, Config{GiveUp: time.Minute}, func(*http.Request) (*http.Response, error) {
				return nil, errors.New("connection refused")
			})
			start := time.Now()
			_, err := cl.Run("r1").AppendLines(t.Context(), "k", []byte("{}\n"))
			if err == nil || !strings.Contains(err.Error(), "given up after") ||
				!strings.Contains(err.Error(), "connection refused") {
				t.Errorf("error %v", err)
			}
			if d := time.Since(start); d < 40*time.Second || d > time.Minute {
				t.Errorf("gave up after %v", d)
			}
		})
	})
	t.Run("stops when asked", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cl := client(t, Config{}, func(*http.Request) (*http.Response, error) { return answer(503, "", nil), nil })
			if _, err := cl.Run("r1").AppendLines(ctx, "k", []byte("{}\n")); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v", err)
			}
		})
	})
}

// A repeat carries the key and the bytes of the first attempt, also when its answer was cut.
func TestAppendRepeatsUnderOneKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []string
		cl := client(t, Config{}, func(r *http.Request) (*http.Response, error) {
			body, _ := io.ReadAll(r.Body)
			sent = append(sent, r.Header.Get("Idempotency-Key")+" "+string(body))
			switch len(sent) {
			case 1:
				return nil, errors.New("connection reset")
			case 2:
				resp := answer(200, "", nil)
				resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"first_seq"`), failing{}))
				return resp, nil
			}
			return answer(200, `{"first_seq":4,"last_seq":5}`, http.Header{"Idempotency-Replayed": {"true"}}), nil
		})
		events := []schema.Event{{Type: "text.delta", Payload: []byte(`{"text":"a"}`)},
			{Type: "custom.x", ChildID: "c1", TurnID: "t\"1", Path: []string{"r1", "c1"}, Extra: []byte(`"x":1.0`)}}
		r, err := cl.Run("r1").Append(t.Context(), "", events...)
		if err != nil || r != (Receipt{First: 4, Last: 5, Replayed: true}) {
			t.Fatalf("%+v, %v", r, err)
		}
		key, body, _ := strings.Cut(sent[0], " ")
		const want = `{"type":"text.delta","payload":{"text":"a"}}` + "\n" +
			`{"type":"custom.x","child_id":"c1","turn_id":"t\"1","path":["r1","c1"],"x":1.0,"payload":{}}` + "\n"
		if len(key) < 20 || body != want || sent[1] != sent[0] || sent[2] != sent[0] {
			t.Errorf("sent %q", sent)
		}
		if _, err := cl.Run("r/1").Append(t.Context(), ""); !errors.Is(err, schema.ErrBadID) {
			t.Errorf("bad run: %v", err)
		}
	})
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestAnswersThatAreNoAnswers(t *testing.T) {
	for _, body := range []string{"", "[]", "{}", `{"first_seq":2,"last_seq":1}`, `{"first_seq":0,"last_seq":1}`} {
		cl := client(t, Config{}, func(*http.Request) (*http.Response, error) { return answer(200, body, nil), nil })
		if _, err := cl.Run("r1").AppendLines(t.Context(), "k", nil); err == nil {
			t.Errorf("append: %q is taken", body)
		}
		if _, err := cl.CreateRun(t.Context(), NewRun{}); err == nil {
			t.Errorf("create: %q is taken", body)
		}
	}
	cl := client(t, Config{}, func(*http.Request) (*http.Response, error) {
		return answer(201, `{"first_seq":1,"last_seq":1,"run_id":"../x"}`, nil), nil
	})
	if _, err := cl.CreateRun(t.Context(), NewRun{}); !errors.Is(err, schema.ErrBadID) {
		t.Errorf("a minted id that is none: %v", err)
	}
}

// Many requests are refused with one token: one new token is asked for.
func TestCallsShareANewToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issued := 0
		cfg := Config{TokenSource: func(context.Context) (string, error) {
			time.Sleep(time.Second)
			issued++
			return fmt.Sprintf("t%d", issued), nil
		}}
		cl := client(t, cfg, func(r *http.Request) (*http.Response, error) {
			if r.Header.Get("Authorization") == "Bearer t1" {
				return answer(401, "", nil), nil
			}
			return answer(200, `{"first_seq":1,"last_seq":1}`, nil), nil
		})
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if _, err := cl.Run("r1").AppendLines(t.Context(), "", nil); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if issued != 2 {
			t.Errorf("%d tokens were asked for", issued)
		}
	})
	cl := client(t, Config{TokenSource: func(context.Context) (string, error) { return "t", nil }},
		func(*http.Request) (*http.Response, error) {
			return answer(401, "", nil), nil
		})
	if _, err := cl.Run("r1").AppendLines(t.Context(), "", nil); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("error %v", err)
	}
}

func TestCommandsNameTheirRoutesAndPayloads(t *testing.T) {
	var got []string
	keys := map[string]bool{}
	cl := client(t, Config{}, func(r *http.Request) (*http.Response, error) {
		body, _ := io.ReadAll(r.Body)
		got = append(got, r.Method+" "+r.URL.Path+" "+string(body))
		keys[r.Header.Get("Idempotency-Key")] = true
		return answer(200, `{"first_seq":9,"last_seq":9}`, nil), nil
	})
	ctx := t.Context()
	var errs []error
	do := func(_ Receipt, err error) { errs = append(errs, err) }
	do(cl.Run("r1").Approve(ctx, ""))
	do(cl.Run("r1").Approve(ctx, "p1"))
	do(cl.Run("r1").Reject(ctx, "p1", "too dear"))
	do(cl.Run("r1").Pause(ctx, ""))
	do(cl.Run("r1").Resume(ctx))
	do(cl.Run("r1").Redirect(ctx, "look <here>"))
	do(cl.Run("r1").Cancel(ctx, "enough"))
	do(cl.Run("r1").Answer(ctx, "q1", []int{1}))
	do(cl.Run("r1").Message(ctx, "hello"))
	do(cl.Run("r1").Command(ctx, Command{Key: "k1", Name: CommandCancel}))
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`POST /v1/agent/runs/r1/approve_plan {}`,
		`POST /v1/agent/runs/r1/approve_plan {"plan_id":"p1"}`,
		`POST /v1/agent/runs/r1/reject_plan {"plan_id":"p1","reason":"too dear"}`,
		`POST /v1/agent/runs/r1/pause {}`,
		`POST /v1/agent/runs/r1/resume {}`,
		`POST /v1/agent/runs/r1/redirect {"instruction":"look <here>"}`,
		`POST /v1/agent/runs/r1/cancel {"reason":"enough"}`,
		`POST /v1/agent/runs/r1/answer {"answer":[1],"request_id":"q1"}`,
		`POST /v1/agent/runs/r1/messages {"content":"hello"}`,
		`POST /v1/agent/runs/r1/cancel {}`,
	}
	same(t, got, want)
	if len(keys) != len(want) || !keys["k1"] || keys[""] {
		t.Errorf("keys %v", keys)
	}
	if _, err := cl.Run("r1").Command(ctx, Command{Name: "events"}); err == nil {
		t.Error("any path is a command")
	}
}

// Each request has the traceparent of what its caller does, if there is one.
func TestTraceOfRequests(t *testing.T) {
	type doing struct{}
	cl, err := New(Config{BaseURL: "http://h", Trace: func(ctx context.Context) string {
		parent, _ := ctx.Value(doing{}).(string)
		return parent
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"} {
		req, _, err := cl.build(context.WithValue(t.Context(), doing{}, want), &request{method: "POST", target: "http://h/x"})
		if err != nil || req.Header.Get("Traceparent") != want || (want == "") != (req.Header["Traceparent"] == nil) {
			t.Errorf("%q: %v, %v", want, req.Header, err)
		}
	}
}
