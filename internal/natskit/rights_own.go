package natskit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// Rights are what a user may do, as its server says.
type Rights struct {
	User string // "": the server knows none
	may  *server.Permissions
}

// OwnRights asks the server what the connection's user may do. A user that may not ask gets no answer.
func OwnRights(ctx context.Context, nc *nats.Conn) (Rights, error) {
	m, err := nc.RequestWithContext(ctx, own, nil)
	if err != nil {
		return Rights{}, fmt.Errorf("%s: %w", own, err)
	}
	var answer struct {
		Data  *server.UserInfo `json:"data"`
		Error *server.ApiError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return Rights{}, fmt.Errorf("%s: %w", own, err)
	}
	switch {
	case answer.Error != nil:
		return Rights{}, fmt.Errorf("%s: %w", own, answer.Error)
	case answer.Data == nil:
		return Rights{}, fmt.Errorf("%s: %w", own, errors.New("the answer has no user"))
	}
	return Rights{User: answer.Data.UserID, may: answer.Data.Permissions}, nil
}

// Missing returns the subjects that a role publishes and those that it subscribes to, for which the user has no right.
func (r Rights) Missing(role Role) (publish, subscribe []string) {
	if r.may == nil {
		return nil, nil
	}
	return missing(r.may.Publish, role.Publish), missing(r.may.Subscribe, role.Subscribe)
}

// missing returns the subjects of which a part is not allowed, or denied.
func missing(may *server.SubjectPermission, subjects []string) (out []string) {
	if may == nil {
		return nil
	}
	for _, s := range subjects {
		in := func(allowed string) bool { return server.SubjectMatchesFilter(s, allowed) }
		on := func(denied string) bool { return server.SubjectsCollide(s, denied) }
		if len(may.Allow) > 0 && !slices.ContainsFunc(may.Allow, in) || slices.ContainsFunc(may.Deny, on) {
			out = append(out, s)
		}
	}
	return out
}
