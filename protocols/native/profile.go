package native

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"agentstream/edge/dialect"
	"agentstream/schema"
)

// Profile is the published protocol and nothing else: its eight types (native §3), and what a running tool prints as
// text.delta (§3.2). It is asked for with ?profile=, with the WebSocket subprotocol of the same name, or in the
// request message of gRPC.
const Profile = "koder-1"

// form is what beside the filter decides the frames of a request.
type form struct {
	letter bool // the Profile
	named  bool // server-sent events have names
}

func (f form) key() string {
	key := ""
	if f.letter {
		key = Profile
	}
	if f.named {
		key += "+event"
	}
	return key
}

func parseForm(key string) form {
	rest, named := strings.CutSuffix(key, "+event")
	return form{letter: rest == Profile, named: named}
}

// errProfile reports that the profile has nothing of what is asked for beside it.
var errProfile = errors.New("profile " + Profile + " has the eight types of the protocol alone")

// apply fits a request to the form.
func (f form) apply(req dialect.Request) (dialect.Request, error) {
	req.Form = f.key()
	if !f.letter {
		return req, nil
	}
	if req.Bundle || req.Snapshot {
		return req, fmt.Errorf("bundle and snapshot have no place here: %w: %w", errProfile, dialect.ErrBadRequest)
	}
	types := profileTypes(req.Filter)
	if len(types) == 0 {
		return req, fmt.Errorf("types names no type of it: %w: %w", errProfile, dialect.ErrBadRequest)
	}
	req.Filter.Types, req.Filter.Agent = types, true
	return req, nil
}

// profileTypes returns the types of the log that are shown in the profile to a client that asks for some of its types.
func profileTypes(asked dialect.Filter) (types []string) {
	for _, t := range schema.Types() {
		if t.Native && asked.HasType(t.Name) {
			types = append(types, t.Name)
			if t.Name == schema.TypeTextDelta {
				types = append(types, schema.TypeToolOutputDelta)
			}
		}
	}
	return types
}

var textDelta = []byte(schema.TypeTextDelta)

// inProfile returns an event as the profile has it: what a tool prints is text.delta, with the payload that it has.
func inProfile(out *dialect.Frames, r schema.Record) (typ, line []byte) {
	if string(r.Type) != schema.TypeToolOutputDelta {
		return r.Type, r.Line
	}
	before, after, ok := bytes.Cut(r.Line, []byte(`","type":"`+schema.TypeToolOutputDelta+`"`))
	if !ok { // it was scanned before
		return r.Type, r.Line
	}
	return textDelta, out.Text(before, []byte(`","type":"`+schema.TypeTextDelta+`"`), after)
}

// readEvent reads ?event=type.
func readEvent(in dialect.Input) (bool, error) {
	switch in.Query.Get("event") {
	case "":
		return false, nil
	case "type":
		return true, nil
	}
	return false, dialect.BadValue(dialect.ErrBadRequest, "event", in.Query.Get("event"), "type, or absent")
}

// readProfile reads ?profile=, and the subprotocol that a WebSocket is opened with.
func readProfile(in dialect.Input) (bool, error) {
	letter, err := isProfile(in.Query.Get("profile"))
	return letter || in.Stream == StreamWS && chooseSubprotocol(in) == Profile, err
}

func isProfile(name string) (bool, error) {
	if name == "" || name == Profile {
		return name != "", nil
	}
	return false, dialect.BadValue(dialect.ErrBadRequest, "profile", name, "%s, or absent", Profile)
}

// chooseSubprotocol returns the subprotocol that the server answers with: the first of those offered that it
// speaks.
func chooseSubprotocol(in dialect.Input) string {
	for _, name := range dialect.SplitList(in.Header.Values("Sec-WebSocket-Protocol")) {
		if name = strings.Trim(name, " \t"); name == Subprotocol || name == Profile {
			return name
		}
	}
	return ""
}
