package natskit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// quietSubjects are those on which nobody but the servers may listen: a listener keeps them from saying that nobody
// does, so that a stream that is missing is not noticed at once, and whatever it answers is taken for theirs.
var quietSubjects = []string{"agent.>", "$KV." + KeysBucket + ".>", "$KV." + TicketsBucket + ".>", "$JS.API.>"}

// listenersWait is for the answers of all servers of a cluster, of which nobody knows how many there are.
const listenersWait = 500 * time.Millisecond

// Listeners names the connections of this account that listen to subjects of the log beside the servers, and to what.
// It sees at most 10,000 connections of each server. The error says that the servers do not tell, as where the user
// has not the right to ask ($SYS.REQ.ACCOUNT.PING.CONNZ).
func Listeners(ctx context.Context, nc *nats.Conn) (found []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, listenersWait)
	defer cancel()
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, fmt.Errorf("natskit: listeners: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only when the connection is gone
	err = nc.PublishRequest("$SYS.REQ.ACCOUNT.PING.CONNZ", inbox, []byte(`{"subscriptions":true,"limit":10000}`))
	for answers := 0; err == nil; answers++ {
		m, next := sub.NextMsgWithContext(ctx)
		switch {
		case errors.Is(next, context.DeadlineExceeded) && answers > 0:
			slices.Sort(found)
			return found, nil
		case next != nil:
			err = next
		case m.Header.Get("Status") != "":
			err = fmt.Errorf("status %s", m.Header.Get("Status"))
		default:
			found = append(found, listenersIn(m.Data)...)
		}
	}
	return nil, fmt.Errorf("natskit: listeners: %w", err)
}

// listenersIn reads the answer of one server.
func listenersIn(answer []byte) (found []string) {
	var a struct {
		Data struct {
			Connections []struct {
				CID           uint64   `json:"cid"`
				IP            string   `json:"ip"`
				Name          string   `json:"name"`
				Subscriptions []string `json:"subscriptions_list"`
			} `json:"connections"`
		} `json:"data"`
	}
	_ = json.Unmarshal(answer, &a) // what does not fit names nobody
	for _, c := range a.Data.Connections {
		for _, s := range c.Subscriptions {
			if s == LimitsSubject || s == RedactedSubject { // of edges; no stream keeps them
				continue
			}
			if slices.ContainsFunc(quietSubjects, func(q string) bool { return overlap(q, s) }) {
				found = append(found, fmt.Sprintf("connection %d (%q, %s) listens to %s", c.CID, c.Name, c.IP, s))
			}
		}
	}
	return found
}

// overlap reports whether a subject may match both patterns.
func overlap(a, b string) bool {
	one, other := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(one), len(other)) {
		switch {
		case one[i] == ">" || other[i] == ">":
			return true
		case one[i] != other[i] && one[i] != "*" && other[i] != "*":
			return false
		}
	}
	return len(one) == len(other)
}
