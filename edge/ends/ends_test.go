package ends

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/fanout"
	"agentstream/producers"
	"agentstream/producers/command"
	"agentstream/schema"
)

func TestEveryReasonHasARow(t *testing.T) {
	names := map[string]bool{}
	for _, r := range dialect.Reasons() {
		o, ok := outcomes[r]
		if !ok {
			t.Errorf("%s has no row", r)
			continue
		}
		if r.String() == "" || names[r.String()] {
			t.Errorf("reason %d has no name of its own: %q", r, r)
		}
		names[r.String()] = true
		if o.Status < 200 || o.Status > 599 || o.Code == "" || o.Message == "" {
			t.Errorf("%s: %+v", r, o)
		}
		if o.Close < 1000 || o.Close > 1014 || o.Close == 1005 || o.Close == 1006 {
			t.Errorf("%s: close code %d may not be sent", r, o.Close)
		}
		if o.GRPC < 0 || o.GRPC > 16 {
			t.Errorf("%s: gRPC status %d", r, o.GRPC)
		}
		// Only the end of the run may look like one.
		clean := r == dialect.ReasonEnded
		if (o.End == EndClean) != clean || (o.GRPC == 0) != clean || (o.Close == 1000) != clean || (o.Status < 300) != clean {
			t.Errorf("%s looks like a clean end: %+v", r, o)
		}
		if (o.Status == 503 || o.Status == 429) != (o.RetryAfter > 0) && o.Status != 408 {
			t.Errorf("%s: status %d with Retry-After %d", r, o.Status, o.RetryAfter)
		}
		// What a broken server says must not be taken for the client's text.
		if o.Detail && o.Status >= 500 {
			t.Errorf("%s shows the error's text with status %d", r, o.Status)
		}
	}
	if len(outcomes) != len(dialect.Reasons()) {
		t.Errorf("%d rows for %d reasons", len(outcomes), len(dialect.Reasons()))
	}
	if OutcomeOf(dialect.ReasonNone).Status != 500 || OutcomeOf(250).Status != 500 ||
		dialect.Reason(250).String() != "internal" {
		t.Error("a reason that is none is not internal")
	}
}

// sentinels is every exported error of the packages below the edge, with its reason.
var sentinels = map[string]struct {
	err  error
	want dialect.Reason
}{
	"schema.ErrBadID":           {schema.ErrBadID, dialect.ReasonBadID},
	"schema.ErrBadCursor":       {schema.ErrBadCursor, dialect.ReasonBadCursor},
	"schema.ErrMalformed":       {schema.ErrMalformed, dialect.ReasonMalformed},
	"schema.ErrNoObject":        {schema.ErrNoObject, dialect.ReasonMalformed},
	"schema.ErrNoRun":           {schema.ErrNoRun, dialect.ReasonMalformed},
	"schema.ErrUnknownType":     {schema.ErrUnknownType, dialect.ReasonUnknownType},
	"schema.ErrTooLarge":        {schema.ErrTooLarge, dialect.ReasonTooLarge},
	"schema.ErrForeignRun":      {schema.ErrForeignRun, dialect.ReasonForeignRun},
	"schema.ErrSeqMismatch":     {schema.ErrSeqMismatch, dialect.ReasonSeqMismatch},
	"schema.ErrEnded":           {schema.ErrEnded, dialect.ReasonRunEnded},
	"schema.ErrConflict":        {schema.ErrConflict, dialect.ReasonConflict},
	"schema.ErrNoBlob":          {schema.ErrNoBlob, dialect.ReasonNotFound},
	"schema.ErrUnanswered":      {schema.ErrUnanswered, dialect.ReasonUnanswered},
	"schema.ErrUnavailable":     {schema.ErrUnavailable, dialect.ReasonUnavailable},
	"schema.ErrBadPack":         {schema.ErrBadPack, dialect.ReasonInternal},
	"schema.ErrSetup":           {schema.ErrSetup, dialect.ReasonUnavailable},
	"schema.ErrKeyGone":         {schema.ErrKeyGone, dialect.ReasonKeyGone},
	"schema.ErrFull":            {schema.ErrFull, dialect.ReasonFull},
	"producers.ErrSetup":        {producers.ErrSetup, dialect.ReasonUnavailable},
	"producers.ErrFull":         {producers.ErrFull, dialect.ReasonFull},
	"producers.ErrConflict":     {producers.ErrConflict, dialect.ReasonConflict},
	"producers.ErrRenewed":      {producers.ErrRenewed, dialect.ReasonConflict},
	"producers.ErrUnanswered":   {producers.ErrUnanswered, dialect.ReasonUnanswered},
	"producers.ErrUnavailable":  {producers.ErrUnavailable, dialect.ReasonUnavailable},
	"producers.ErrNotOwner":     {producers.ErrNotOwner, dialect.ReasonCondition},
	"producers.ErrFenced":       {producers.ErrFenced, dialect.ReasonConflict},
	"producers.ErrBackpressure": {producers.ErrBackpressure, dialect.ReasonBusy},
	"producers.ErrClosed":       {producers.ErrClosed, dialect.ReasonShutdown},
	"producers.ErrExists":       {producers.ErrExists, dialect.ReasonExists},
	"producers.ErrKeyReused":    {producers.ErrKeyReused, dialect.ReasonKeyReused},
	"producers.ErrKeys":         {producers.ErrKeys, dialect.ReasonLimited},
	"producers.ErrOver":         {producers.ErrOver, dialect.ReasonInternal}, // of an agent's own pen, like the next
	"producers.ErrOpen":         {producers.ErrOpen, dialect.ReasonInternal},
	"command.ErrTaken":          {command.ErrTaken, dialect.ReasonInternal},
	"fanout.ErrNotFound":        {fanout.ErrNotFound, dialect.ReasonNotFound},
	"fanout.ErrExpired":         {fanout.ErrExpired, dialect.ReasonExpired},
	"fanout.ErrFuture":          {fanout.ErrFuture, dialect.ReasonFuture},
	"fanout.ErrUnavailable":     {fanout.ErrUnavailable, dialect.ReasonUnavailable},
	"fanout.ErrClosed":          {fanout.ErrClosed, dialect.ReasonShutdown},
	"dialect.ErrBadRequest":     {dialect.ErrBadRequest, dialect.ReasonBadRequest},
	"dialect.ErrUnprocessable":  {dialect.ErrUnprocessable, dialect.ReasonUnprocessable},
	"dialect.ErrNotFound":       {dialect.ErrNotFound, dialect.ReasonNotFound},
	"dialect.ErrGone":           {dialect.ErrGone, dialect.ReasonState},
	"dialect.ErrComplete":       {dialect.ErrComplete, dialect.ReasonEnded},
	"dialect.ErrOverflow":       {dialect.ErrOverflow, dialect.ReasonOverflow},
	"dialect.ErrSlowClient":     {dialect.ErrSlowClient, dialect.ReasonSlowClient},
	"dialect.ErrClientGone":     {dialect.ErrClientGone, dialect.ReasonClientGone},
	"auth.ErrUnauthorized":      {auth.ErrUnauthorized, dialect.ReasonUnauthorized},
	"auth.ErrForbidden":         {auth.ErrForbidden, dialect.ReasonForbidden},
	"auth.ErrExpired":           {auth.ErrExpired, dialect.ReasonCredentialExpired},
	"auth.ErrUnavailable":       {auth.ErrUnavailable, dialect.ReasonAuthUnavailable},
	"auth.ErrTickets":           {auth.ErrTickets, dialect.ReasonLimited},
	"auth.ErrNoTicket":          {auth.ErrNoTicket, dialect.ReasonUnauthorized},
	"ends.ErrDraining":          {ErrDraining, dialect.ReasonShutdown},
	"ends.ErrNoRoute":           {ErrNoRoute, dialect.ReasonNoRoute},
	"ends.ErrMethod":            {ErrMethod, dialect.ReasonMethod},
	"ends.ErrURITooLong":        {ErrURITooLong, dialect.ReasonURITooLong},
	"ends.ErrMediaType":         {ErrMediaType, dialect.ReasonUnsupportedMedia},
	"ends.ErrCoding":            {ErrCoding, dialect.ReasonUnsupportedMedia},
	"ends.ErrCondition":         {ErrCondition, dialect.ReasonCondition},
	"ends.ErrLimited":           {ErrLimited, dialect.ReasonLimited},
	"ends.ErrUpgrade":           {ErrUpgrade, dialect.ReasonUpgrade},
	"ends.ErrBodyTimeout":       {ErrBodyTimeout, dialect.ReasonTimeout},
	"ends.ErrBodyTooBig":        {ErrBodyTooBig, dialect.ReasonTooLarge},
	"ends.ErrRunBlobs":          {ErrRunBlobs, dialect.ReasonTooLarge},
	"ends.ErrDamaged":           {ErrDamaged, dialect.ReasonInternal},
	"ends.ErrBusy":              {ErrBusy, dialect.ReasonBusy},
	"ends.ErrNoRoom":            {ErrNoRoom, dialect.ReasonBusy},
	"auth.ErrOtherRun": {
		fmt.Errorf("%w: %w", auth.ErrOtherRun, fanout.ErrNotFound), dialect.ReasonNotFound,
	},
	"ends.ErrState":  {ErrState, dialect.ReasonState},
	"ends.ErrNoRuns": {ErrNoRuns, dialect.ReasonUnsupported},
	"ends.ErrOrigin": {ErrOrigin, dialect.ReasonForbidden},
	"ends.ErrPanic":  {ErrPanic, dialect.ReasonInternal},
}

// TestEverySentinelHasAReason reads the packages' sources, so that a new sentinel cannot be forgotten.
func TestEverySentinelHasAReason(t *testing.T) {
	for name, s := range sentinels {
		if got := ReasonOf(fmt.Errorf("doing: %w", s.err)); got != s.want {
			t.Errorf("%s is %s, want %s", name, got, s.want)
		}
	}
	found := 0
	for _, dir := range []string{"../../schema", "../../producers", "../../producers/command", "../../fanout",
		"../auth", "../dialect", "."} {
		for _, name := range exportedErrors(t, dir) {
			found++
			if _, ok := sentinels[name]; !ok {
				t.Errorf("%s has no reason", name)
			}
		}
	}
	if found != len(sentinels) {
		t.Errorf("%d sentinels in the sources, %d in the table", found, len(sentinels))
	}
}

func exportedErrors(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v", dir, err)
	}
	var names []string
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if errors.Is(err, fs.ErrNotExist) {
			continue // somebody renames files while we look
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			for _, s := range g.Specs {
				for _, n := range s.(*ast.ValueSpec).Names {
					if strings.HasPrefix(n.Name, "Err") {
						names = append(names, f.Name.Name+"."+n.Name)
					}
				}
			}
		}
	}
	return names
}

func TestReasonOfMixedErrors(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		want dialect.Reason
	}{
		{"nothing", nil, dialect.ReasonNone},
		{"unknown", errors.New("disk on fire"), dialect.ReasonInternal},
		{"a stored line that is malformed is not the client's",
			fmt.Errorf("%w: %w", schema.ErrBadPack, schema.ErrMalformed), dialect.ReasonInternal},
		{"nor is one in history", fmt.Errorf("%w: %w", fanout.ErrUnavailable, schema.ErrMalformed),
			dialect.ReasonUnavailable},
		{"history that was given up", fmt.Errorf("%w: %w", fanout.ErrUnavailable, context.DeadlineExceeded),
			dialect.ReasonUnavailable},
		{"a line of a batch", &schema.BatchError{Line: 3, Err: schema.ErrUnknownType}, dialect.ReasonUnknownType},
		{"an id in a line of a batch", &schema.BatchError{Line: 3, Err: schema.ErrBadID}, dialect.ReasonMalformed},
		{"a slow client", fmt.Errorf("sse: %w", dialect.ErrSlowClient), dialect.ReasonSlowClient},
		{"a deadline", context.DeadlineExceeded, dialect.ReasonUnavailable},
		{"a client that went", context.Canceled, dialect.ReasonClientGone},
	} {
		if got := ReasonOf(tt.err); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestProblem(t *testing.T) {
	p := Problem(dialect.ReasonExpired, fmt.Errorf("fanout: %w", &fanout.ExpiredError{First: 17}))
	if p.First != 17 || strings.Contains(p.Message, "fanout") {
		t.Errorf("%+v", p)
	}
	p = Problem(dialect.ReasonInternal, errors.New("pq: password authentication failed"))
	if p.Message != "internal error" {
		t.Errorf("an inner error is shown: %+v", p)
	}
	p = Problem(dialect.ReasonMalformed, &schema.BatchError{Line: 7,
		Err: &FieldError{Field: "/payload/a", Err: fmt.Errorf("%s: %w", strings.Repeat("x", 2000), schema.ErrMalformed)}})
	if p.Line != 7 || p.Field != "/payload/a" || len(p.Message) > maxMessage+10 {
		t.Errorf("%+v", p)
	}
	if p = Problem(dialect.ReasonNotFound, fmt.Errorf("find: %w", named{})); p.Named != "gone_away" ||
		p.Message != OutcomeOf(dialect.ReasonNotFound).Message {
		t.Errorf("%+v", p)
	}
	body := string(dialect.Problem{Code: "X", Message: "a\"\n\xff", Line: 2, Field: "/f", First: 3, Last: 4,
		RequestID: "r"}.AppendJSON(nil))
	want := `{"error":{"code":"X","message":"a\"\n\ufffd","line":2,"field":"/f","first_seq":3,"last_seq":4,"request_id":"r"}}`
	if body != want {
		t.Errorf("got  %s\nwant %s", body, want)
	}
}

// named has a code of its protocol's own.
type named struct{}

func (named) Error() string       { return "it has gone away" }
func (named) ProblemCode() string { return "gone_away" }
