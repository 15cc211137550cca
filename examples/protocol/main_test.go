package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"agentstream/edge/dialect"
	"agentstream/edge/dialect/dialecttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSuite holds the protocol to what every protocol must do.
func TestSuite(t *testing.T) {
	dialecttest.Suite{
		Dialect: words{},
		Streams: wordsProtocol().AllStreams(),
		Inputs:  map[string]dialect.Input{"words": {Stream: "words"}},
		Of:      func(in *dialect.Input, run string) { in.Path["run"] = run },
		Behind:  func(in *dialect.Input, token string) { in.Header.Set("Last-Event-ID", token) },
	}.Run(t)
}

// TestServe starts the program and reads its run, whole and after each frame.
func TestServe(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- serve(ctx, listener, io.Discard) }()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()

	whole := words200(t, client, listener.Addr().String(), "")
	var text strings.Builder
	for _, frame := range whole[:len(whole)-1] {
		var word string
		if err := json.Unmarshal([]byte(frame.data), &word); err != nil {
			t.Fatal(err)
		}
		text.WriteString(word)
	}
	if last := whole[len(whole)-1]; text.String() != "Every protocol is a view of one log." || last.data != `"done"` {
		t.Errorf("%q, then %+v", text.String(), last)
	}
	for i, frame := range whole[:len(whole)-1] {
		rest := words200(t, client, listener.Addr().String(), frame.id)
		if len(rest) != len(whole)-i-1 || rest[0] != whole[i+1] {
			t.Errorf("after %s: %+v", frame.id, rest)
		}
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

type frame struct{ id, data string }

// words200 reads a stream to its end.
func words200(t *testing.T, client *http.Client, host, after string) (frames []frame) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+host+"/words/hello", nil)
	if err != nil {
		t.Fatal(err)
	}
	if after != "" {
		req.Header.Set("Last-Event-ID", after)
	}
	resp, err := client.Do(req)
	for err == nil && resp.StatusCode == http.StatusNotFound { // the run has not begun
		resp.Body.Close()
		resp, err = client.Do(req)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	var next frame
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "id":
			next.id = value
		case "data":
			next.data = value
		case "":
			if next.data != "" {
				frames = append(frames, next)
			}
			next = frame{}
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return frames
}
