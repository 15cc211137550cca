package agentstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// follow reads a stream in a synctest bubble against answers made by hand; each connection is
// recorded with its cursor and its time.
func follow(t *testing.T, ctx context.Context, cfg Config,
	serve func(r *http.Request, n int) (*http.Response, error)) (cursors []string, times []time.Duration, s *Stream, err error) {
	start := time.Now()
	var mu sync.Mutex
	c := client(t, cfg, func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		cursors, times = append(cursors, r.Header.Get("Last-Event-ID")), append(times, time.Since(start))
		n := len(times) - 1
		mu.Unlock()
		return serve(r, n)
	})
	s = c.Run("r1").Watch(ctx, Options{})
	defer s.Close()
	for _, err = range s.All(t.Context()) {
		if err != nil {
			break
		}
	}
	return cursors, times, s, err
}

// A half-open connection: no FIN, no keep-alive, nothing. Keep-alives alone keep it.
func TestWatchLeavesADeadConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, times, _, err := follow(t, t.Context(), Config{}, func(r *http.Request, n int) (*http.Response, error) {
			if n == 1 {
				return answer(204, "", nil), nil
			}
			resp, w := pipeStream(r.Context())
			go func() {
				for range 10 {
					time.Sleep(15 * time.Second)
					io.WriteString(w, ": keepalive\n\n")
				}
			}()
			return resp, nil
		})
		if err != nil || len(times) != 2 {
			t.Fatalf("%v, %d connections", err, len(times))
		}
		if d := times[1] - 150*time.Second; d < defaultIdleTimeout || d > defaultIdleTimeout+time.Second {
			t.Errorf("left %v after the last keep-alive, want %v", d, defaultIdleTimeout)
		}
	})
}

// A caller that takes its time between two calls is no dead connection.
func TestWatchBearsASlowCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connections := 0
		c := client(t, Config{}, func(r *http.Request) (*http.Response, error) {
			connections++
			resp, w := pipeStream(r.Context())
			go func() {
				io.WriteString(w, sse([]string{line(0, 1)}, "\n"))
				io.WriteString(w, sse([]string{line(0, 2)}, "\n"))
			}()
			return resp, nil
		})
		s := c.Run("r1").Watch(t.Context(), Options{})
		defer s.Close()
		for want := range 2 {
			if e, err := s.Next(t.Context()); err != nil || int(e.Seq) != want+1 {
				t.Fatalf("seq %d, %v", e.Seq, err)
			}
			time.Sleep(time.Hour)
		}
		if connections != 1 {
			t.Errorf("%d connections", connections)
		}
	})
}

func TestWatchHonoursRetryField(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, times, _, err := follow(t, t.Context(), Config{}, func(_ *http.Request, n int) (*http.Response, error) {
			if n == 3 {
				return answer(204, "", nil), nil
			}
			return streamed("retry: 8000\n\n"), nil
		})
		if err != nil || len(times) != 4 {
			t.Fatalf("%v, connected at %v", err, times)
		}
		if d := times[1]; d != 8*time.Second {
			t.Errorf("came back after %v, asked for 8 s", d)
		}
		for i := range 2 {
			if d := times[i+2] - times[i+1]; d < 8*time.Second || d > backoffMost {
				t.Errorf("then after %v", d)
			}
		}
	})
}

func TestWatchHonoursRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, times, _, err := follow(t, t.Context(), Config{}, func(_ *http.Request, n int) (*http.Response, error) {
			if n == 1 {
				return answer(204, "", nil), nil
			}
			return answer(503, `{"error":{"code":"BUSY","message":"full"}}`, http.Header{"Retry-After": {"30"}}), nil
		})
		if err != nil || len(times) != 2 || times[1] < 30*time.Second || times[1] > 31*time.Second {
			t.Errorf("%v, connected at %v", err, times)
		}
	})
}

// A server that accepts and ends at once, for ever, is not hammered, and never given up.
func TestWatchBacksOffFromAServerThatEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		_, times, _, err := follow(t, ctx, Config{GiveUp: time.Minute}, func(*http.Request, int) (*http.Response, error) {
			return streamed(": hello\n\n"), nil
		})
		if !errors.Is(err, context.DeadlineExceeded) || len(times) > 200 || len(times) < 60 {
			t.Errorf("%v, %d connections in ten minutes", err, len(times))
		}
	})
}

// Pauses are spread from nothing to twice as much each time: that is what full jitter is.
func TestBackoffHasFullJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var low, high int
		for range 1000 {
			b := backoff{}
			for range 5 {
				b.pause(0, nil)
			}
			d, err := b.pause(0, nil)
			if err != nil || d > 32*backoffFirst {
				t.Fatal(d, err)
			}
			if d < 8*backoffFirst {
				low++
			}
			if d > 24*backoffFirst {
				high++
			}
		}
		if low < 150 || high < 150 {
			t.Errorf("of 1000 pauses %d in the lowest quarter, %d in the highest", low, high)
		}
	})
}

func TestWatchGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, times, _, err := follow(t, t.Context(), Config{GiveUp: time.Minute},
			func(*http.Request, int) (*http.Response, error) {
				return nil, errors.New("connection refused")
			})
		if err == nil || !errors.Is(err, ErrUnavailable) || err.Error() == "" {
			t.Errorf("error %v", err)
		}
		if last := times[len(times)-1]; last < 40*time.Second || last > time.Minute {
			t.Errorf("last try at %v", last)
		}
	})
}

// The run said that it is over and then the whole server is gone: what was said stands.
func TestWatchEndsWhenNobodyCanConfirm(t *testing.T) {
	for _, c := range []struct {
		name string
		then func(ctx context.Context) (*http.Response, error)
		most time.Duration
		told bool
	}{
		{"refused", func(context.Context) (*http.Response, error) { return nil, errors.New("connection refused") },
			confirmTimeout, true},
		{"busy", func(context.Context) (*http.Response, error) { return answer(503, "", nil), nil }, confirmTimeout, true},
		{"silent", func(ctx context.Context) (*http.Response, error) { r, _ := pipeStream(ctx); return r, nil },
			settleTimeout, false},
		{"empty", func(context.Context) (*http.Response, error) { return streamed(""), nil }, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start, told := time.Now(), false
				cfg := Config{Hooks: Hooks{Unconfirmed: func(error) { told = true }}}
				cursors, _, s, err := follow(t, t.Context(), cfg, func(r *http.Request, n int) (*http.Response, error) {
					if n == 0 {
						return streamed(sse([]string{final(0, 1, done)}, "\n")), nil
					}
					return c.then(r.Context())
				})
				if d := time.Since(start); err != nil || s.Cursor() != 1 || d > c.most || told != c.told {
					t.Errorf("%v at seq %d after %v, told %v", err, s.Cursor(), d, told)
				}
				if len(cursors) < 2 || cursors[1] != "1" {
					t.Errorf("cursors %q", cursors)
				}
			})
		})
	}
}

const expired = "event: stream.error\n" +
	`data: {"error":{"code":"CREDENTIAL-EXPIRED","message":"come back with a new one and the cursor"}}` + "\n\n"

// A stream outlives its credentials: three of them, ended by a last frame, by 401, and by a 401 for
// a token that was never good.
func TestWatchGetsNewTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issued := 0
		var used []string
		cfg := Config{TokenSource: func(context.Context) (string, error) { issued++; return fmt.Sprintf("t%d", issued), nil }}
		cursors, times, _, err := follow(t, t.Context(), cfg, func(r *http.Request, n int) (*http.Response, error) {
			used = append(used, r.Header.Get("Authorization"))
			switch n {
			case 0:
				return streamed("retry: 1000\n\n" + sse([]string{line(0, 1)}, "\n") + expired), nil
			case 1:
				return streamed(sse([]string{line(0, 2)}, "\n") + ": and then cut\n\n"), nil
			case 2:
				return answer(401, `{"error":{"code":"UNAUTHORIZED","message":"no"}}`, nil), nil
			case 3:
				return streamed(sse([]string{final(0, 3, done)}, "\n")), nil
			}
			return answer(204, "", nil), nil
		})
		if err != nil || issued != 3 {
			t.Fatalf("%v, %d tokens", err, issued)
		}
		if got := fmt.Sprint(used); got != "[Bearer t1 Bearer t2 Bearer t2 Bearer t3 Bearer t3]" {
			t.Errorf("used %s", got)
		}
		if got := fmt.Sprint(cursors); got != "[ 1 2 2 3]" {
			t.Errorf("cursors %s", got)
		}
		if times[1] != 0 || times[3] != times[2] {
			t.Errorf("connected at %v: a new token needs no pause", times)
		}
	})
}

func TestWatchEndsWithItsCredential(t *testing.T) {
	for _, c := range []struct {
		name  string
		cfg   Config
		serve func(n int) *http.Response
		want  error
		conns int
	}{
		{"a fixed token", Config{Token: "t"}, func(int) *http.Response { return streamed(expired) }, ErrUnauthorized, 1},
		{"a source of bad ones", Config{TokenSource: func(context.Context) (string, error) { return "t", nil }},
			func(int) *http.Response { return answer(401, "", nil) }, ErrUnauthorized, 2},
		{"a source that has none", Config{TokenSource: func(context.Context) (string, error) { return "", io.ErrNoProgress }},
			nil, io.ErrNoProgress, 0},
		{"a source that gives rubbish", Config{TokenSource: func(context.Context) (string, error) { return "a\r\nb", nil }}, nil, ErrToken, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, times, _, err := follow(t, t.Context(), c.cfg,
					func(_ *http.Request, n int) (*http.Response, error) { return c.serve(n), nil })
				if !errors.Is(err, c.want) || len(times) != c.conns {
					t.Errorf("%v after %d connections", err, len(times))
				}
			})
		})
	}
}

// Tokens that end as soon as they are used are asked for in steps; a source that is away is waited
// for.
func TestWatchAsksForTokensInSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		n := 0
		cfg := Config{TokenSource: func(context.Context) (string, error) { n++; return fmt.Sprint(n), nil }}
		_, times, _, err := follow(t, ctx, cfg,
			func(*http.Request, int) (*http.Response, error) { return streamed(expired), nil })
		if !errors.Is(err, context.DeadlineExceeded) || len(times) > 40 {
			t.Errorf("%v, %d connections in a minute", err, len(times))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		n := 0
		cfg := Config{TokenSource: func(context.Context) (string, error) {
			if n++; n < 4 {
				return "", fmt.Errorf("token service: %w", ErrUnavailable)
			}
			return "t", nil
		}}
		_, times, _, err := follow(t, t.Context(), cfg,
			func(*http.Request, int) (*http.Response, error) { return answer(204, "", nil), nil })
		if err != nil || len(times) != 1 || n != 4 {
			t.Errorf("%v, %d tokens, %d connections", err, n, len(times))
		}
	})
}
