package qoder

import (
	"fmt"
	"testing"

	"agentstream/edge/dialect"
)

func TestAppendError(t *testing.T) {
	p := dialect.Problem{Reason: dialect.ReasonBadRequest, Status: 400, Code: "BAD-REQUEST",
		Message: "content \"x\" \xff", Field: "/events/0/a~1b/type", RequestID: "req_1"}
	want := `{"type":"error","request_id":"req_1","error":{"type":"invalid_request_error","message":"content \"x\" \ufffd","param":"events[0].a/b.type","code":"bad_request"}}`
	if got := string(Dialect{}.AppendError(nil, p)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, want := string(Dialect{}.AppendError([]byte("x"),
		dialect.Problem{})), `x{"type":"error","request_id":null,"error":{"type":"api_error","message":"the request was refused","code":"none"}}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, c := range []struct {
		reason    dialect.Reason
		status    int
		typ, code string
	}{
		{dialect.ReasonBadCursor, 400, "invalid_request_error", "bad_cursor"},
		{dialect.ReasonUnauthorized, 401, "authentication_error", "unauthorized"},
		{dialect.ReasonForbidden, 403, "permission_error", "forbidden"},
		{dialect.ReasonNotFound, 404, "not_found_error", "not_found"},
		{dialect.ReasonMethod, 405, "invalid_request_error", "method_not_allowed"},
		{dialect.ReasonTimeout, 408, "timeout_error", "timeout"},
		{dialect.ReasonState, 409, "conflict_error", "session_archived"},
		{dialect.ReasonExists, 409, "conflict_error", "run_exists"},
		{dialect.ReasonExpired, 410, "invalid_request_error", "expired_cursor"},
		{dialect.ReasonTooLarge, 413, "invalid_request_error", "too_large"},
		{dialect.ReasonUnsupportedMedia, 415, "invalid_request_error", "unsupported_media_type"},
		{dialect.ReasonKeyReused, 422, "invalid_request_error", "key_reused"},
		{dialect.ReasonLimited, 429, "rate_limit_error", "rate_limited"},
		{dialect.ReasonClientGone, 499, "api_error", "client_gone"},
		{dialect.ReasonInternal, 500, "api_error", "internal"},
		{dialect.ReasonUnsupported, 501, "api_error", "unsupported"},
		{dialect.ReasonUnavailable, 503, "api_error", "runtime_unavailable"},
		{dialect.ReasonBusy, 503, "overloaded_error", "runtime_unavailable"},
		{dialect.ReasonAuthUnavailable, 503, "api_error", "auth_unavailable"},
	} {
		b := Dialect{}.AppendError(nil, dialect.Problem{Reason: c.reason, Status: c.status})
		if e := field(b, "error"); text(e, "type") != c.typ || text(e, "code") != c.code {
			t.Errorf("%d %s: %s", c.status, c.reason, b)
		}
	}
}

func TestParamOf(t *testing.T) {
	for pointer, want := range map[string]string{
		"/a": "a", "/a/0": "a[0]", "/0/a": "[0].a", "/a/b~0c/12/d": "a.b~c[12].d", "events[0].type": "events[0].type",
		"/": "",
	} {
		if got := paramOf(pointer); got != want {
			t.Errorf("%s: %q, want %q", pointer, got, want)
		}
	}
	if s := fmt.Sprint(refuse("a.b", "must be %d", 1)); s != "a.b must be 1" {
		t.Error(s)
	}
}
