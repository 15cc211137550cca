package agentstream

import (
	"errors"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// With FailFast a server that cannot be reached ends a request at once. One that has answered before is waited for.
func TestFailFast(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	asks := map[string]func(*testing.T, *Client) error{
		"request": func(t *testing.T, c *Client) error {
			_, err := c.Run("r1").AppendLines(t.Context(), "k", []byte("{}\n"))
			return err
		},
		"export": func(t *testing.T, c *Client) error {
			for _, err := range c.Run("r1").Export(t.Context(), 0, 0) {
				return err
			}
			return nil
		},
		"watch": func(t *testing.T, c *Client) error {
			_, err := c.Run("r1").Watch(t.Context(), Options{}).Next(t.Context())
			return err
		},
	}
	for name, ask := range asks {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				cl := client(t, Config{FailFast: true, GiveUp: time.Minute}, func(*http.Request) (*http.Response, error) {
					calls++
					return nil, refused
				})
				if err := ask(t, cl); !errors.Is(err, ErrUnreachable) || calls != 1 {
					t.Errorf("%d attempts, error %v", calls, err)
				}
				calls = 0
				cl = client(t, Config{FailFast: true, GiveUp: time.Minute}, func(*http.Request) (*http.Response, error) {
					if calls++; calls == 1 {
						return answer(503, "", nil), nil
					}
					return nil, refused
				})
				begun := time.Now()
				if err := ask(t, cl); errors.Is(err, ErrUnreachable) || !errors.Is(err, ErrUnavailable) ||
					time.Since(begun) < 30*time.Second {
					t.Errorf("a server that had answered: %d attempts in %s, error %v", calls, time.Since(begun), err)
				}
			})
		})
	}
}
