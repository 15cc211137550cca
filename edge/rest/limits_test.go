package rest_test

import (
	"slices"
	"strings"
	"testing"

	"agentstream/edge"
	"agentstream/edge/dialect"
	"agentstream/edge/edgetest"
	"agentstream/schema"
)

// Posts over NATS share the limit. What is over it is refused, with all that follows, so that nothing overtakes.
func TestLimitedPosts(t *testing.T) {
	count := new(edgetest.Refused)
	h := edgetest.NewHouse(t)
	s := serverBeside(h, func(c *edge.Config) {
		c.IngestLimit = edge.IngestLimit{Events: 3, Requests: 1}
		c.Hooks.IngestRefused = count.Hook
	})
	answers := s.StorePosts(t.Context(), edgetest.RunOf("run"),
		postsOf(aDelta, "nonsense", aDelta+"\n"+aDelta, aDelta, "more nonsense", aDelta), nil)
	var fates []string
	for _, a := range answers {
		f, _, _ := strings.Cut(fate(a), ":")
		fates = append(fates, f)
	}
	limited := "429 20015 RATE-LIMITED"
	want := []string{"1-1 of 1, again false", "400 20001 KAI-STREAM-PROTO-0001", "2-3 of 2, again false", limited,
		limited, limited}
	if !slices.Equal(fates, want) || h.Last("run") != 3 || answers[3].Refusal.Retry != 1 ||
		count.Of(dialect.ReasonLimited) != 3 {
		t.Errorf("%q, %d events, %+v, %v", fates, h.Last("run"), answers[3].Refusal, count.By)
	}
	if a := s.StorePosts(t.Context(), edgetest.RunOf("run"), postsOf(aDelta), nil)[0]; a.Refusal == nil ||
		a.Refusal.Number != 20015 {
		t.Errorf("the next: %s", fate(a))
	}
	if a := s.StorePosts(t.Context(), schema.RunKey{Tenant: "other", Run: "run"}, postsOf(aDelta),
		nil)[0]; a.Refusal != nil {
		t.Errorf("another tenant: %s", fate(a))
	}
}
