package e2e_test

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
)

// responsesRuns are stored logs whose first response has ended.
var responsesRuns = []string{"plain", "parallel-tools", "unicode", "tool", "failure", "cancel-in-text", "hostile"}

// TestResponsesSDK: the openai library, unmodified, in versions 6 and 7, takes a response up after each of its
// events, and in the middle of each, on the other of two edges.
func TestResponsesSDK(t *testing.T) {
	beside(t)
	node, _ := needNode(t)
	w := edgesFor(t, "http://127.0.0.1:1")
	var runs []string
	for _, name := range responsesRuns {
		run := "run_" + strings.ReplaceAll(name, "-", "_")
		storeScenario(t, w.edges[0].url(""), run, name)
		runs = append(runs, run)
	}
	for _, sdk := range []string{"6", "7"} {
		t.Run(sdk, func(t *testing.T) {
			script(t, node, "responses.mjs", "BASE="+w.edges[0].url(""), "OTHER="+w.edges[len(w.edges)-1].url(""),
				"TOKEN="+edgeToken,
				"RUNS="+strings.Join(runs, " "), "SDK="+sdk)
		})
	}
}

// cutBody is a body that breaks off.
type cutBody struct {
	io.ReadCloser
	left int
}

func (b *cutBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// cutOnce breaks the next body off after some bytes.
type cutOnce struct{ left int }

func (c *cutOnce) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && c.left > 0 {
		resp.Body = &cutBody{resp.Body, c.left}
		c.left = 0
	}
	return resp, err
}

// TestResponsesGo: openai-go, unmodified, takes a response up after events and in the middle of them, on the other of
// two edges. It asks for the stream in the body of a GET.
func TestResponsesGo(t *testing.T) {
	beside(t)
	w := edgesFor(t, "http://127.0.0.1:1")
	cut := &cutOnce{}
	var clients []responses.ResponseService
	for _, p := range w.edges {
		clients = append(clients, responses.NewResponseService(option.WithBaseURL(p.url("/openai/v1/")),
			option.WithAPIKey(edgeToken),
			option.WithHTTPClient(&http.Client{Transport: cut})))
	}
	// follow reads a response to its end, and returns its events and how often its body broke off.
	follow := func(id string) (list []string, cuts int) {
		for {
			in := responses.ResponseGetParams{}
			if n := len(list); n > 0 {
				in.StartingAfter = param.NewOpt(int64(n - 1))
			}
			stream := clients[cuts%2].GetStreaming(t.Context(), id, in)
			for stream.Next() {
				e := stream.Current()
				if e.SequenceNumber != int64(len(list)) {
					t.Fatalf("%s: event %d has number %d", id, len(list), e.SequenceNumber)
				}
				list = append(list, e.RawJSON())
			}
			switch err := stream.Err(); {
			case err == nil:
				return list, cuts
			case !errors.Is(err, io.ErrUnexpectedEOF):
				t.Fatalf("%s after %d events: %v", id, len(list), err)
			}
			cuts++
		}
	}
	for _, name := range []string{"plain", "tool", "unicode"} {
		run := "run_go_" + name
		storeScenario(t, w.edges[0].url(""), run, name)
		id := "resp_" + run
		whole, _ := follow(id)
		if len(whole) < 5 || !strings.Contains(whole[len(whole)-1], `"type":"response.completed"`) {
			t.Fatalf("%s: %q", id, whole)
		}
		_, text := getText(w.edges[0].url("/openai/v1/responses/" + id + "?stream=true"))
		at := 0
		for i, frame := range strings.SplitAfter(strings.TrimSuffix(text, "\n\n"), "\n\n") {
			for _, left := range []int{at + len(frame)/2, at + len(frame)} {
				if !proofs() && (i+left)%3 > 0 {
					continue
				}
				cut.left = left
				got, cuts := follow(id)
				if !slices.Equal(got, whole) || cuts != 1 {
					t.Fatalf("%s cut at %d: %d cuts, %d events of %d", id, left, cuts, len(got), len(whole))
				}
			}
			at += len(frame)
		}
		object, err := clients[1].Get(t.Context(), id, responses.ResponseGetParams{})
		if err != nil || object.Status != responses.ResponseStatusCompleted || object.OutputText() == "" {
			t.Errorf("%s: %v %v", id, object, err)
		}
	}
}
