package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"agentstream/edge/edgetest"
)

// TestContentTypes: what a body may say that it is. Each request is otherwise good.
func TestContentTypes(t *testing.T) {
	h := edgetest.NewHouse(t)
	for i, tt := range []struct {
		events, begins int      // statuses of an append and of a begin
		types          []string // nil: the header is absent
	}{
		{200, 201, nil},
		{200, 201, []string{""}},
		{200, 201, []string{"application/json"}},
		{200, 415, []string{"application/x-ndjson"}},
		{200, 201, []string{"text/plain"}},
		{200, 201, []string{"Application/JSON"}},
		{200, 415, []string{"APPLICATION/X-NDJSON"}},
		{200, 201, []string{"application/json; charset=utf-8"}},
		{200, 201, []string{"application/json;charset=UTF-8"}},
		{200, 201, []string{`application/json; charset="utf-8"`}},
		{200, 201, []string{"text/plain; charset=us-ascii"}},
		{200, 201, []string{"application/json; Charset=Utf-8; profile=x"}},
		{200, 201, []string{`application/json; profile="a;b,c"`}},
		{200, 201, []string{" application/json "}},
		{415, 415, []string{"application/json; charset=latin1"}},
		{415, 415, []string{"application/json; charset=utf-16"}},
		{415, 415, []string{"application/json; charset="}},
		{415, 415, []string{`application/json; charset=""`}},
		{415, 415, []string{"application/json; charset=utf-8; charset=latin1"}},
		{415, 415, []string{"application/json, text/plain"}},
		{415, 415, []string{"application/json", "application/json"}},
		{415, 415, []string{"application/json", "text/html"}},
		{415, 415, []string{"multipart/form-data; boundary=x"}},
		{415, 415, []string{"multipart/mixed"}},
		{415, 415, []string{"application/x-www-form-urlencoded"}},
		{415, 415, []string{"application/octet-stream"}},
		{415, 415, []string{"text/html"}},
		{415, 415, []string{"text/event-stream"}},
		{415, 415, []string{"application/*"}},
		{415, 415, []string{"*/*"}},
		{415, 415, []string{"json"}},
		{415, 415, []string{"application/json/x"}},
		{415, 415, []string{"application/jsonx"}},
		{415, 415, []string{";;"}},
		{415, 415, []string{"; charset=utf-8"}},
		{415, 415, []string{"application/json; =x"}},
		{415, 415, []string{strings.Repeat("x", 4000)}},
	} {
		run := fmt.Sprintf("run_%d", i)
		for path, want := range map[string]int{"/v1/agent/runs/" + run + "/events": tt.events, "/v1/agent/runs": tt.begins} {
			body := edgetest.GoodLine
			if path == "/v1/agent/runs" {
				body = fmt.Sprintf(`{"run_id":"begun_%d"}`, i)
			}
			r := h.Request("POST", path, body)
			r.Header["Content-Type"] = tt.types
			resp, err := h.Client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("%s as %q: %d, want %d", path, tt.types, resp.StatusCode, want)
			}
		}
		if stored := h.Last(run) == 1; stored != (tt.events == http.StatusOK) {
			t.Errorf("%q: stored %v", tt.types, stored)
		}
	}
}
